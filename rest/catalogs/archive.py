"""The catalog of jobs that are over: a registry, without Ray and without a dispatcher."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final, Literal, NoReturn

from ...checkpoint.savepoints import Stop
from ...checkpoint.secrets import shown_url
from ...cluster.records import JobRecord
from ...core.errors import ConfigurationError
from ...engine.hosts.job_view import JobView
from ...logs.records import Entry
from .caches import KeptViews, SharedAnswers
from .catalog import (
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Rescaled,
    Slots,
    Unavailable,
)
from .kept_jobs import KeptJobs, summary_of_record

LOOK_S: Final = 5.0
"""How often the folder is looked at."""


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
        self._refuse(job_id)

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        self._refuse(job_id)

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        self._refuse(job_id)

    def rescale_live(
        self, job_id: str, parallelism: int | Mapping[str, int], balance: bool = False
    ) -> Rescaled:
        self._refuse(job_id)

    def _refuse(self, job_id: str) -> NoReturn:
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
