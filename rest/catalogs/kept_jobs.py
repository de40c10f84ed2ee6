"""What a registry keeps of jobs that are over, read for the archive and for sessions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar, cast

from ...cluster.records import JobRecord
from ...cluster.registry import Registry
from ...core.errors import CorruptCheckpointError, StromError
from ...core.redaction import redacted
from ...core.texts import encodable
from ...engine.hosts.job_view import VERSION, JobView
from ...logs.records import Entry
from .catalog import JobSummary, Unavailable, view_without_run

log = logging.getLogger("strom")

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
    """From any thread."""

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
            return self._records(job_ids)

        def read(first: int) -> dict[str, JobRecord]:
            return KeptJobs(self._location)._records(job_ids[first::readers])

        whole: dict[str, JobRecord] = {}
        with ThreadPoolExecutor(readers, "strom-archive") as pool:
            for part in pool.map(read, range(readers)):
                whole |= part
        return whole

    def _records(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """One after the other."""
        found = {job_id: self.record(job_id) for job_id in job_ids}
        return {job_id: record for job_id, record in found.items() if record is not None}

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
