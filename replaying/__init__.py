"""Runs an operator again on what a job recorded of it (`StreamExecutionEnvironment.record`): from
its state at the last checkpoint, in this process, on this thread, to the same failure or result."""

from __future__ import annotations

from .replay import replay
from .replayed import Fault, Replayed

__all__ = ["Fault", "Replayed", "replay"]
