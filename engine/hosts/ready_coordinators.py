"""A job's coordinator that is there before its job, so that a start need not wait for its process:
Python, Ray and all that a coordinator imports.

A session's dispatcher, the *keeper*, has one. It stands by until it is appointed: from then on it
is the coordinator of one job, as if it had been made for it, and the keeper makes another when that
job has started. As Ray makes no actor in a process that is there, and finds none by another name
than its first, the actor is made without a job, under a name of its own (`coordinator_names`).

Its process may die at any moment, and Ray makes the actor anew, with the same constructor: the next
one looks for an entry with its name, and is that job's coordinator, which comes back, or ends for
good. So whoever has died before it was appointed is of no use any more.

A start does not fail because of it: where it cannot be appointed, or does not say that it is, an
ordinary one is made.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final

import ray

from ...core.errors import JobFailedError
from ...core.failure_text import described
from .control_service import patiently
from .coordinator_answers import Farewell
from .coordinator_names import (
    Appointment,
    appoint,
    appointments,
    arguments_of,
    came_back,
    forget,
    forget_lost,
    named_actors,
)
from .kept_slots import KeptSlots
from .launch import Submission, coordinator_options
from .ray_connect import NAMESPACE
from .ray_coordinator import JobCoordinator
from .ray_task import UNUSED_S, import_face, until_dead, use_one_thread
from .ready_tasks import CALM_S, environment

log = logging.getLogger("strom")

PREFIX: Final = "strom-coordinator-"
"""How their names begin."""

APPOINTING_S: Final = 5.0
"""How long one may take to say that it has the job."""


class ReadyCoordinator(JobCoordinator):
    """Until it is appointed nobody but its keeper knows of it, and calls nothing but `stand_by` and
    `appoint`."""

    def __init__(self, name: str) -> None:
        """Called anew by Ray when its process has died. `name`: the actor's."""
        use_one_thread()
        self._actor_name = name
        self._appointment: Appointment | None = None
        """The job that it has; None: none yet."""
        self._standing_by: asyncio.Task[None] | None = None
        """Follows the keeper."""
        self._leaves = False
        """Whether it takes no job any more."""
        if came_back():
            arguments = patiently(partial(arguments_of, self._actor_name))
            if arguments is None:
                self._leave_for_good()
            else:
                self._become(arguments)
        else:
            asyncio.get_running_loop().call_later(UNUSED_S, self._end_unless_used)

    async def stand_by(self, keeper: Any) -> None:
        """Import what programs of jobs import. It ends when the keeper is dead for good, unless it
        has a job then. `keeper`: has a method `hold`, which never returns."""
        if self._standing_by is None:
            self._standing_by = asyncio.get_running_loop().create_task(self._follow(keeper))
        await asyncio.to_thread(_import_all)

    async def appoint(
        self,
        job_id: str,
        records: str | None,
        slots: KeptSlots | None,
        farewell: Farewell | None,
    ) -> None:
        """Be this job's coordinator, as of `JobCoordinator`. JobFailedError if it has another, or
        is about to end. On the loop without a pause: nobody finds the entry and asks one that is
        no coordinator yet."""
        if self._leaves or self._appointment is not None:
            raise JobFailedError(f"job {job_id}: this coordinator has another, or takes none")
        arguments = pickle.dumps((job_id, records, slots, farewell), protocol=5)
        appoint(Appointment(job_id, self._actor_name), arguments)
        self._become(arguments)

    def _become(self, arguments: bytes) -> None:
        job_id, records, slots, farewell = pickle.loads(arguments)
        self._appointment = Appointment(job_id, self._actor_name)
        super().__init__(job_id, records, slots, farewell)

    async def _follow(self, keeper: Any) -> None:
        await until_dead(keeper)
        if self._appointment is None:
            self._leave_for_good()

    def _end_unless_used(self) -> None:
        """Its keeper died for good before it could say anything."""
        if self._appointment is None and self._standing_by is None:
            self._leave_for_good()

    def _leave_for_good(self) -> None:
        self._leaves = True
        if self._appointment is not None:
            with suppress(Exception):  # then its keeper does
                forget(self._appointment)
        super()._leave_for_good()


