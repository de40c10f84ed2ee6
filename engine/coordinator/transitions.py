"""What becomes of a job: the steps from one attempt to the next, and to the end (`lifecycle`).

A part of the job master, which says what is heard when; here stands what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.storage import Latest
from ...core.checkpointing_mode import CheckpointingMode
from ...core.ids import CheckpointId, OperatorId
from ...core.job_status import JobStatus
from ...state.key_group_deals import Balance
from ..accounts import TaskAccount
from ..graph.model import ExecutionGraph
from .actions import (
    Actions,
    AnswerRescale,
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
from .askers import Asker
from .attempt_numbers import AttemptNumbers
from .checkpointing import CheckpointTranslator
from .failover import Failover, RestartRegion
from .failures import Failure, Failures
from .history import JobHistory
from .lifecycle import Lifecycle, Step
from .plan import JobPlan, make_plan
from .regions import Region
from .rescaled_part import Part, staying_part_of
from .rescales import Rescales, Stage, exceeds, shortage_of, why_no_rescale
from .running_attempt import NOTHING, Outcome, RunningAttempt
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
        return (*outcome.actions, *self._rescale_on(now_ms))

    def load(self) -> Actions:
        self.life.go(Step.LOADING)
        return (LoadLatest(self.starting_point.floor, self.takes_over),)

    # --- at another parallelism --------------------------------------------------------------

    def rescale(
        self,
        request: int,
        graph: ExecutionGraph,
        asker: Asker,
        balance: Mapping[str, Balance],
        now_ms: int,
    ) -> Actions:
        """The job is to be this."""
        way = () if asker.yields else self.rescales.give_way("another rescale")
        why = self.why_no_rescale(asker)
        if not asker.decides and exceeds(graph.job, self.rescales.wanted.job):
            why = why or "it is to have fewer subtasks by now"
        if not asker.decides and exceeds(self.graph.job, graph.job):
            why = why or "it has more subtasks by now"
        if why is not None:
            return (*way, AnswerRescale(request, error=f"not rescaled: {why}"))
        return (*way, *self.rescales.begin(request, self.graph, graph, asker, balance, now_ms))

    def why_no_rescale(self, asker: Asker) -> str | None:
        return why_no_rescale(self.life, self.running, self.checkpoints, self.rescales, asker)

    def shrink(
        self, smaller: ExecutionGraph, why: str, now_ms: int, region: Region | None = None
    ) -> Actions:
        """Tasks were to be started, all or of a region, and there is room for this only: that is no
        failure."""
        if self.life.step not in (Step.DEPLOYING, Step.RUNNING):
            return ()
        if self.rescales.begins(None if region is None else region.tasks[0]):
            return self.fail(Failure(f"the job could not be deployed: {why}"), now_ms, region)
        told = self.rescales.shrink(self.graph, smaller, why)
        self.failures.on_rescale(now_ms)
        news = shortage_of(smaller.job, self.rescales.wanted.job, why) or why
        return (Warn(news), *told, *self.stop(JobStatus.RESTARTING, now_ms))

    def on_room(self, request: int, why: str | None, now_ms: int) -> Actions:
        """There is room for it, or there is none."""
        one = self.rescales.now
        if one is None or one.request != request:
            return ()
        others = why_no_rescale(self.life, self.running, self.checkpoints, Rescales(self.graph))
        if not self.rescales.on_room(request, why or others):
            return self.rescales.drop(why or others or "there is no room for it")
        return self.carry_out(self.checkpoints.trigger(now_ms, "rescale"), now_ms)

    @property
    def shortage(self) -> str | None:
        """Why the job has fewer subtasks than it is to have; None: it has not."""
        return shortage_of(self.graph.job, self.rescales.wanted.job, self.rescales.shortage)

    def _rescale_on(self, now_ms: int) -> Actions:
        """What the last event means for a rescale whose checkpoint is on, or of a part."""
        assert self.running is not None
        if self.rescales.part is not None:
            return self._part_on(self.rescales.part, self.running, now_ms)
        why = self.rescales.on_checkpoints(self.checkpoints, self.running, now_ms)
        if why is not None:
            return self.rescales.drop(why)
        if not self.rescales.stops:
            return ()
        part = self.rescales.held()
        if part is None or not self._may_stay:
            splits = self.failover.parts_restart(self.running, self.life.step)
            part = self.rescales.separable() if splits else None
        if part is None:
            self.failures.on_rescale(now_ms)
            return self.stop(JobStatus.RESTARTING, now_ms)
        kept = self.rescales.keep_part(part)
        held = self.running.hold(part.stops, now_ms, part.stays)
        return (*kept, *self.after(held, now_ms))

    def on_sources_snapshot(
        self, n: CheckpointId, states: Mapping[OperatorId, bytes], now_ms: int
    ) -> Actions:
        """The enumerators' part of a checkpoint is taken: the tasks take theirs."""
        assert self.running is not None
        one, part = self.rescales.now, None
        if one is not None and one.stage is Stage.CHECKPOINTING and n == self.checkpoints.asked:
            part = staying_part_of(one.former, one.graph)
        if part is None or not self._may_stay:
            return self.after(self.running.on_sources_snapshot(n, states), now_ms)
        self.rescales.hold(part, n, now_ms)
        held = self.running.on_sources_snapshot(n, states, part.former)
        return self.after(held, now_ms)

    @property
    def _may_stay(self) -> bool:
        """Whether some of what a rescale concerns can stand still behind its checkpoint, and go on
        then."""
        mode, running = self.plan.config.checkpoint.mode, self.running
        return (
            mode is CheckpointingMode.EXACTLY_ONCE
            and running is not None
            and self.life.step is Step.RUNNING
            and not self.checkpoints.ending
        )

    def _part_on(self, part: Part, running: RunningAttempt, now_ms: int) -> Actions:
        """It may have stopped, or come up."""
        first = part.stops[0]
        if running.restarts.of(first) is None:
            return self.rescales.on_running(now_ms)
        if not (self.rescales.kept and running.may_adopt(first)):
            return ()
        self._adopt(self.rescales.adopt(), part)
        return self.after(running.adopt(self.plan, part, now_ms), now_ms)

    def on_graph_kept(self, now_ms: int) -> Actions:
        """It is written down: the job has another graph, or a part of it stops for that."""
        if not self.rescales.on_kept():
            return ()
        if self.life.step is Step.KEEPING:
            graph, told = self.rescales.take()
            self._adopt(graph)
            return (*told, *self.load())
        if self.running is None:
            return ()
        first = self.rescales.stop(now_ms)
        return self.after(NOTHING if first is None else self.running.move(first, now_ms), now_ms)

    def _adopt(self, graph: ExecutionGraph, part: Part | None = None) -> None:
        """The job has it from now on. None of its tasks runs, or none of the part."""
        self.graph = graph
        self.plan = plan = make_plan(self.plan.job_id, graph)
        for one in (self.starting_point, self.translator, self.failover):
            one.adopt(plan)
        begin = set(plan.tasks if part is None else part.starts.tasks)
        going = [task for task in plan.tasks if task not in begin]
        self.checkpoints.adopt(plan.tasks, plan.labels)
        self.history.adopt(plan.tasks, going)
        self.figures.adopt(plan.tasks, going)
        if part is None:
            self.numbers.forget()
        else:
            self.numbers.keep(plan.labels.keys())

    def _turn_back(self, failure: Failure, region: Region | None, now_ms: int) -> Actions | None:
        """What becomes of a rescale for whose sake tasks come up, if they do not for this."""
        part, one = self.rescales.part, self.rescales.now
        failed = failure.task if region is None else region.tasks[0]
        why = f"the job goes back to its former parallelism: {failure.cause}"
        if part is None or failed is None:
            if not self.rescales.returns(self.life.step, failure.cause):
                return None
            self.failures.on_rescale(now_ms)
            return (Warn(why), *self.stop(JobStatus.RESTARTING, now_ms))
        if one is None or not part.concerns(failed):
            return None
        assert self.running is not None
        if one.stage is Stage.STARTING and self._is_part(part):
            kept = self.rescales.turn_back(failure.cause)
            stopped = self.running.stop(part.then.tasks, now_ms)
            return (Warn(why), *kept, *self.after(stopped, now_ms))
        if one.stage is Stage.STARTING:
            self.rescales.returns(self.life.step, failure.cause)
            self.failures.on_rescale(now_ms)
            return (Warn(why), *self.stop(JobStatus.RESTARTING, now_ms))
        if failed in part.stays and failure.recoverable:
            return self._stay_no_more(part, failure.cause, now_ms)
        return None

    def _is_part(self, part: Part) -> bool:
        """Whether all that it concerns can begin again while others go on."""
        return self.failover.by_regions and len(part.then.tasks) < len(self.graph.tasks)

    def _stay_no_more(self, part: Part, cause: str, now_ms: int) -> Actions:
        """A task that stays failed, and the job has its former graph: from the checkpoint, which is
        complete, all that is concerned begins again with the other one."""
        assert self.running is not None
        news = Warn(
            f"all tasks that the rescale concerns begin again, as one of them failed: {cause}"
        )
        former = len(part.former) < len(self.graph.tasks)
        if not (self.failover.by_regions and former):
            self.failures.on_rescale(now_ms)
            return (news, *self.stop(JobStatus.RESTARTING, now_ms))
        self.rescales.stay_no_more()
        return (news, *self.after(self.running.stay_no_more(part, now_ms), now_ms))

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
        if left is not None and left.others and not self._goes_on_in_part:
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
        came, failures = self._come_up(left, self.running, now_ms)
        failed = [self.fail(failure, now_ms) for failure in failures]
        return tuple(action for part in (going, came, *failed) for action in part)

    @property
    def _goes_on_in_part(self) -> bool:
        """Whether a rescale that another coordinator has begun may be one of a part."""
        if self.rescales.now is None or not self.failover.by_regions:
            return False
        return self.rescales.separable() is not None

    def _come_up(
        self, left: TakeOver, running: RunningAttempt, now_ms: int
    ) -> tuple[Actions, Sequence[Failure]]:
        """A rescale is over if all that begins for it runs; else, if the others do, it goes on.
        With that what has failed beside it."""
        if self.rescales.now is None or self.life.step is not Step.RUNNING:
            return (), left.failures
        splits = self.failover.parts_restart(running, self.life.step)
        part = self.rescales.resume() if splits else None
        missing = part and (left.others or any(part.concerns(f.task) for f in left.failures))
        if part is None or not missing:
            return self.rescales.on_running(now_ms), left.failures
        tasks = (*part.starts.tasks, *(t for t in left.others if not part.concerns(t)))
        failures = [one for one in left.failures if not part.concerns(one.task)]
        return self.after(running.stop(tasks, now_ms), now_ms), failures

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
        back = self._turn_back(failure, region, now_ms)
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
