"""What is known about a job: the progress of its current attempt, and the picture for others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...checkpoint.coordinator_types import CheckpointStatistics
from ...core.ids import Attempt, TaskId
from ...core.job_status import JobStatus
from .history import Picture
from .rescale_figures import RescaleFigures


@dataclass
class Progress:
    """How far the tasks of one attempt are. finished <= drained <= running <= tasks."""

    tasks: frozenset[TaskId]
    running: set[TaskId] = field(default_factory=set)
    drained: set[TaskId] = field(default_factory=set)
    finished: set[TaskId] = field(default_factory=set)
    committed: bool = False
    """Whether the terminal checkpoint completed in this attempt; only then tasks finish."""

    @property
    def all_running(self) -> bool:
        return len(self.running) == len(self.tasks)

    @property
    def all_drained(self) -> bool:
        return len(self.drained) == len(self.tasks)

    @property
    def all_finished(self) -> bool:
        return len(self.finished) == len(self.tasks)

    def restart(self, tasks: Collection[TaskId]) -> None:
        """These begin again."""
        self.running.difference_update(tasks)
        self.drained.difference_update(tasks)

    def adopt(self, tasks: frozenset[TaskId]) -> None:
        """The job has these from now on; those that run are among them."""
        self.tasks = tasks

    def validate(self) -> None:
        """Assert the invariants of the fields."""
        assert self.finished <= self.drained <= self.running <= self.tasks
        assert self.committed or not self.finished
        assert self.all_drained or not self.committed


@dataclass(frozen=True)
class JobState:
    """A job at one moment. `metrics`: the latest figures of each task of the current attempt."""

    job_id: str
    name: str
    status: JobStatus
    attempt: Attempt
    restarts: int
    running_tasks: int
    total_tasks: int
    checkpoints: CheckpointStatistics
    last_failure: str | None
    metrics: Mapping[TaskId, dict[str, Any]]
    history: Picture = field(default_factory=Picture)
    rescales: int = 0
    last_rescale: RescaleFigures | None = None
    shortage: str | None = None
    """Why it runs with fewer subtasks than it is to have; None: it does not."""