class ReadyCoordinators:
    """Of one keeper, which calls `tend` every now and then, on any one thread, and the rest on its
    loop."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        """Held while it is said who stands by, or looked at together with who was given away."""
        self._given: set[str] = set()
        """Names of those that were to be appointed, and may have no entry yet, or are to end."""
        self._name: str | None = None
        """Of the one that stands by, or is about to; None: there is none."""
        self._actor: Any = None
        self._imported: Future[None] | None = None
        """Done when it is ready, or has failed."""
        self._is_ready = False
        self._calm_from = now()

    @property
    def is_ready(self) -> bool:
        """Whether the next job has one."""
        return self._is_ready

    def tend(self, keeper: Any) -> None:
        """Make one if there is none, or find that of the keeper's process before this. `keeper`: an
        actor with a method `hold` that never returns; it ends when that is dead for good. Raises
        Ray's errors."""
        patiently(forget_lost)
        there = patiently(_without_job)
        self._look(there)
        prefix = f"{PREFIX}{environment()}-"
        with self._lock:
            others = sorted(there - self._given - {self._name})
        for name in others:
            with suppress(ValueError):  # it has just ended
                actor = patiently(partial(ray.get_actor, name, NAMESPACE))
                if self._name is None and name.startswith(prefix):
                    self._keep(name, actor, keeper)
                else:
                    ray.kill(actor, no_restart=True)
        if self._name is None and self._now() >= self._calm_from:
            name = f"{prefix}{secrets.token_hex(8)}"
            actor = _actor().options(**coordinator_options(name)).remote(name)
            self._keep(name, actor, keeper)

    def _look(self, there: set[str]) -> None:
        """Whether it is ready, or is to be replaced: one whose process has died ends by itself."""
        with self._lock:
            self._given &= there
            if self._name is None or self._imported is None:
                return
            if self._name not in there:
                self._drop()
            elif self._imported.done():
                self._is_ready = self._imported.exception() is None
                if not self._is_ready:
                    ray.kill(self._actor, no_restart=True)

    def _keep(self, name: str, actor: Any, keeper: Any) -> None:
        imported = actor.stand_by.remote(keeper).future()
        with self._lock:
            self._name, self._actor, self._imported = name, actor, imported
            self._is_ready = False

    def _drop(self) -> None:
        """It is of no use, or another's, from now on."""
        if self._name is not None:
            self._given.add(self._name)
        self._name = self._actor = self._imported = None
        self._is_ready = False

    async def appointed(
        self, submission: Submission, slots: KeptSlots | None, farewell: Farewell | None
    ) -> Any | None:
        """The one that stands by as the job's coordinator, as of `make_coordinator`; None: an
        ordinary one is to be made."""
        taken = None if submission.packages is not None else self._take()
        if taken is None:
            return None
        name, actor = taken
        job_id = submission.job_id
        try:
            told = actor.appoint.remote(job_id, submission.checkpoints, slots, farewell)
            await asyncio.wait_for(told, APPOINTING_S)
        except Exception as error:
            log.warning("job %s: its coordinator was not ready: %s", job_id, described(error))
            with suppress(Exception):  # nobody tells it to start: it leaves by itself
                await asyncio.to_thread(_dismiss, Appointment(job_id, name), actor)
            return None
        return actor

    def _take(self) -> tuple[str, Any] | None:
        """It is given to nobody else."""
        with self._lock:
            if self._name is None or not self._is_ready:
                return None
            taken = self._name, self._actor
            self._drop()
            self._calm_from = self._now() + CALM_S
        return taken


def end_ready_coordinators() -> None:
    """Those that have no job."""
    for name in patiently(_without_job):
        with suppress(ValueError):  # it has just ended
            ray.kill(ray.get_actor(name, NAMESPACE), no_restart=True)


def _without_job() -> set[str]:
    """The names of those that nobody has appointed."""
    names = {name for name in named_actors() if name.startswith(PREFIX)}
    return names - {one.actor for one in appointments()}


def _dismiss(one: Appointment, actor: Any) -> None:
    """It is not to have that job. One that has another, given by the keeper's process before this,
    keeps that."""
    jobs = {known.job_id for known in patiently(appointments) if known.actor == one.actor}
    if jobs <= {one.job_id}:
        ray.kill(actor, no_restart=True)
    patiently(partial(forget, one))


@cache
def _actor() -> Any:
    """Made once: Ray keeps a copy of the class for each time."""
    return ray.remote(ReadyCoordinator)


def _import_all() -> None:
    """And take it out of the collector's way."""
    import_face()
    gc.collect()
    gc.freeze()
