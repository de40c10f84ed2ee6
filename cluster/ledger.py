"""The account of a dispatcher: what its registry takes and tells, which jobs are over, and which of
these it keeps.

A registry may be slow, and away for a while. All calls of it go through one thread, one after the
other, so that what was said last is what it has; what must be in it is tried again until it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..core.clock import Clock
from ..core.errors import CheckpointFormatError, CorruptCheckpointError, StromError
from ..core.failure_text import described
from ..engine.hosts.job_logs import JobLogs
from ..engine.hosts.job_outcome import JobOutcome
from ..engine.hosts.job_view import JobView
from .records import JobRecord
from .registry import Registry

log = logging.getLogger("strom")

RETRY_S: Final = 5.0
"""Until the registry is tried again, when it could not be read or written."""

MOST_HISTORY: Final = 1_000
"""So many jobs that are over are in memory."""

RETAINED_JOBS: Final = 10_000
"""So many jobs that are over are kept, unless somebody says otherwise."""

RECENT_S: Final = 600.0
"""Whoever ended within that is kept, however many there are: clients may still ask how, and who
submits a job again, as nobody answered, is not to have it run twice."""

REMOVAL_S: Final = 60.0
"""How often it is looked for jobs that are kept no more."""

MOST_LINES: Final = 500
MOST_LINE_BYTES: Final = 256 << 10
"""Of the last lines of a job's log, that are archived."""

READERS: Final = 2
"""Threads that read logs."""

T = TypeVar("T")


