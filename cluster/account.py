"""The jobs of a cluster, with a session or without: what its dispatcher tells, and what
coordinators do of jobs that it knows nothing of.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from ..core.errors import ConfigurationError
from .coordinators import Coordinators, Listed, job_ids
from .dispatcher_client import find
from .records import JobRecord


class Dispatching(Protocol):
    """What is asked of a dispatcher: `DispatcherClient`, or who answers sooner. ConfigurationError
    if it has no such job."""

    def jobs(self, ended: int) -> Listed: ...

    def job(self, job_id: str) -> tuple[JobRecord, str]: ...

    def cancel(self, job_id: str) -> None: ...

    def archived(self, job_id: str) -> dict[str, Any] | None: ...


class Account:
    """The jobs of a cluster: those of its session, if it has one, and those that no dispatcher
    knows of, as they were there before it. All as of `DispatcherClient`, or `Coordinators`."""

    def __init__(self, dispatcher: Dispatching | None) -> None:
        self._dispatcher = dispatcher
        self._coordinators = Coordinators()

    def jobs(self, ended: int = 100) -> Listed:
        if self._dispatcher is None:
            return self._coordinators.jobs(ended)
        listed = self._dispatcher.jobs(ended)
        known = {record.job_id for record, _ in listed}
        return [*listed, *self._coordinators.jobs(0, known)]

    def job(self, job_id: str) -> tuple[JobRecord, str]:
        found: tuple[JobRecord, str] = self._ask("job", job_id)
        return found

    def cancel(self, job_id: str) -> None:
        self._ask("cancel", job_id)

    def archived(self, job_id: str) -> dict[str, Any] | None:
        """None without a session: nobody archives then."""
        return None if self._dispatcher is None else self._dispatcher.archived(job_id)

    def is_dispatched(self, job_id: str) -> bool:
        """Whether a session looks after the job."""
        if self._dispatcher is None:
            return False
        with suppress(ConfigurationError):
            self._dispatcher.job(job_id)
            return True
        return False

    def _ask(self, call: str, job_id: str) -> Any:
        if self._dispatcher is not None:
            try:
                return getattr(self._dispatcher, call)(job_id)
            except ConfigurationError:
                if job_id not in job_ids():
                    raise
        return getattr(self._coordinators, call)(job_id)


def account() -> Account:
    """Of the cluster that this process is connected to."""
    return Account(find())
