"""What a job does where a cluster has too little room for it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .checks import check_count, check_duration, check_kind


@dataclass(frozen=True)
class AdaptiveConfig:
    """Of jobs on Ray. Defaults are Flink's."""

    enabled: bool = False
    """Whether the job starts, or goes on, with fewer subtasks, and grows when there is room. Not:
    it waits for all of its slots."""
    min_parallelism: int = 1
    """It does not run with fewer, of the operators that have no parallelism of their own."""
    wait: timedelta = timedelta(minutes=5)
    """How long it waits for room for these; then the start fails."""
    stabilization: timedelta = timedelta(seconds=10)
    """How long the room must have been the same before it starts with less than all."""
    cooldown: timedelta = timedelta(seconds=30)
    """After each start and rescale: so long it does not grow."""
    growth_stabilization: timedelta = timedelta(minutes=1)
    """How long there must have been more room before it grows to less than all."""

    def __post_init__(self) -> None:
        check_kind("adaptive enabled", self.enabled, bool)
        check_count("adaptive min_parallelism", self.min_parallelism, 1)
        check_duration("adaptive wait", self.wait)
        check_duration("adaptive stabilization", self.stabilization)
        check_duration("adaptive cooldown", self.cooldown)
        check_duration("adaptive growth_stabilization", self.growth_stabilization)
