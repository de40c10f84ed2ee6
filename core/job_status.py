"""The states of a job and which may follow which."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .answered import Answered


class JobStatus(Answered, StrEnum):
    """Where a job is in its life. `CREATED` lasts until every task of the first attempt runs. No
    job is ever `SUSPENDED` or `RECONCILING`: Flink's are, while a job manager is replaced."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FAILING = "FAILING"
    FAILED = "FAILED"
    CANCELLING = "CANCELLING"
    CANCELED = "CANCELED"
    FINISHED = "FINISHED"
    SUSPENDED = "SUSPENDED"
    RECONCILING = "RECONCILING"

    @property
    def is_terminal(self) -> bool:
        """Whether the job is over for good."""
        return not TRANSITIONS[self]

    def is_terminal_state(self) -> bool:
        """PyFlink's name for `is_terminal`."""
        return self.is_terminal

    def is_globally_terminal_state(self) -> bool:
        """Whether nobody will go on with the job."""
        return self.is_terminal and self is not JobStatus.SUSPENDED


TRANSITIONS: Final[dict[JobStatus, frozenset[JobStatus]]] = {
    JobStatus.CREATED: frozenset(
        {JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.CANCELLING}
    ),
    JobStatus.RUNNING: frozenset(
        {JobStatus.RESTARTING, JobStatus.FAILING, JobStatus.CANCELLING, JobStatus.FINISHED}
    ),
    JobStatus.RESTARTING: frozenset({JobStatus.RUNNING, JobStatus.FAILING, JobStatus.CANCELLING}),
    JobStatus.FAILING: frozenset({JobStatus.FAILED, JobStatus.CANCELLING}),
    JobStatus.CANCELLING: frozenset({JobStatus.CANCELED}),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELED: frozenset(),
    JobStatus.FINISHED: frozenset(),
    JobStatus.SUSPENDED: frozenset(),
    JobStatus.RECONCILING: frozenset({JobStatus.RUNNING}),
}
"""From each state, the states that may follow."""
