"""The catalog of jobs that are over: a registry, without Ray and without a dispatcher."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar, cast

from ...checkpoint.secrets import shown_url
from ...cluster.records import JobRecord
from ...cluster.registry import Registry
from ...core.errors import ConfigurationError, CorruptCheckpointError, StromError
from ...core.redaction import redacted
from ...core.texts import encodable
from ...engine.hosts.job_view import VERSION, JobView
from ...logs.records import Entry
from .caches import KeptViews, SharedAnswers
from .catalog import (
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Slots,
    Stop,
    Unavailable,
    view_without_run,
)

log = logging.getLogger("strom")

LOOK_S: Final = 5.0
"""How often the folder is looked at."""

MOST_READERS: Final = 16

TURN_S: Final = 5.0
"""How long one waits for others to read."""

T = TypeVar("T")


def summary_of_record(record: JobRecord, waits_for: str = "") -> JobSummary:
    """What the dispatcher knows of a job."""
    status = str(record.status)
    if record.cancelling and record.ended_ms is None:
        status = "CANCELLING"
    return JobSummary(
        record.job_id,
        encodable(record.name),
        status,
        record.submitted_ms,
        record.ended_ms,
        record.tasks,
        waits_for,
    )


class KeptJobs:
    """The views that a registry has, for the archive and for sessions."""

    def __init__(self, location: str) -> None:
        """`location`: of the registry. ConfigurationError, CheckpointError."""
        self._location = location
        self._registry = Registry(location, write=False)
        self._lock = threading.Lock()
        """A registry is used by one thread at a time."""

    def exists(self) -> bool:
        return self._ask(self._registry.exists)

    def ids(self) -> list[str]:
        return self._ask(self._registry.history)

    def record(self, job_id: str) -> JobRecord | None:
        """None: there is none, or it is damaged."""
        try:
            return self._ask(lambda: self._registry.ended_record(job_id))
        except CorruptCheckpointError as error:
            log.warning("job %s of the archive cannot be shown: %s", job_id, error)
            return None

    def records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """Those of many jobs, without damaged ones: read side by side, as each may take a while."""
        readers = min(MOST_READERS, len(job_ids))
        if readers < 2:
            found = {job_id: self.record(job_id) for job_id in job_ids}
            return {job_id: record for job_id, record in found.items() if record is not None}

        def read(first: int) -> dict[str, JobRecord]:
            mine = KeptJobs(self._location)
            found = {job_id: mine.record(job_id) for job_id in job_ids[first::readers]}
            return {job_id: record for job_id, record in found.items() if record is not None}

        whole: dict[str, JobRecord] = {}
        with ThreadPoolExecutor(readers, "strom-archive") as pool:
            for part in pool.map(read, range(readers)):
                whole |= part
        return whole

    def view(self, record: JobRecord) -> JobView:
        """Of a job that is over: the last one, or what the record says of a job that has none."""
        found = self._ask(lambda: self._registry.view(record.job_id))
        if found is None or found.get("version") != VERSION:
            summary = summary_of_record(record)
            return view_without_run(summary, record.error, record.ended_ms or record.submitted_ms)
        return ended_view(found, record)

    def lines(self, job_id: str) -> list[Entry]:
        """The last of the log of a job that is over."""
        return self._ask(lambda: self._registry.lines(job_id))

    def submission(self, job_id: str) -> bytes:
        """What a job that is not over was started from."""
        return self._ask(lambda: self._registry.submission(job_id))

    def _ask(self, ask: Callable[[], T]) -> T:
        if not self._lock.acquire(timeout=TURN_S):
            raise Unavailable("the storage of the registry is slow: ask again")
        try:
            return ask()
        except CorruptCheckpointError:
            raise
        except StromError as error:
            raise Unavailable(f"the registry cannot be read: {error}") from None
        finally:
            self._lock.release()


def ended_view(found: Mapping[str, Any], record: JobRecord) -> JobView:
    """The account's word is the last one on how a job ended."""
    view = dict(found)
    view["status"] = str(record.status)
    if view["error"] is None and record.error is not None:
        view["error"] = redacted(record.error)
    if record.ended_ms is not None:
        view["now_ms"] = record.ended_ms
    return cast(JobView, view)


class Archive:
    """A `JobCatalog`. Thousands of jobs: each record is read once, and views when asked for."""

    kind: Literal["session", "job", "archive"] = "archive"

    def __init__(self, location: str) -> None:
        """`location`: an fsspec URL or path. ConfigurationError if there is no registry."""
        self._kept = KeptJobs(location)
        if not self._kept.exists():
            raise ConfigurationError(
                f"there is no registry in '{shown_url(location)}': `strom cluster status` tells "
                "that of a session"
            )
        self._records: dict[str, JobRecord] = {}
        self._damaged: set[str] = set()
        self._looked = 0.0
        self._looks: SharedAnswers[Mapping[str, JobRecord]] = SharedAnswers()
        self._views = KeptViews()

    def jobs(self) -> list[JobSummary]:
        records = sorted(self._look().values(), key=lambda one: -(one.ended_ms or 0))
        return [summary_of_record(record) for record in records]

    def job(self, job_id: str) -> JobSummary:
        return summary_of_record(self._record(job_id))

    def view(self, job_id: str) -> JobView:
        record = self._record(job_id)
        return self._views.get(job_id, True, lambda: self._kept.view(record))

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        return self.job(job_id), self.view(job_id)

    def views_of(self, job_ids: Collection[str] | None = None) -> list[JobView]:
        found = []
        for job_id in dict.fromkeys(job_ids or ()):
            with suppress(Unavailable):
                found.append(self.view(job_id))
        return found

    def slots(self) -> Slots:
        return Slots()

    def nodes(self) -> list[Node]:
        return []

    def lines(self, job_id: str) -> list[Entry]:
        return self._kept.lines(job_id)

    def cancel(self, job_id: str) -> None:
        self._record(job_id)
        raise Refused(f"job '{job_id}' is over: this is an archive")

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        self._record(job_id)
        raise Refused(f"job '{job_id}' is over: this is an archive")

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        self._record(job_id)
        raise Refused(f"job '{job_id}' is over: this is an archive")

    def _record(self, job_id: str) -> JobRecord:
        record = self._records.get(job_id) or self._look().get(job_id)
        if record is None:
            raise NoSuchJob(f"the archive has no job '{job_id}'")
        return record

    def _look(self) -> Mapping[str, JobRecord]:
        """All records; those that appeared are read."""
        found = self._looks.get("all", self._read)
        self._looks.forget("all")
        return found

    def _read(self) -> Mapping[str, JobRecord]:
        if self._looked and time.monotonic() - self._looked < LOOK_S:
            return self._records
        ids = self._kept.ids()
        known = {job_id: self._records[job_id] for job_id in ids if job_id in self._records}
        new = [one for one in ids if one not in known and one not in self._damaged]
        read = self._kept.records(new)
        self._damaged.update(set(new) - read.keys())
        known |= read
        self._records = known
        self._looked = time.monotonic()
        return known
