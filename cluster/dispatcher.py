"""The dispatcher: a named, detached Ray actor that starts jobs, follows them and keeps account.

It carries out what `Session` decides. One coroutine does so, action by action, so that nothing
starts before the registry says so; what a start or a coordinator answers comes back as an event.
Ray starts it again when its process dies; then, and on a new cluster, it goes on from its registry:
coordinators that live are followed, jobs whose coordinator is gone run again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from ray.util.placement_group import get_placement_group, remove_placement_group

from ..core.errors import ConfigurationError, JobFailedError, StromError
from ..core.failure_text import described
from ..core.job_status import JobStatus
from ..engine.hosts.driver import JobOutcome
from ..engine.hosts.job_logs import JobLogs
from ..engine.hosts.job_view import JobView
from ..engine.hosts.launch import Submission, make_coordinator, withdraw
from ..engine.hosts.ray_cluster import KeptSlots
from ..engine.hosts.ray_connect import NAMESPACE
from ..engine.hosts.ray_coordinator import Followed, coordinator_name
from .records import JobRecord, Phase
from .registry import Registry, leave_word
from .savepoints import state_of_stopped
from .session import (
    Action,
    Cancel,
    Find,
    Follow,
    Release,
    Session,
    Settle,
    Start,
    Stop,
    Store,
)
from .slot_pool import PREFIX, SlotGroup

log = logging.getLogger("strom")

DISPATCHER: Final = "strom-dispatcher"
"""The actor's name."""

ATTEMPTS_OF_A_RUN: Final = 1_000_000
"""More than any coordinator makes."""

TICK_S: Final = 1.0
ASK_S: Final = 30.0
"""How long a coordinator may keep the question whether the job is over."""

RETRY_S: Final = 5.0
"""Until the registry is tried again, when it could not be written."""

MOST_HISTORY: Final = 1_000
"""So many jobs that are over are in memory."""

MOST_LINES: Final = 500
MOST_LINE_BYTES: Final = 256 << 10
"""Of the last lines of a job's log, that are archived."""

T = TypeVar("T")


