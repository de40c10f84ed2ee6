"""What a cluster tells the driver of its tasks, by the coordinator's inbox."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.ids import Attempt, TaskId
from ..messages import Mail, TaskFailed


@dataclass(frozen=True)
class TaskLost:
    """A task's process died."""

    task: TaskId
    attempt: Attempt
    reason: str


@dataclass(frozen=True)
class AllStopped:
    """No task of the attempt, or a former one, runs any more."""

    attempt: Attempt


@dataclass(frozen=True)
class TasksStopped:
    """None of these runs any more."""

    tasks: tuple[TaskId, ...]
    attempt: Attempt


@dataclass(frozen=True)
class NotDeployed:
    """Tasks could not be started beside others."""

    attempt: Attempt
    error: Exception


@dataclass(frozen=True)
class Reached:
    """Tasks that start beside others can be reached: what those that stay are to be told, in the
    attempt of each."""

    mails: tuple[tuple[TaskId, Attempt, Mail], ...]


@dataclass(frozen=True)
class RoomMade:
    """What was asked for with `make_room` is there; or why not."""

    request: int
    why: str | None


ClusterEvent = TaskLost | AllStopped | TasksStopped | NotDeployed | Reached | RoomMade | TaskFailed
