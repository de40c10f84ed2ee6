"""What tests of jobs need: the equivalence harness, the operator harness, simulations under
crashes, a clock that stands still, recordings run again."""

from __future__ import annotations

from ..core.clock import VirtualClock
from ..engine.hosts.simulation_plan import SimulationError, SimulationPlan
from ..replaying import Replayed, replay
from .equivalence import Difference, Ways, assert_equivalent, assert_files_equivalent
from .operator_harness import OperatorHarness
from .simulation import Faults, SimulationFailed, simulate

__all__ = [
    "Difference",
    "Faults",
    "OperatorHarness",
    "Replayed",
    "SimulationError",
    "SimulationFailed",
    "SimulationPlan",
    "VirtualClock",
    "Ways",
    "assert_equivalent",
    "assert_files_equivalent",
    "replay",
    "simulate",
]