class Dispatcher:
    """Made into a Ray actor by `clusters.start`. All methods are coroutines."""

    def __init__(self, registry: str) -> None:
        """`registry`: an fsspec URL or path that outlives this process."""
        self._location = registry
        self._registry = Registry(registry)
        self._session = Session()
        self._over: dict[str, JobRecord] = {}
        """The jobs that ended last, in that order."""
        self._ending: dict[str, JobRecord] = {}
        """Those of which that is still to be archived."""
        self._coordinators: dict[str, Any] = {}
        self._last_words: dict[str, tuple[JobOutcome, JobView | None]] = {}
        """What coordinators said in the end, until that is archived."""
        self._directories: dict[str, str | None] = {}
        """Where jobs leave the savepoint for those that take their place, by these."""
        self._taking: set[str] = set()
        """Jobs that are about to take the place of others, and not in the session yet."""
        self._closed = False
        self._changed = asyncio.Condition()
        """Told after each event."""
        self._actions: asyncio.Queue[Action] = asyncio.Queue()
        self._io = ThreadPoolExecutor(1, "strom-registry")
        self._tasks: set[asyncio.Task[None]] = set()
        history, left = _read(self._registry)
        self._known = set(history)
        """The ids of all jobs that are over."""
        self._began_ms = _now_ms()
        self._do(self._session.recover(left, self._began_ms, _slot_groups()))
        self._spawn(self._carry_out())
        self._spawn(self._watch())
        self._spawn(self._recall(history[-MOST_HISTORY:]))

    # --- programs --------------------------------------------------------------------------------

    async def submit(self, record: JobRecord, submission: bytes) -> None:
        """Take a job, which is durable when this returns. Again for the same is nothing new."""
        if self._known_record(record.job_id) is not None or record.job_id in self._known:
            return
        await self._in_io(lambda: self._registry.submit(record, submission))
        self._do(self._session.submit(record, _now_ms()))

    async def take_place(
        self, record: JobRecord, submission: bytes, directory: str | None
    ) -> str | None:
        """Stop the job that a new one `follows` with a savepoint, below `directory`, and start the
        new one from that; again for a known one is nothing new. Returns the savepoint; None for a
        job that takes nobody's place. ConfigurationError if that cannot be, JobFailedError if there
        was no savepoint: the other one goes on, or ended by itself."""
        assert record.follows is not None
        job_id = record.job_id
        new = self._known_record(job_id) is None and job_id not in self._known
        if new and job_id not in self._taking:
            self._session.check_replaced(record.follows, record)
            self._taking.add(job_id)
            try:
                await self._in_io(lambda: self._registry.submit(record, submission))
                self._directories[job_id] = directory
                try:
                    self._do(self._session.take_place(record, _now_ms()))
                except ConfigurationError:
                    del self._directories[job_id]
                    await self._in_io(lambda: self._registry.forget(job_id))
                    raise
            finally:
                self._taking.discard(job_id)
        while True:
            known = self._session.job(job_id)
            decided = known is not None and (known.claims is not None or known.follows is None)
            if decided or (known is None and job_id not in self._taking):
                break
            await self._next_change(1.0)
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
            self._session.heard(job_id, _now_ms())
            record = await self._found(job_id)
            why = self._session.waits_for(job_id) or ""
            left = deadline - time.monotonic()
            if record.phase in (Phase.RUNNING, Phase.ENDED) or left <= 0:
                return record, why
            if record.phase is Phase.QUEUED and why != said:
                return record, why
            await self._next_change(min(left, 1.0))

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
            await self._next_change(min(wait, 1.0))

    async def cancel(self, job_id: str) -> None:
        """Of a job that is over this changes nothing. ConfigurationError if there is none."""
        if self._session.job(job_id) is None:
            await self._found(job_id)
            return
        self._do(self._session.cancel(job_id, _now_ms()))

    async def jobs(self, ended: int = 100) -> list[tuple[JobRecord, str]]:
        """All jobs that are not over, in the order of their submission, and the last that are; each
        with what it waits for."""
        now = [(r, self._session.waits_for(r.job_id) or "") for r in self._session.jobs]
        over = [*self._over.values(), *self._ending.values()][-ended:] if ended else []
        return [*now, *((record, "") for record in reversed(over))]

    async def job(self, job_id: str) -> tuple[JobRecord, str]:
        """ConfigurationError if there is none."""
        return await self._found(job_id), self._session.waits_for(job_id) or ""

    async def archived(self, job_id: str) -> dict[str, Any] | None:
        """What the registry keeps of a job that is over."""
        return await self._in_io(lambda: self._registry.ended(job_id))

    async def outcome(self, job_id: str) -> JobOutcome | None:
        """How a job ended, once the registry keeps that."""
        return await self._in_io(lambda: _kept_outcome(self._registry, job_id))

    async def last_view(self, job_id: str) -> dict[str, Any] | None:
        """What the registry keeps of all that was known of a job in the end."""
        return await self._in_io(lambda: self._registry.view(job_id))

    async def last_lines(self, job_id: str) -> list[dict[str, Any]]:
        """What the registry keeps of the log of a job that is over; none: it keeps none."""
        return await self._in_io(lambda: self._registry.lines(job_id))

    async def about(self) -> dict[str, Any]:
        """Of itself: registry, since when, and how many jobs."""
        jobs = self._session.jobs
        return {
            "registry": self._location,
            "since_ms": self._began_ms,
            "queued": sum(job.phase is Phase.QUEUED for job in jobs),
            "running": sum(job.phase is not Phase.QUEUED for job in jobs),
            "ended": len(self._known),
        }

    async def close(self) -> None:
        """Decide nothing more, and return when the registry has all that was decided."""
        self._do(self._session.close())
        self._closed = True
        await self._actions.join()
        for task in list(self._tasks):
            task.cancel()
        self._io.shutdown()

    # --- what the session decides ---------------------------------------------------------------

    def _do(self, actions: list[Action]) -> None:
        for action in () if self._closed else actions:
            if isinstance(action, Store) and action.record.phase is Phase.ENDED:
                self._ending[action.record.job_id] = action.record
            self._actions.put_nowait(action)
        self._spawn(self._tell())

    async def _carry_out(self) -> None:
        while True:
            action = await self._actions.get()
            try:
                await self._carry(action)
            except Exception:  # what is wrong with one job is not to end all others
                log.exception("%s cannot be carried out", action)
            self._actions.task_done()

    async def _carry(self, action: Action) -> None:
        match action:
            case Store(record):
                await self._store(record)
            case Start(record):
                await self._store(record)
                self._spawn(self._start(record))
            case Find(record):
                self._spawn(self._find(record))
            case Follow(record):
                self._spawn(self._follow(record))
            case Cancel(record):
                self._spawn(self._cancel(record))
            case Release(group):
                await asyncio.to_thread(_release, group)
            case Stop(record):
                self._spawn(self._stop(record))
            case Settle(record):
                self._spawn(self._settle(record))

    async def _store(self, record: JobRecord) -> None:
        """Try until it is done: what comes behind relies on it."""
        over = record.phase is Phase.ENDED
        outcome, view = self._last_words.pop(record.job_id, (None, None)) if over else (None, None)
        more = _last_figures(outcome)
        if view is not None:
            record = replace(record, tasks=dict(Counter(task["status"] for task in view["tasks"])))

        parts = () if outcome is None else outcome.accumulators
        writes = [lambda: self._registry.store(record)]
        if over:
            writes = [
                lambda: self._registry.archive(record, more, view, parts),
                lambda: self._registry.archive(record, {}, view),
                lambda: self._registry.archive(record, {}),
            ]
        await self._until_done(record.job_id, writes)
        if over:
            self._coordinators.pop(record.job_id, None)
            del self._ending[record.job_id]
            self._remember(record)
            await self._tell()
            self._spawn(self._keep_lines(record.job_id))

    async def _until_done(self, job_id: str, writes: list[Callable[[], None]]) -> None:
        """Try again as long as the registry cannot be written. What cannot be written down at all,
        as users may have put anything into it, is left out: the next one is tried."""
        for write in writes:
            while True:
                try:
                    await self._in_io(write)
                except StromError as error:
                    log.error("job %s: the registry does not take it: %s", job_id, error)
                    await asyncio.sleep(RETRY_S)
                except Exception:
                    log.exception("job %s: what is known of it cannot be kept", job_id)
                    break
                else:
                    return

    async def _keep_lines(self, job_id: str) -> None:
        """The last lines of its log, too: files of nodes go with these. Nobody waits for it."""
        lines = await asyncio.to_thread(_last_lines, job_id)
        if lines:
            with suppress(StromError):
                await self._in_io(lambda: self._registry.keep_lines(job_id, lines))

    async def _start(self, record: JobRecord) -> None:
        job_id, run = record.job_id, record.run
        try:
            data = await self._in_io(lambda: self._registry.submission(job_id))
            submission: Submission = pickle.loads(data)  # whoever writes there may run anything
            if record.claims is not None:
                submission = replace(submission, claimed=record.claims)
            if run > 0:
                await asyncio.to_thread(withdraw, job_id)
            slots = None if record.group is None else KeptSlots(record.group, DISPATCHER)
            farewell = partial(leave_word, self._location, job_id, run)
            coordinator = make_coordinator(submission, run * ATTEMPTS_OF_A_RUN, slots, farewell)
            # Before anything can come between: nobody else would say so.
            detached = None if record.attached else coordinator.detach.remote()
            await coordinator.start.remote()
            if detached is not None:
                await detached
        except Exception as error:
            await asyncio.to_thread(withdraw, job_id)
            cause = getattr(error, "cause", None)
            known = error if isinstance(error, StromError) else cause
            for_good = isinstance(known, StromError) or not isinstance(error, RayError | ValueError)
            why = f"the coordinator could not start: {described(known or error)}"
            self._do(self._session.start_failed(job_id, run, why, for_good, _now_ms()))
        else:
            self._coordinators[job_id] = coordinator
            self._do(self._session.started(job_id, run, _now_ms()))

    async def _find(self, record: JobRecord) -> None:
        try:
            coordinator = ray.get_actor(coordinator_name(record.job_id), namespace=NAMESPACE)
        except ValueError:
            coordinator = None
        else:
            self._coordinators[record.job_id] = coordinator
            if not record.attached:  # whoever started it may have died before it said so
                with suppress(RayError):
                    await coordinator.detach.remote()
        if coordinator is None and await self._heard_of_its_end(record):
            return
        alive = coordinator is not None
        self._do(self._session.found(record.job_id, record.run, alive, _now_ms()))

    async def _gone(self, record: JobRecord, why: str) -> None:
        """Its coordinator: the job may have been over before."""
        if not await self._heard_of_its_end(record):
            self._do(self._session.lost(record.job_id, record.run, why, _now_ms()))

    async def _heard_of_its_end(self, record: JobRecord) -> bool:
        """By what its coordinator left in the registry."""
        job_id, run = record.job_id, record.run
        while True:
            try:
                said = await self._in_io(lambda: self._registry.last_word(job_id, run))
            except StromError as error:
                log.warning("job %s: whether it is over: %s", job_id, error)
                await asyncio.sleep(RETRY_S)
            else:
                break
        if said is None:
            return False
        status, why = said
        self._do(self._session.ended(job_id, run, JobStatus(status), why, _now_ms()))
        return True

    async def _follow(self, record: JobRecord) -> None:
        job_id, run = record.job_id, record.run
        known = 0
        while True:
            try:
                said: Followed = await self._coordinators[job_id].followed.remote(ASK_S, known)
            except ActorUnavailableError:
                await asyncio.sleep(TICK_S)
            except ActorDiedError as error:
                why = str(error).strip().splitlines()[-1] if str(error) else "it died"
                await self._gone(record, why)
                return
            except RayError as error:  # what it said got lost on the way
                log.warning("job %s: %s", job_id, described(error))
                await asyncio.sleep(TICK_S)
            else:
                known += len(said.savepoints)
                self._do(self._session.saved(job_id, run, said.savepoints))
                if said.outcome is not None:
                    self._last_words[job_id] = said.outcome, said.view
                    status, error_text = JobStatus(said.outcome.status), said.outcome.error
                    self._do(self._session.ended(job_id, run, status, error_text, _now_ms()))
                    return

    async def _cancel(self, record: JobRecord) -> None:
        while self._session.job(record.job_id) is not None:
            try:
                await self._coordinators[record.job_id].cancel.remote()
            except ActorUnavailableError:
                await asyncio.sleep(TICK_S)
            except RayError as error:  # it is gone: who follows it hears that, too
                log.info("job %s: its coordinator is not told to cancel: %s", record.job_id, error)
                return
            else:
                return

    async def _stop(self, record: JobRecord) -> None:
        """Of the job that this one follows."""
        job_id, old = record.job_id, str(record.follows)
        directory = self._directories.pop(job_id, None)
        try:
            path, why = await self._coordinators[old].savepoint.remote(directory, "halt")
        except (KeyError, RayError) as error:
            path, why = None, f"its coordinator is gone ({described(error)})"
        if path is not None:
            self._do(self._session.stopped(job_id, path, _now_ms()))
            return
        await asyncio.sleep(TICK_S)  # if that is because it is over, that is heard meanwhile
        self._do(self._session.stop_failed(job_id, str(why), _now_ms()))

    async def _settle(self, record: JobRecord) -> None:
        """A former dispatcher asked for the stop, and did not hear of it."""

        def found() -> str | None:
            kept = self._registry.ended(str(record.follows))
            return None if kept is None else state_of_stopped(JobRecord.from_json(kept["record"]))

        while True:
            try:
                path = await self._in_io(found)
            except StromError as error:
                log.warning("job %s: what it is to start from: %s", record.job_id, error)
                await asyncio.sleep(RETRY_S)
            else:
                break
        if path is not None:
            self._do(self._session.stopped(record.job_id, path, _now_ms()))
            return
        why = "that is over; where its savepoint is, if it left one, `strom info` of it tells"
        self._do(self._session.not_stopped(record.job_id, why, _now_ms()))

    async def _watch(self) -> None:
        while True:
            try:
                self._do(self._session.capacity(ray.cluster_resources(), _now_ms()))
            except Exception:
                log.exception("what the cluster has could not be found out")
            await asyncio.sleep(TICK_S)

    # --- account ---------------------------------------------------------------------------------

    async def _recall(self, job_ids: list[str]) -> None:
        """Read what a former dispatcher archived, between other things: `jobs` shows it then."""
        found = []
        for job_id in job_ids:
            try:
                kept = await self._in_io(lambda job_id=job_id: self._registry.ended(job_id))  # type: ignore[misc]
            except StromError as error:
                log.warning("job %s of the history cannot be read: %s", job_id, error)
                continue
            if kept is not None:
                found.append(JobRecord.from_json(kept["record"]))
        found.sort(key=lambda record: record.ended_ms or 0)
        self._over = {record.job_id: record for record in found} | self._over

    async def _found(self, job_id: str) -> JobRecord:
        record = self._known_record(job_id)
        if record is None and job_id in self._known:
            found = await self._in_io(lambda: self._registry.ended(job_id))
            record = None if found is None else JobRecord.from_json(found["record"])
        if record is None:
            raise ConfigurationError(f"this session has no job '{job_id}'")
        return record

    def _known_record(self, job_id: str) -> JobRecord | None:
        for known in (self._ending, self._over):
            if job_id in known:
                return known[job_id]
        return self._session.job(job_id)

    def _remember(self, record: JobRecord) -> None:
        self._known.add(record.job_id)
        self._over[record.job_id] = record
        while len(self._over) > MOST_HISTORY:
            del self._over[next(iter(self._over))]

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _next_change(self, timeout: float) -> None:
        async with self._changed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout)

    async def _in_io(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._io, call)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the dispatcher broke off what it did: %s", described(error), exc_info=error)


