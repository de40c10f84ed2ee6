"""Why attempts of a job failed, and whether and when the next one begins."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.failure_text import SUMMARY_LIMIT, TRACE_LIMIT, cut
from ...core.ids import TaskId
from ...core.job_status import JobStatus
from .restart import Failed, RestartPolicy


@dataclass(frozen=True)
class Failure:
    """Of an attempt. Not `recoverable`: another attempt would end the same way. `symptom`: it may
    only be the consequence of another task's loss. `task`: the one that failed, if it was one."""

    cause: str
    recoverable: bool = True
    symptom: bool = False
    task: TaskId | None = None


class Failures:
    """The failures of one job, one per attempt: only the first cause of each counts."""

    def __init__(self, policy: RestartPolicy, restarts: int = 0) -> None:
        """`restarts`: of the coordinators that the job had before."""
        self._policy = policy
        self._last: Failure | None = None
        self._why_no_more: str | None = None
        """If the job fails because restarts are used up."""
        self.restarts = restarts
        """Decided so far; only grows."""
        self.restart_at_ms = 0
        """When the attempt after the last recoverable failure may begin."""

    @property
    def so_far(self) -> Failed:
        """What another coordinator has to know of them."""
        return self._policy.failed()

    @property
    def last_cause(self) -> str | None:
        """First cause of the latest failed attempt, in a length for people."""
        return None if self._last is None else self._last.cause

    @property
    def final_cause(self) -> str | None:
        """Of a job that fails: the same, and why it is not restarted once more."""
        if self._last is None or self._why_no_more is None:
            return self.last_cause
        return f"{self._last.cause}\nThe job is not restarted again: {self._why_no_more}."

    def on_stable(self, now_ms: int) -> None:
        """The job reached RUNNING."""
        self._policy.on_stable(now_ms)

    def on_failure(self, failure: Failure, now_ms: int) -> JobStatus:
        """An attempt failed: RESTARTING if there will be another one, else FAILING."""
        cause = cut(failure.cause, SUMMARY_LIMIT + TRACE_LIMIT)
        self._last = replace(failure, cause=cause)
        delay_ms = self._policy.on_failure(now_ms) if failure.recoverable else None
        if delay_ms is None:
            self._why_no_more = self._policy.why_not() if failure.recoverable else None
            return JobStatus.FAILING
        self.restarts += 1
        self.restart_at_ms = now_ms + delay_ms
        return JobStatus.RESTARTING

    @property
    def last_task(self) -> TaskId | None:
        """The one that failed last, if it was one."""
        return None if self._last is None else self._last.task

    def on_another(self, failure: Failure) -> JobStatus:
        """A part of the job failed while another waits to be restarted: it is restarted with that,
        which the policy has allowed; so the loss of a machine is one failure."""
        self._last = replace(failure, cause=cut(failure.cause, SUMMARY_LIMIT + TRACE_LIMIT))
        return JobStatus.RESTARTING

    def on_setback(self, cause: str, now_ms: int) -> JobStatus:
        """The attempt cannot go on for a reason that is no failure of the job: there is another
        one at once, whatever the policy."""
        self._last = Failure(cut(cause, SUMMARY_LIMIT + TRACE_LIMIT))
        self.restarts += 1
        self.restart_at_ms = now_ms
        return JobStatus.RESTARTING

    def on_rescale(self, now_ms: int) -> None:
        """The next attempt begins at once, and nothing failed."""
        self.restart_at_ms = now_ms

    def on_loss(self, cause: str) -> None:
        """A task of the failed attempt turned out to be lost: explains what was only a symptom."""
        if self._last is not None and self._last.symptom:
            self._last = Failure(cause, self._last.recoverable)
