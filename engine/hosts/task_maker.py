"""The processes of a job's tasks: how each is made, and made ready for one to run in it.

Which are made is decided in `ray_cluster` and, ahead of a rescale, in `room_to_come`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ray

from ...core import code_pickles
from ...core.config import JobConfig
from ...core.errors import ResourceError, SerializationError, StromError
from ...core.ids import TaskId
from ...logs.scope import LogScope
from ..graph.model import JobGraph
from ..graph.shipping import naming_operator
from ..task.deployment import scope_of
from .coordinator_answers import job_of
from .job_record import JobRecord
from .left_tasks import task_prefix
from .placement import wait_for
from .ray_connect import NAMESPACE
from .ray_task import Admittance, TaskActor, Tie
from .requirements import not_installed
from .sent_files import SentFiles
from .slots import Slots

START_TIMEOUT_S: Final = 120.0
"""How long the processes of all tasks may take to start."""

INSTALL_S: Final = 600.0
"""How much longer, if Ray has to install packages first: as long as Ray itself gives that."""


@cache
def _actor() -> Any:
    """Made once: Ray keeps a copy of the class for each time."""
    return ray.remote(TaskActor)


@dataclass
class TaskMaker:
    """Of one coordinator of a job. All methods are for any thread; the fields that change are
    replaced by the driver's alone."""

    name: str
    """Of the coordinator."""
    term: int
    coordinator: Any
    config: JobConfig
    slots: Slots
    """Where they are made."""
    code: Any
    """What they import from."""
    files: SentFiles | None
    """What tasks have beside them; None: nothing, or none is to begin any more."""
    admittance: Admittance
    """Of all that are to reach each other; another's once tasks of its are taken over."""
    cancelled: Future[None]
    """Fails when nobody waits for them any more."""
    record: JobRecord | None = None
    """As of `Tie`."""
    storage: Any = None
    """Where checkpoints go, of the last deployment."""

    def make(self, task: TaskId) -> Any:
        """The actor, in the task's slot, which is there. It outlives this coordinator: another may
        find it by its name. By a new name each time: what Ray has given up on it may make later,
        and nobody uses."""
        name = f"{task_prefix(self.name)}{secrets.token_hex(8)}"
        kept = {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}
        return _actor().options(**kept, **self.slots.options(task)).remote()

    def prepare(self, task: TaskId, actor: Any, several: bool, scope: LogScope) -> Any:
        """The call that opens its endpoint, and makes its program's code importable. `several`:
        whether the job runs on more than one machine."""
        return actor.prepare.remote(
            task,
            self.config.exchange,
            self.admittance,
            several,
            self.code,
            self.files,
            (self.config.logging, scope),
            Tie(self.coordinator, self.term, self.slots.own_name, self.name, self.record),
        )

    def warm_up(self, job: JobGraph, actors: Mapping[TaskId, Any]) -> None:
        """Until all that these will need is prepared, and imported. Raises as `wait`."""
        several, job_id = self.slots.on_several_machines(), job_of(self.name)
        scopes = {t: scope_of(job_id, job.name, job.vertex(t.vertex), t) for t in actors}
        self.wait([self.prepare(t, one, several, scopes[t]) for t, one in actors.items()])
        parts = {t.vertex: code_pickles.dumps((job.vertex(t.vertex), self.storage)) for t in actors}
        self.wait([one.warm.remote(parts[t.vertex]) for t, one in actors.items()])

    def wait(self, refs: Sequence[Any]) -> list[Any]:
        """What the calls give. Raises ResourceError, Ray's errors, and that of `cancelled`."""
        requirements = self.config.job_files.requirements
        limit = START_TIMEOUT_S + (0.0 if requirements is None else INSTALL_S)
        try:
            return wait_for(refs, limit, self.cancelled)
        except TimeoutError:
            raise ResourceError(
                f"the processes of {len(refs)} tasks have not all started within "
                f"{limit:.0f} s: is the cluster overloaded?"
            ) from None


def start_error(error: Exception, job: JobGraph, death: Callable[[Any], str]) -> Exception:
    """Why a task could not start, without Ray's account of its own calls. `death`: says of Ray's
    error that a process is gone whose it was, and why."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, SerializationError):
        return naming_operator(job, cause)
    if isinstance(cause, StromError):
        return cause
    if isinstance(error, ray.exceptions.RayActorError):
        return ResourceError(death(error))
    return not_installed(job.config.job_files.requirements, error) or error
