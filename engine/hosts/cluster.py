"""What a driver needs of the place where a job's tasks run: each host has its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...core.errors import ResourceError
from ...core.ids import Attempt, TaskId
from ..accounts import TaskAccount
from ..graph.model import JobGraph
from ..messages import Mail
from ..task.deployment import TaskDeployment


class LittleRoomError(ResourceError):
    """What was to be started has no room, and `job`, which has fewer subtasks, has."""

    def __init__(self, job: JobGraph, why: str) -> None:
        super().__init__(why)
        self.job = job


class Cluster(Protocol):
    """Where a job's tasks run."""

    def take_over(self) -> Sequence[TaskAccount]:
        """What tasks say that another driver of the job has left; from now on they are this one's.
        Those that do not answer run no more."""
        ...

    def deploy(self, deployments: Sequence[TaskDeployment]) -> None:
        """Start all tasks of one attempt. Raises what went wrong; some may have started then. Of
        an adaptive job LittleRoomError, here and below."""
        ...

    def deploy_beside(
        self, deployments: Sequence[TaskDeployment], stays: Sequence[TaskDeployment] = ()
    ) -> None:
        """Begin to start tasks beside others that run. Raises what went wrong at once, or the host
        calls `on_not_deployed` later. `stays`: of tasks that run on, with the channels that they
        get: they are told (`mail.rewired`) once all these can be reached."""
        ...

    def make_room(self, request: int, job: JobGraph) -> None:
        """Begin to have all that the tasks of this graph need, beside those that run; the host
        calls `on_room` with the request."""
        ...

    def adopt(self, job: JobGraph) -> None:
        """The job is this from now on, or still: what tasks needed that it does not have is let go
        of. None of these runs, nor does any of a vertex that changes."""
        ...

    def cancel_all(self, attempt: Attempt) -> None:
        """Begin to stop every task, of this attempt and former ones; the host calls
        `on_all_stopped` when none runs any more."""
        ...

    def cancel_tasks(self, tasks: Sequence[TaskId], attempt: Attempt) -> None:
        """Begin to stop these; the host calls `on_tasks_stopped` when none of them runs."""
        ...

    def send(self, task: TaskId, attempt: Attempt, mail: Mail) -> None:
        """Deliver in order; dropped if the task is gone."""
        ...
