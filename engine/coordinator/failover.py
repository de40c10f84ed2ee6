"""What follows from a failure: the whole job begins again, or a part of it, or it ends.

A part is a region (`regions`), which can begin again alone while all tasks run, nothing is
committed for good, and the job is not about to end. One that fails while another waits for its
delay begins with that: the loss of a machine is one failure. Whether and when there is another
attempt says the restart policy (`failures`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...checkpoint.coordinator import CheckpointCoordinator
from ...core.ids import Attempt, TaskId
from ...core.job_status import JobStatus
from .actions import Actions, Warn
from .attempt_numbers import AttemptNumbers
from .failures import Failure, Failures
from .history import JobHistory
from .lifecycle import Step
from .plan import JobPlan
from .regions import Region
from .running_attempt import RunningAttempt
from .task_figures import TaskFigures


@dataclass(frozen=True)
class RestartRegion:
    """The region begins again, not before `at_ms`. `why`: what is given up for it. `news`: what to
    say first."""

    region: Region
    at_ms: int
    why: str
    news: Actions


class Failover:
    """Of one job, over all its attempts."""

    def __init__(
        self,
        plan: JobPlan,
        failures: Failures,
        checkpoints: CheckpointCoordinator,
        numbers: AttemptNumbers,
        figures: TaskFigures,
        history: JobHistory,
    ) -> None:
        """All are the job master's."""
        self._plan = plan
        self._checkpoints = checkpoints
        self._numbers = numbers
        self._figures = figures
        self._history = history
        self.failures = failures

    def adopt(self, plan: JobPlan) -> None:
        """The job's from now on; none of its tasks runs."""
        self._plan = plan

    def on_failure(
        self,
        failure: Failure,
        region: Region | None,
        running: RunningAttempt | None,
        step: Step,
        now_ms: int,
    ) -> JobStatus | RestartRegion:
        """The attempt failed, or a part of it, which is its `region` or the task's: what becomes of
        the whole job, if that is stopped."""
        regions = running if failure.recoverable and self.parts_restart(running, step) else None
        if regions is not None and failure.task is not None:
            region = regions.restarts.region_of(failure.task)
        if regions is None:
            region = None
        at_ms = None
        if regions is not None and region is not None:
            at_ms = regions.restarts.shared_delay(self._numbers.newest_in(region.tasks))
        news: Actions = ()
        if at_ms is None:
            status = self.failures.on_failure(failure, now_ms)
            at_ms = self.failures.restart_at_ms
        else:
            status = self.failures.on_another(failure)
            news = (Warn(f"another part of it failed, and is restarted, too: {failure.cause}"),)
        cause = self.failures.last_cause or failure.cause
        whole = region is None or status is not JobStatus.RESTARTING
        self._note(failure, cause, None if whole else region, now_ms)
        if region is None or whole:
            return status
        return RestartRegion(region, at_ms, f"a part of the job is restarted: {cause}", news)

    def on_setback(self, cause: str, now_ms: int) -> JobStatus:
        """There must be another attempt, though nothing failed."""
        status = self.failures.on_setback(cause, now_ms)
        self._history.on_failure(cause, None, self._numbers.last, now_ms)
        return status

    def explain(self, task: TaskId, cause: str, running: RunningAttempt | None) -> None:
        """A task that is being stopped was lost: maybe what the job failed of was a symptom of
        that. `running`: the attempt, if only a part of it is being stopped."""
        if running is not None and self.failures.last_task not in running.peers(task):
            return
        self.failures.on_loss(cause)
        self._history.on_explained(self.failures.last_cause, task, self._figures.host_of(task))

    @property
    def by_regions(self) -> bool:
        """Whether the job is of parts that may begin again alone."""
        return self._plan.config.failover_strategy == "region" and len(self._plan.regions) > 1

    def parts_restart(self, running: RunningAttempt | None, step: Step) -> bool:
        """Whether tasks can begin again while others go on."""
        return (
            self.by_regions
            and step is Step.RUNNING
            and running is not None
            and not running.progress.committed
            and not self._checkpoints.ending
        )

    def _note(self, failure: Failure, cause: str, region: Region | None, now_ms: int) -> None:
        """For the history. `region`: what begins again, None: everything, or nothing."""
        task, numbers = failure.task, self._numbers
        if region is not None:
            attempt = numbers.newest_in(region.tasks)
        elif task is not None:
            attempt = numbers.of(task)
        else:
            attempt = numbers.last
        host = self._figures.host_of(task)
        self._history.on_failure(cause, task, Attempt(max(0, attempt)), now_ms, host)
