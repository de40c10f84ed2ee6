"""The dispatcher: a named, detached Ray actor that starts jobs, follows them and keeps account.

It carries out what `Session` decides: `runs` has the coordinators, `ledger` the registry, and
`agenda` the order. Ray starts it again when its process dies; then, and on a new cluster, it goes
on from its registry: coordinators that live are followed, jobs whose coordinator is gone run again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import Any, Final

import ray

from ..core.clock import SystemClock
from ..core.errors import ConfigurationError, JobCancelledError, JobFailedError
from ..engine.hosts.job_outcome import JobOutcome
from ..engine.hosts.ready_coordinators import ReadyCoordinators
from ..engine.hosts.ready_tasks import ReadyTasks
from .actions import Action, Cancel, Find, Follow, Release, Settle, Start, Stop, Store
from .agenda import Agenda
from .ledger import RETAINED_JOBS, Ledger
from .records import JobRecord, Phase
from .runs import Runs
from .session import Session
from .slot_pool import prefix_of
from .slots_there import release, slots_there

log = logging.getLogger("strom")

DISPATCHER: Final = "strom-dispatcher"
"""The actor's name."""

TICK_S: Final = 1.0
"""How often the session is told what the cluster has."""

LOOK_S: Final = 15.0
"""How often it is looked which slots there are."""

MOST_UNWANTED: Final = 1_000
"""So many jobs are known that were cancelled before they were there."""


