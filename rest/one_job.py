"""The catalog of one running job: of this program, or of a cluster that has no dispatcher."""

from __future__ import annotations

import os
import socket
import threading
from datetime import timedelta
from typing import Any, Final, Literal, Protocol

import psutil

from ..core.errors import JobFailedError, StromError, TransportError
from ..engine.hosts.job_view import JobView
from ..logs.records import Entry
from .catalog import (
    ENDED,
    NO_SESSION,
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Slots,
    Stop,
    Unavailable,
    summary_of,
)

SAVEPOINT_S: Final = 24 * 3600.0
"""How long a savepoint is waited for; the checkpoint timeout ends it before."""


class Viewed(Protocol):
    """What a job's client has beside `JobClient`: `LocalJob`, `RayJobClient`."""

    def view(self) -> JobView: ...

    def cancel(self, timeout: timedelta | None = None) -> Any: ...

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Any: ...

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> Any: ...


class OneJob:
    """A `JobCatalog`."""

    kind: Literal["session", "job", "archive"] = "job"

    def __init__(self, client: Viewed) -> None:
        self._client = client
        self._last: JobView | None = None
        """The view when the job was over."""

    def jobs(self) -> list[JobSummary]:
        return [summary_of(self._view())]

    def job(self, job_id: str) -> JobSummary:
        return summary_of(self.view(job_id))

    def view(self, job_id: str) -> JobView:
        found = self._view()
        if found["id"] != job_id:
            raise NoSuchJob(f"there is no job '{job_id}' here: this is job '{found['id']}'")
        return found

    def both(self, job_id: str) -> tuple[JobSummary, JobView]:
        view = self.view(job_id)
        return summary_of(view), view

    def slots(self) -> Slots:
        return Slots(total=os.cpu_count() or 1, free=0)

    def nodes(self) -> list[Node]:
        memory = psutil.virtual_memory().total
        name = socket.gethostname()
        return [Node(name, name, float(os.cpu_count() or 1), memory)]

    def lines(self, job_id: str) -> list[Entry]:
        return []

    def cancel(self, job_id: str) -> None:
        if self.view(job_id)["status"] not in ENDED:
            # It waits for the end of the job, which a function of the user may put off.
            threading.Thread(
                target=self._client.cancel, name="strom-rest-cancel", daemon=True
            ).start()

    def savepoint(self, job_id: str, directory: str | None, stop: Stop | None) -> str:
        self.view(job_id)
        if stop is None:
            taken = self._client.trigger_savepoint(directory)
        else:
            taken = self._client.stop_with_savepoint(stop == "drain", directory)
        try:
            path: str = taken.result(SAVEPOINT_S)
        except StromError as error:
            raise Refused(str(error)) from None
        return path

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        self.view(job_id)
        raise Refused(NO_SESSION)

    def _view(self) -> JobView:
        if self._last is not None:
            return self._last
        try:
            found = self._client.view()
        except (JobFailedError, TransportError) as error:
            raise Unavailable(str(error)) from None
        if found["status"] in ENDED:
            self._last = found
        return found