def _slot_groups() -> list[SlotGroup]:
    """Those of the session, whoever has them."""
    table: dict[str, Any] = ray.util.placement_group_table()
    return [
        SlotGroup(one["name"], "", {})
        for one in table.values()
        if one["name"].startswith(PREFIX) and one["state"] != "REMOVED"
    ]


def _release(group: str) -> None:
    with suppress(ValueError, RayError):  # it is not there
        remove_placement_group(get_placement_group(group))


def _read(registry: Registry) -> tuple[list[str], list[JobRecord]]:
    """The jobs that are over, by time, and the others. Again until it can be read: an actor whose
    constructor fails is not made again."""
    while True:
        try:
            return registry.history(by_time=True), list(registry.records())
        except StromError as error:
            log.error("the registry cannot be read: %s", error)
            time.sleep(RETRY_S)


def _last_figures(outcome: JobOutcome | None) -> dict[str, Any]:
    """What is archived of a job beside its record."""
    if outcome is None:
        return {}
    return {
        "metrics": outcome.metrics,
        "net_runtime_ms": outcome.net_runtime_ms,
        "checkpoints": outcome.checkpoints,
        "restarts": outcome.restarts,
    }


def _kept_outcome(registry: Registry, job_id: str) -> JobOutcome | None:
    kept = registry.ended(job_id)
    if kept is None:
        return None
    record = JobRecord.from_json(kept["record"])
    return JobOutcome(
        record.job_id,
        record.name,
        record.status,
        record.error,
        kept.get("net_runtime_ms", 0.0),
        kept.get("checkpoints", 0),
        kept.get("restarts", 0),
        kept.get("metrics", {"state": record.status.value}),
        registry.accumulators(job_id),
    )


def _last_lines(job_id: str) -> list[dict[str, Any]]:
    """Of what the job said; less if nodes do not answer, or it said much."""
    try:
        lines = JobLogs(job_id).tail(MOST_LINES).entries
    except Exception as error:  # the job has ended all the same
        log.warning("job %s: its last lines are not archived: %s", job_id, described(error))
        return []
    room, kept = MOST_LINE_BYTES, len(lines)
    while kept and (room := room - len(json.dumps(lines[kept - 1]))) >= 0:
        kept -= 1
    return lines[kept:]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
