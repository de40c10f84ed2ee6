"""What becomes of a job: the steps from one attempt to the next, and to the end (`lifecycle`).

A part of the job master, which says what is heard when; here stands what follows, and in
`rescale_steps` what a rescale makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.storage import Latest
from ...core.job_status import JobStatus
from ..accounts import TaskAccount
from ..graph.model import ExecutionGraph
from .actions import (
    Actions,
    CancelAll,
    CloseSources,
    DeployAll,
    FindTasks,
    JobEnded,
    LoadLatest,
    PrepareSources,
    TakeOverSources,
    Warn,
)
from .attempt_numbers import AttemptNumbers
from .checkpointing import CheckpointTranslator
from .failover import Failover, RestartRegion
from .failures import Failure, Failures
from .history import JobHistory
from .lifecycle import Lifecycle, Step
from .plan import JobPlan
from .regions import Region
from .rescale_steps import RescaleSteps
from .rescales import Rescales
from .running_attempt import Outcome, RunningAttempt
from .starting_point import Start, StartingPoint
from .takeover import TakeOver, begun, take_over
from .task_figures import TaskFigures


class Transitions:
    """Of one job, over all its attempts. The job master reads the fields, and changes none."""

    def __init__(
        self,
        plan: JobPlan,
        graph: ExecutionGraph,
        starting_point: StartingPoint,
        failures: Failures,
        first_attempt: int,
        takes_over: bool,
        rescales: Rescales,
    ) -> None:
        """`plan`: of `graph`. `first_attempt`, `takes_over`: as of JobMaster. `failures`,
        `rescales`: of the job."""
        self.plan, self.graph = plan, graph
        self.rescales = rescales
        self.rescale_steps = RescaleSteps(self, rescales)
        self.life = Lifecycle(plan.job_name)
        self.starting_point = starting_point
        self.checkpoints = CheckpointCoordinator(
            plan.tasks, plan.config.checkpoint, labels=plan.labels
        )
        self.history = JobHistory(plan.tasks)
        self.translator = CheckpointTranslator(plan, self.history)
        self.numbers = AttemptNumbers(first_attempt, takes_over)
        self.figures = TaskFigures(plan.tasks)
        self.failover = Failover(
            plan,
            failures,
            self.checkpoints,
            self.numbers,
            self.figures,
            self.history,
        )
        self.failures = self.failover.failures
        self.start: Start | None = None
        """What the current attempt begins with; not None exactly while PREPARING."""
        self.running: RunningAttempt | None = None
        """The current attempt; None outside DEPLOYING and RUNNING."""
        self.takes_over = takes_over
        """Whether tasks are still to be looked for that run already."""
        self._found: Latest | None = None
        """What the storage holds; not None exactly while FINDING."""
        self.left: TakeOver | None = None
        """What is taken over; not None exactly while TAKING."""
        self.early: list[Callable[[int], Actions]] = []
        """What tasks said, or what became of them, while TAKING; for the job master."""
        self._patience_ms = int(plan.config.cancellation_timeout.total_seconds() * 1000) // 2
        self._give_up_ms = 0
        """When a job that is to end waits no more for a checkpoint that is being stored."""

    # --- within an attempt -------------------------------------------------------------------

    def after(self, outcome: Outcome, now_ms: int) -> Actions:
        """What an event within the current attempt means for the job."""
        assert self.running is not None
        progress = self.running.progress
        if progress.all_running and self.life.step is Step.DEPLOYING:
            self._move(JobStatus.RUNNING, now_ms)
            self.life.go(Step.RUNNING)
            self.failures.on_stable(now_ms)
            outcome = replace(
                outcome, actions=(*outcome.actions, *self.rescales.on_running(now_ms))
            )
        if outcome.whole:
            self.failures.on_stable(now_ms)
        if outcome.failure is not None:
            return (*outcome.actions, *self.fail(outcome.failure, now_ms))
        if outcome.go_back is not None:
            return (*outcome.actions, *self._go_back(outcome.go_back, now_ms))
        if progress.all_finished:
            return (*outcome.actions, *self.end(JobStatus.FINISHED, now_ms))
        return (*outcome.actions, *self.rescale_steps.on_event(now_ms))

    def load(self) -> Actions:
        self.life.go(Step.LOADING)
        return (LoadLatest(self.starting_point.floor, self.takes_over),)

    # --- tasks that run already --------------------------------------------------------------

    def find(self, latest: Latest) -> Actions:
        """Another master may have left some."""
        self.takes_over, self._found = False, latest
        self.life.go(Step.FINDING)
        return (FindTasks(),)

    def on_found(self, accounts: Sequence[TaskAccount], now_ms: int) -> Actions:
        """What they say."""
        latest, self._found = self._found, None
        assert latest is not None, "nobody was looked for"
        left = take_over(self.plan, accounts, latest.manifest, latest.highest_id)
        if left is not None and left.others and not self.rescale_steps.goes_on_in_part:
            left = None
        if left is None and not accounts:
            return self.begin(latest, now_ms)
        found = {one.task: one.attempt for one in accounts}
        self.numbers.take_over(found, self.plan.labels.keys())
        if left is None or left.strange or left.fenced:
            self.checkpoints.on_left(begun(accounts, latest.highest_id))
            why = "its coordinator died while its tasks were being started or stopped"
            if left is not None:
                given_up = f"checkpoint {left.newest} became complete after it had been given up"
                why = left.fenced or given_up
            return self._go_back(why, now_ms)
        self.history.on_found({task: left.attempts[task] for task in left.running}, now_ms)
        match self.starting_point.take_over(latest, left, self.checkpoints):
            case Failure() as failure:
                return self.fail(failure, now_ms)
            case states:
                self.left = left
                self.life.go(Step.TAKING)
                attempt = self.numbers.began
                return (TakeOverSources(attempt, left.newest, states, left.given, left.shown),)

    def go_on(self, left: TakeOver, now_ms: int) -> Actions:
        """The enumerators are where they were: what runs is the current attempt."""
        self.left = None
        self.running = RunningAttempt(
            self.numbers.began,
            self.plan,
            self.checkpoints,
            self.translator,
            self.history,
            Start(None, False, {}),
            self.starting_point.floor,
            self.numbers,
        )
        self._move(JobStatus.RUNNING, now_ms)
        self.life.go(Step.RUNNING)
        self.failures.on_stable(now_ms)
        going = self.after(self.running.take_over(left, now_ms), now_ms)
        came, failures = self.rescale_steps.come_up(left, self.running, now_ms)
        failed = [self.fail(failure, now_ms) for failure in failures]
        return tuple(action for part in (going, came, *failed) for action in part)

    # --- from one attempt to the next --------------------------------------------------------

    def begin(self, latest: Latest, now_ms: int) -> Actions:
        """An attempt, from what the storage holds."""
        match self.starting_point.prepare(latest, self.checkpoints):
            case Failure() as failure:
                return self.fail(failure, now_ms)
            case Start() as start:
                return self.prepare(start)

    def prepare(self, start: Start) -> Actions:
        attempt = self.numbers.begin(self.plan.tasks)
        self.start = start
        self.figures.clear()
        self.life.go(Step.PREPARING)
        return (PrepareSources(attempt, start.enumerators),)

    def deploy(self, start: Start, now_ms: int) -> Actions:
        attempt = self.numbers.began
        self.history.on_deploying(attempt, now_ms)
        if start.manifest is not None:
            restored = start.manifest
            self.history.on_restored(restored.checkpoint_id, restored.savepoint, now_ms)
        self.start = None
        self.running = RunningAttempt(
            attempt,
            self.plan,
            self.checkpoints,
            self.translator,
            self.history,
            start,
            self.starting_point.floor,
            self.numbers,
        )
        self.life.go(Step.DEPLOYING)
        return (DeployAll(attempt, start.manifest, start.revoke, start.halted),)

    def fail(self, failure: Failure, now_ms: int, region: Region | None = None) -> Actions:
        """The attempt failed, or a part of it, which is its `region` or the task's; only the first
        cause counts."""
        if self.life.step in (Step.STOPPING, Step.WAITING, Step.KEEPING, Step.ENDED):
            return ()
        back = self.rescale_steps.turn_back(failure, region, now_ms)
        if back is not None:
            return back
        next_ = self.failover.on_failure(failure, region, self.running, self.life.step, now_ms)
        if not isinstance(next_, RestartRegion):
            return self.stop(next_, now_ms)
        assert self.running is not None
        restarted = self.running.restart(next_.region, next_.at_ms, next_.why, now_ms)
        return (*next_.news, *self.after(restarted, now_ms))

    def _go_back(self, why: str, now_ms: int) -> Actions:
        """There must be another attempt, though nothing failed."""
        return self.stop(self.failover.on_setback(why, now_ms), now_ms)

    def stop(self, status: JobStatus, now_ms: int) -> Actions:
        """Stop the attempt, if one is deployed, on the way to what `status` leads to."""
        self._move(status, now_ms)
        self._give_up_ms = now_ms + self._patience_ms
        dropped: Actions = ()
        rescale = self.rescales.now
        if rescale is not None and (rescale.stage.runs or status is not JobStatus.RESTARTING):
            dropped = self.rescales.drop(f"the job is {status.value}")
        self.rescales.widen()
        cancel: Actions = ()
        if self.life.deployed:
            self.history.on_stopping(now_ms)
            self.life.go(Step.STOPPING)
            cancel = (CancelAll(self.numbers.last),)
        elif self.life.step in (Step.NEW, Step.LOADING, Step.PREPARING, Step.KEEPING):
            self.life.go(Step.WAITING)
        return (*dropped, *cancel, *self._leave_attempt(now_ms), *self.proceed(now_ms))

    def proceed(self, now_ms: int) -> Actions:
        """Leave WAITING, if nothing is left to wait for."""
        if self.life.step is not Step.WAITING:
            return ()
        storing = self.checkpoints.storing
        match self.life.status:
            case JobStatus.RESTARTING if not storing and now_ms >= self.failures.restart_at_ms:
                kept = self.rescales.keep()
                if not kept:
                    return self.load()
                self.life.go(Step.KEEPING)
                return kept
            case JobStatus.FAILING if not storing or now_ms >= self._give_up_ms:
                return self.end(JobStatus.FAILED, now_ms)
            case JobStatus.CANCELLING if not storing or now_ms >= self._give_up_ms:
                return self.end(JobStatus.CANCELED, now_ms)
        return ()

    def _move(self, status: JobStatus, now_ms: int) -> None:
        if status is not self.life.status:
            self.life.move(status)
            self.history.on_status(status, now_ms)

    def end(self, status: JobStatus, now_ms: int) -> Actions:
        self._move(status, now_ms)
        self.life.go(Step.ENDED)
        left = [*self.rescales.drop(f"the job is {status.value}")]
        left += self._leave_attempt(now_ms)
        left += self.carry_out(self.checkpoints.on_job_end(status), now_ms)
        for n in self.checkpoints.pending:
            left.append(Warn(f"the job ends while checkpoint {n} is being published"))
        error = self.failures.final_cause if status is JobStatus.FAILED else None
        return (*left, JobEnded(status, error))

    def _leave_attempt(self, now_ms: int) -> Actions:
        """From now on no task of the attempt, if there is one, is heard or told anything."""
        close: Actions = ()
        if any(one is not None for one in (self.start, self.left, self.running)):
            close = (CloseSources(self.numbers.began),)
        self.start = self.left = self.running = None
        self.early.clear()
        match self.life.status:
            case JobStatus.RESTARTING if self.rescales.now is not None:
                why = "the job is being rescaled: ask again when it runs"
            case JobStatus.RESTARTING | JobStatus.FAILING:
                why = f"the job failed: {self.failures.last_cause}"
            case status:
                why = f"the job is {status.value}"
        return (*close, *self.carry_out(self.checkpoints.on_job_restart(why), now_ms))

    def carry_out(self, actions: protocol.Actions, now_ms: int) -> Actions:
        """Do what the checkpoint protocol asks for."""
        if self.running is not None:
            return self.after(self.running.carry_out(actions, now_ms), now_ms)
        return tuple(self.translator.translate(actions, None, now_ms).actions)

    def ticks_due(self) -> Iterator[int | None]:
        """When it has something to do (ms)."""
        if self.life.step is Step.RUNNING:
            yield self.checkpoints.next_tick_ms()
        if self.running is not None:
            yield self.running.next_tick_ms()
        if self.life.step is Step.WAITING:
            if self.life.status is not JobStatus.RESTARTING:
                yield self._give_up_ms
            elif self.checkpoints.storing:
                yield self.checkpoints.next_tick_ms()
            else:
                yield self.failures.restart_at_ms

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self.life.validate()
        self.checkpoints.validate()
        self.numbers.validate(self.plan.tasks)
        self.rescales.validate(self.life.step)
        assert (self.start is not None) == (self.life.step is Step.PREPARING)
        assert (self._found is not None) == (self.life.step is Step.FINDING)
        assert (self.left is not None) == (self.life.step is Step.TAKING)
        assert (self.running is not None) == (self.life.step in (Step.DEPLOYING, Step.RUNNING))
        self.translator.validate(self.checkpoints.pending)
        if self.running is not None:
            self.running.validate()
            assert (self.life.step is Step.RUNNING) == self.running.begun
