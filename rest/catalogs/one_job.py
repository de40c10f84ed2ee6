"""The catalog of one running job: of this program, or of a cluster that has no dispatcher."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, Protocol

import psutil

from ...checkpoint.savepoints import Stop
from ...core.errors import JobFailedError, StromError, TransportError
from ...core.failure_text import described
from ...engine.hosts.job_view import JobView
from ...logs.records import Entry
from .caches import KeptViews
from .catalog import (
    ENDED,
    NO_SESSION,
    JobSummary,
    Moved,
    Node,
    NoSuchJob,
    Refused,
    Rescaled,
    Slots,
    Unavailable,
    summary_of,
    told,
)

log = logging.getLogger("strom")

SAVEPOINT_S: Final = 24 * 3600.0
"""How long a savepoint is waited for; the checkpoint timeout ends it before."""

END: Final = timedelta(seconds=5)
"""How long the end of the job is waited for in one go."""

AGAIN_S: Final = 1.0


class Viewed(Protocol):
    """What a job's client has beside `JobClient`: `LocalJob`, `RayJobClient`. One whose view is
    gone some time after the job has `last_view`, too."""

    def get_job_id(self) -> Any: ...

    def view(self) -> JobView: ...

    def cancel(self, timeout: timedelta | None = None) -> Any: ...

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> Any: ...

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool = False, savepoint_directory: str | None = None
    ) -> Any: ...

    def rescale(self, parallelism: int | Mapping[str, int], *, balance: bool = False) -> Any: ...


class OneJob:
    """A `JobCatalog`."""

    kind: Literal["session", "job", "archive"] = "job"

    def __init__(self, client: Viewed) -> None:
        self._client = client
        self._job_id = str(client.get_job_id())
        self._views = KeptViews()
        self._last: JobView | None = None
        """The view when the job was over."""
        self._canceller: threading.Thread | None = None
        """The one thread that waits for a cancel, or has waited."""
        self._cancelling = threading.Lock()
        self._closed = threading.Event()
        if hasattr(client, "last_view"):
            # Nobody may be looking when the job ends.
            threading.Thread(target=self._follow, name="strom-rest-end", daemon=True).start()

    def close(self) -> None:
        """Nobody asks any more. Idempotent."""
        self._closed.set()

    def jobs(self) -> list[JobSummary]:
        return [summary_of(self._view())]

    def job(self, job_id: str) -> JobSummary:
        return summary_of(self.view(job_id))

    def view(self, job_id: str) -> JobView:
        if job_id != self._job_id:
            raise NoSuchJob(f"there is no job '{job_id}' here: this is job '{self._job_id}'")
        return self._view()

    def views_of(self, job_ids: Collection[str] | None = None) -> list[JobView]:
        wanted = (self._job_id,) if job_ids is None else dict.fromkeys(job_ids)
        try:
            found = [self.view(job_id) for job_id in wanted]
        except Unavailable:
            return []
        return [one for one in found if job_ids is not None or one["status"] not in ENDED]

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
        if self.view(job_id)["status"] in ENDED:
            return
        with self._cancelling:
            if self._canceller is None or not self._canceller.is_alive():
                self._canceller = threading.Thread(
                    target=self._cancel, name="strom-rest-cancel", daemon=True
                )
                self._canceller.start()
        self._views.forget(job_id)

    def _cancel(self) -> None:
        """It waits for the end of the job, which a function of the user may put off."""
        try:
            self._client.cancel()
        except Exception as error:
            log.warning("job %s could not be cancelled: %s", self._job_id, described(error))

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
        self._views.forget(job_id)
        return path

    def rescale(self, job_id: str, parallelism: int, directory: str | None) -> Moved:
        self.view(job_id)
        raise Refused(NO_SESSION)

    def rescale_live(
        self, job_id: str, parallelism: int | Mapping[str, int], balance: bool = False
    ) -> Rescaled:
        self.view(job_id)
        try:
            made = self._client.rescale(parallelism, balance=balance).result(SAVEPOINT_S)
        except StromError as error:
            raise Refused(str(error)) from None
        self._views.forget(job_id)
        return Rescaled(
            made.before,
            made.after,
            round(made.silence.total_seconds() * 1000),
            made.stopped_tasks,
            made.kept_tasks,
            told(made.balance),
            made.held_tasks,
        )

    def _view(self) -> JobView:
        if self._last is not None:
            return self._last
        return self._views.get(self._job_id, False, self._fetch)

    def _fetch(self) -> JobView:
        try:
            found = self._client.view()
        except (JobFailedError, TransportError) as error:
            raise Unavailable(str(error)) from None
        if found["status"] in ENDED:
            self._last = found
        return found

    def _follow(self) -> None:
        """To the end of the job, of which its client tells for a while only."""
        client: Any = self._client
        while not self._closed.is_set() and self._last is None:
            try:
                found = client.last_view(END)
            except TransportError:
                self._closed.wait(AGAIN_S)
                continue
            except StromError:
                return  # it is gone without a word
            if found is not None:
                self._last = found
