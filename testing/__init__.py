"""What tests of jobs need: the equivalence harness, the operator harness, the simulator's plan, a
clock that stands still, recordings run again."""

from __future__ import annotations

from ..core.clock import VirtualClock
from ..engine.hosts.simulator import SimulationError, SimulationPlan
from ..replaying import Replayed, replay
from .equivalence import Difference, Ways, assert_equivalent, assert_files_equivalent
from .operator_harness import OperatorHarness

__all__ = [
    "Difference",
    "OperatorHarness",
    "Replayed",
    "SimulationError",
    "SimulationPlan",
    "VirtualClock",
    "Ways",
    "assert_equivalent",
    "assert_files_equivalent",
    "replay",
]