class Dispatcher:
    """Made into a Ray actor by `dispatcher_client.start`. All methods are coroutines."""

    def __init__(self, registry: str, retained: int = RETAINED_JOBS, ready: int = 0) -> None:
        """`registry`: an fsspec URL or path that outlives this process. `retained`: how many jobs
        that are over it keeps. `ready`: how many task processes on each node, as of
        `ReadyTasks`; 0: no coordinator either."""
        self._clock = SystemClock()
        self._slots = prefix_of(registry)
        """What the names of the session's slots begin with."""
        self._session = Session(self._slots)
        self._ledger = Ledger(registry, self._clock, retained)
        self._agenda = Agenda(self._carry)
        self._coordinators = ReadyCoordinators()
        self._runs = Runs(
            self._session, self._ledger, self._do, DISPATCHER, self._clock, self._coordinators
        )
        self._taking: set[str] = set()
        """Jobs that are about to take the place of others, and not in the session yet."""
        self._unwanted: dict[str, None] = {}
        """Jobs that were cancelled and are not known: their submission may be on its way."""
        self._ready = ready
        self._began_ms = self._clock.now_ms()
        self._do(self._session.recover(self._ledger.left, self._began_ms, self._slots_left()))
        self._agenda.spawn(self._watch())
        self._agenda.spawn(self._keep_ready())
        self._agenda.spawn(self._ledger.recall())
        self._agenda.spawn(self._ledger.remove_old())

    def _slots_left(self) -> list[str]:
        """By a former dispatcher. None, if Ray does not say: `_watch` asks again, and Ray makes no
        actor again whose constructor fails."""
        try:
            return slots_there(self._slots)
        except Exception:
            log.exception("what slots there are could not be found out")
            return []

    # --- programs --------------------------------------------------------------------------------

    async def submit(self, record: JobRecord, submission: bytes) -> None:
        """Take a job, which is durable when this returns. Again for the same is nothing new.
        JobCancelledError for one that was cancelled meanwhile, or before: nothing is left of it."""
        job_id = record.job_id
        if self._is_known(job_id):
            return
        if job_id not in self._unwanted:
            await self._ledger.submit(record, submission)
        if job_id in self._unwanted:
            await self._ledger.insist(job_id, lambda registry: registry.forget(job_id))
            raise JobCancelledError(f"job '{job_id}' was cancelled before it was there")
        if self._ledger.is_over(job_id):
            return  # asked for twice at once, and cancelled before the second was written down
        self._do(self._session.submit(record, self._clock.now_ms()))

    async def take_place(
        self, record: JobRecord, submission: bytes, directory: str | None
    ) -> str | None:
        """Stop the job that a new one `follows` with a savepoint, below `directory`, and start the
        new one from that; again for a known one is nothing new. Returns the savepoint; None for a
        job that takes nobody's place. ConfigurationError if that cannot be, JobFailedError if there
        was no savepoint: the other one goes on, or ended by itself."""
        assert record.follows is not None
        job_id = record.job_id
        if not self._is_known(job_id) and job_id not in self._taking:
            self._session.check_replaced(record.follows, record)
            self._taking.add(job_id)
            try:
                await self._ledger.submit(record, submission)
                self._runs.save_into(job_id, directory)
                try:
                    self._do(self._session.take_place(record, self._clock.now_ms()))
                except ConfigurationError:
                    self._runs.forget(job_id)
                    await self._ledger.insist(job_id, lambda known: known.forget(job_id))
                    raise
            finally:
                self._taking.discard(job_id)
        while True:
            known = self._session.job(job_id)
            decided = known is not None and (known.claims is not None or known.follows is None)
            if decided or (known is None and job_id not in self._taking):
                break
            await self._agenda.next_change(1.0)
        if known is None:
            known = await self._found(job_id)
            if known.claims is None:
                raise JobFailedError(known.error or f"job '{job_id}' is {known.status.value}")
        return known.claims

    async def waiting(self, job_id: str, timeout: float, said: str | None) -> tuple[JobRecord, str]:
        """Where a job is, once it has started or is over, or waits for another reason than `said`,
        or after so many seconds; and what it waits for."""
        deadline = time.monotonic() + timeout
        while True:
            self._session.heard(job_id, self._clock.now_ms())
            record = await self._found(job_id)
            why = self._session.waits_for(job_id) or ""
            left = deadline - time.monotonic()
            if record.phase in (Phase.RUNNING, Phase.ENDED) or left <= 0:
                return record, why
            if record.phase is Phase.QUEUED and why != said:
                return record, why
            await self._agenda.next_change(min(left, 1.0))

    async def next_run(self, job_id: str, left: int, timeout: float) -> tuple[JobRecord, str]:
        """Where a job is once it is in a later run than `left`, or over, or after so many seconds;
        and what it waits for."""
        deadline = time.monotonic() + timeout
        while True:
            record = await self._found(job_id)
            why = self._session.waits_for(job_id) or ""
            on = record.phase is Phase.RUNNING and record.run > left
            wait = deadline - time.monotonic()
            if on or record.phase is Phase.ENDED or wait <= 0:
                return record, why
            await self._agenda.next_change(min(wait, 1.0))

    async def cancel(self, job_id: str) -> None:
        """Of a job that is over this changes nothing; ConfigurationError if another has taken its
        place and goes on, or if there is none; should it only be on its way, it does not start."""
        if self._session.job(job_id) is not None:
            self._do(self._session.cancel(job_id, self._clock.now_ms()))
        elif self._ledger.is_over(job_id):
            await self._refuse_if_it_goes_on(job_id)
        else:
            self._unwanted[job_id] = None
            while len(self._unwanted) > MOST_UNWANTED:
                del self._unwanted[next(iter(self._unwanted))]
            raise ConfigurationError(f"this session has no job '{job_id}'")

    async def _refuse_if_it_goes_on(self, job_id: str) -> None:
        after: str | None = job_id
        while after is not None and self._session.job(after) is None:
            kept = await self._ledger.ended(after)
            after = None if kept is None else kept.successor
        if after is not None:
            raise ConfigurationError(
                f"job '{job_id}' is over, and goes on as job '{after}', which took its place: "
                "cancel that"
            )

    async def jobs(self, ended: int = 100) -> list[tuple[JobRecord, str]]:
        """All jobs that are not over, in the order of their submission, and the last that are; each
        with what it waits for."""
        now = [(r, self._session.waits_for(r.job_id) or "") for r in self._session.jobs]
        return [*now, *((record, "") for record in self._ledger.last(ended))]

    async def job(self, job_id: str) -> tuple[JobRecord, str]:
        """ConfigurationError if there is none."""
        return await self._found(job_id), self._session.waits_for(job_id) or ""

    async def archived(self, job_id: str) -> dict[str, Any] | None:
        """What the registry keeps of a job that is over."""
        return await self._ledger.ask(lambda registry: registry.ended(job_id))

    async def outcome(self, job_id: str) -> JobOutcome | None:
        """How a job ended, once the registry keeps that."""
        return await self._ledger.outcome(job_id)

    async def last_view(self, job_id: str) -> dict[str, Any] | None:
        """What the registry keeps of all that was known of a job in the end."""
        return await self._ledger.ask(lambda registry: registry.view(job_id))

    async def last_lines(self, job_id: str) -> list[dict[str, Any]]:
        """What the registry keeps of the log of a job that is over; none: it keeps none."""
        return await self._ledger.ask(lambda registry: registry.lines(job_id))

    async def about(self) -> dict[str, Any]:
        """Of itself: registry, since when, and how many jobs."""
        jobs = self._session.jobs
        return {
            "registry": self._ledger.location,
            "retained_jobs": self._ledger.retained,
            "ready_tasks": self._ready,
            "ready_coordinator": self._coordinators.is_ready,
            "since_ms": self._began_ms,
            "queued": sum(job.phase is Phase.QUEUED for job in jobs),
            "running": sum(job.phase is not Phase.QUEUED for job in jobs),
            "ended": self._ledger.archived,
        }

    async def close(self) -> None:
        """Decide nothing more, and return when the registry has all that was decided."""
        await self._runs.close()
        self._do(self._session.close())
        await self._agenda.close()
        self._ledger.close()

    def _is_known(self, job_id: str) -> bool:
        return self._session.job(job_id) is not None or self._ledger.is_over(job_id)

    async def _found(self, job_id: str) -> JobRecord:
        record = self._session.job(job_id) or await self._ledger.ended(job_id)
        if record is None:
            raise ConfigurationError(f"this session has no job '{job_id}'")
        return record

    # --- what the session decides ----------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        for action in () if self._agenda.closed else actions:
            if isinstance(action, Store) and action.record.phase is Phase.ENDED:
                self._ledger.ends(action.record)
        self._agenda.add(actions)

    async def _carry(self, action: Action) -> None:
        match action:
            case Store(record) if record.phase is Phase.ENDED:
                await self._archive(record)
            case Store(record):
                await self._ledger.store(record)
            case Start(record):
                await self._ledger.store(record)
                self._agenda.spawn(self._runs.start(record))
            case Find(record):
                self._agenda.spawn(self._runs.find(record))
            case Follow(record):
                self._agenda.spawn(self._runs.follow(record))
            case Cancel(record):
                self._agenda.spawn(self._runs.cancel(record))
            case Release(group):
                await asyncio.to_thread(release, group)
            case Stop(record):
                self._agenda.spawn(self._runs.stop(record))
            case Settle(record):
                self._agenda.spawn(self._runs.settle(record))

    async def _archive(self, record: JobRecord) -> None:
        await self._ledger.archive(record, *self._runs.last_words(record.job_id))
        self._runs.forget(record.job_id)
        await self._agenda.tell()
        self._agenda.spawn(self._ledger.keep_lines(record.job_id))

    async def _watch(self) -> None:
        looked = 0.0
        while True:
            try:
                now = self._clock.monotonic()
                has = await asyncio.to_thread(ray.cluster_resources)
                self._do(self._session.capacity(has, self._clock.now_ms()))
                if now - looked >= LOOK_S:
                    looked = now
                    self._do(self._session.there(await asyncio.to_thread(slots_there, self._slots)))
            except Exception:
                log.exception("what the cluster has could not be found out")
            await asyncio.sleep(TICK_S)

    async def _keep_ready(self) -> None:
        if not self._ready:
            return
        me = ray.get_runtime_context().current_actor
        tends = partial(self._coordinators.tend, me), ReadyTasks(me, self._ready).tend
        while True:
            for tend in tends:
                try:
                    await asyncio.to_thread(tend)
                except Exception:
                    log.exception("processes could not be made ready")
            await asyncio.sleep(TICK_S)

    async def hold(self) -> None:
        """Never returns: processes that are kept ready see this call fail when there is no
        dispatcher any more."""
        await asyncio.Event().wait()