class Ledger:
    """Made and used on the dispatcher's loop. Jobs that are not over are the session's; here they
    are only written down."""

    def __init__(self, location: str, clock: Clock, retained: int = RETAINED_JOBS) -> None:
        """Waits until the registry at `location` can be read. `retained`: how many jobs that are
        over are kept. ConfigurationError, CheckpointError as of `Registry`."""
        self.location = location
        self.retained = retained
        self._clock = clock
        self._registry = Registry(location)
        self._io = ThreadPoolExecutor(1, "strom-registry")
        self._reading = ThreadPoolExecutor(READERS, "strom-last-lines")
        """Nodes that do not answer hold up no more than this."""
        history, self.left = _read(self._registry)
        """The jobs that a former dispatcher has left, none of which is over."""
        self._archived: dict[str, int] = dict.fromkeys(history, clock.now_ms())
        """All jobs that the registry keeps and that are over, in the order of their ends, with when
        they ended (ms), or were found here."""
        self._over: dict[str, JobRecord] = {}
        """The jobs that ended last, in that order."""
        self._ending: dict[str, JobRecord] = {}
        """Those that are over, and still to be archived."""

    def close(self) -> None:
        """Return when the registry has all that it was given."""
        self._reading.shutdown(wait=False, cancel_futures=True)
        self._io.shutdown()

    # --- which jobs are over ---------------------------------------------------------------------

    @property
    def archived(self) -> int:
        """How many the registry keeps."""
        return len(self._archived)

    def is_over(self, job_id: str) -> bool:
        return job_id in self._ending or job_id in self._archived

    def last(self, number: int) -> list[JobRecord]:
        """Those that ended last, the last one first."""
        over = [*self._over.values(), *self._ending.values()]
        return over[::-1][:number]

    async def ended(self, job_id: str) -> JobRecord | None:
        """None: it is not over, or not kept."""
        for known in (self._ending, self._over):
            if job_id in known:
                return known[job_id]
        return await self._kept(job_id) if job_id in self._archived else None

    async def recall(self) -> None:
        """Read what a former dispatcher archived, between other things: `last` shows it then."""
        found = []
        for job_id in list(self._archived)[-MOST_HISTORY:]:
            try:
                kept = await self._kept(job_id)
            except StromError as error:
                log.warning("job %s of the history cannot be read: %s", job_id, error)
            else:
                found += [] if kept is None else [kept]
        found.sort(key=lambda record: record.ended_ms or 0)
        self._over = {record.job_id: record for record in found} | self._over

    async def _kept(self, job_id: str) -> JobRecord | None:
        return await self.ask(lambda registry: registry.ended_record(job_id))

    # --- what the registry is asked --------------------------------------------------------------

    async def ask(self, call: Callable[[Registry], T]) -> T:
        """What the registry answers, or raises."""
        return await asyncio.get_running_loop().run_in_executor(self._io, call, self._registry)

    async def insist(self, job_id: str, call: Callable[[Registry], T]) -> T:
        """What the registry answers about a job, as soon as it does. CorruptCheckpointError,
        CheckpointFormatError for what it has and nobody can read: that stays so."""
        while True:
            try:
                return await self.ask(call)
            except (CorruptCheckpointError, CheckpointFormatError):
                raise
            except StromError as error:
                log.error("job %s: the registry does not answer: %s", job_id, error)
                await asyncio.sleep(RETRY_S)

    async def outcome(self, job_id: str) -> JobOutcome | None:
        """How a job ended, once the registry keeps that."""
        return await self.ask(lambda registry: _kept_outcome(registry, job_id))

    # --- what it is given ------------------------------------------------------------------------

    async def submit(self, record: JobRecord, submission: bytes) -> None:
        """A new job. CheckpointError if the registry does not take it."""
        await self.ask(lambda registry: registry.submit(record, submission))

    async def store(self, record: JobRecord) -> None:
        """What is known of a job now that is not over. Tried until it is done: what comes behind
        relies on it."""
        await self._written(record.job_id, [lambda registry: registry.store(record)])

    def ends(self, record: JobRecord) -> None:
        """The job is over, as everybody is told from now on; it is archived next."""
        self._ending[record.job_id] = record

    async def archive(
        self, record: JobRecord, outcome: JobOutcome | None, view: JobView | None
    ) -> None:
        """A job that `ends`, with what its coordinator said in the end, if it did. Tried until it
        is done."""
        more = {} if outcome is None else outcome.figures
        parts = () if outcome is None else outcome.accumulators
        if view is not None:
            record = replace(record, tasks=dict(Counter(task["status"] for task in view["tasks"])))
        await self._written(
            record.job_id,
            [
                lambda registry: registry.archive(record, more, view, parts),
                lambda registry: registry.archive(record, {}, view),
                lambda registry: registry.archive(record, {}),
            ],
        )
        del self._ending[record.job_id]
        self._archived[record.job_id] = self._clock.now_ms()
        self._over[record.job_id] = record
        while len(self._over) > MOST_HISTORY:
            del self._over[next(iter(self._over))]

    async def keep_lines(self, job_id: str) -> None:
        """The last lines of the log of a job that is archived, too: files of nodes go with these.
        Nobody waits for it."""
        loop = asyncio.get_running_loop()
        lines = await loop.run_in_executor(self._reading, _last_lines, job_id)
        if lines and job_id in self._archived:
            with suppress(StromError):
                await self.ask(lambda registry: registry.keep_lines(job_id, lines))

    async def _written(self, job_id: str, writes: list[Callable[[Registry], None]]) -> None:
        """What cannot be written down at all, as users may have put anything into it, is left out:
        the next one is tried."""
        for write in writes:
            try:
                await self.insist(job_id, write)
            except Exception:
                log.exception("job %s: what is known of it cannot be kept", job_id)
            else:
                return

    # --- what it keeps no more -------------------------------------------------------------------

    async def remove_old(self) -> None:
        """For ever: remove the jobs that ended first, beyond those that are retained, between other
        things. What cannot be removed now may be later."""
        while True:
            try:
                for job_id in self._too_many():
                    await self._remove(job_id)
            except StromError as error:
                log.warning("what is old in the registry cannot be removed: %s", error)
            await asyncio.sleep(REMOVAL_S)

    def _too_many(self) -> list[str]:
        """The first ones to go."""
        now = self._clock.now_ms()
        beyond = list(self._archived.items())[: max(0, len(self._archived) - self.retained)]
        return [job_id for job_id, ended_ms in beyond if now - ended_ms >= RECENT_S * 1000]

    async def _remove(self, job_id: str) -> None:
        await self.ask(lambda registry: registry.remove(job_id))
        del self._archived[job_id]
        self._over.pop(job_id, None)


def _read(registry: Registry) -> tuple[list[str], list[JobRecord]]:
    """The jobs that are over, by time, and the others. Again until it can be read: an actor whose
    constructor fails is not made again."""
    while True:
        try:
            return registry.history(by_time=True), list(registry.records())
        except StromError as error:
            log.error("the registry cannot be read: %s", error)
            time.sleep(RETRY_S)


def _kept_outcome(registry: Registry, job_id: str) -> JobOutcome | None:
    kept, record = registry.ended(job_id), registry.ended_record(job_id)
    if kept is None or record is None:
        return None
    parts = registry.accumulators(job_id)
    return JobOutcome.kept(job_id, record.name, record.status, record.error, kept, parts)


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
