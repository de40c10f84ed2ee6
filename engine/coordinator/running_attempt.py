"""What happens within one attempt: its tasks come up, read splits, take checkpoints and end.

    task         says                      once all tasks have said so
    starting     TaskRunning               checkpoints and split requests begin
    running      TaskDrained               the terminal checkpoint is taken
    drained      TaskFinished, when the    the job is finished
                 terminal checkpoint is
                 complete

The job master makes a RunningAttempt when it deploys one and drops it when it stops the tasks. Each
event is answered by an Outcome; what follows from a failure, the master decides. If that is to
restart a region alone (`region_restarts`), its tasks are counted as starting again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.storage import Latest
from ...core.errors import StromError
from ...core.ids import NO_CHECKPOINT, Attempt, CheckpointId, OperatorId, TaskId
from ..messages import (
    AlignWatermarks,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    GoOn,
    Mail,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskReport,
    TaskRunning,
    WatermarkReported,
)
from .actions import Action, Actions, CancelTasks, DeployTasks, RestartReaders, Send
from .attempt_numbers import AttemptNumbers
from .checkpointing import CheckpointTranslator
from .failures import Failure
from .history import JobHistory
from .job_state import Progress
from .plan import JobPlan
from .region_restarts import RegionRestart, RegionRestarts, Stage
from .regions import Reader, Region
from .rescaled_part import Part
from .split_requests import Answer, SplitRequests
from .starting_point import Start
from .takeover import TakeOver, fenced_before
from .watermark_alignment import WatermarkAlignment


@dataclass(frozen=True)
class Outcome:
    """What the host is to do after an event, and why the attempt cannot go on, if it cannot.
    `go_back`: why there must be another one, though nothing failed. `whole`: all tasks run again,
    after some were restarted."""

    actions: Actions = ()
    failure: Failure | None = None
    go_back: str | None = None
    whole: bool = False


NOTHING = Outcome()


class RunningAttempt:
    """One attempt from its deployment until its tasks are stopped or have finished."""

    def __init__(
        self,
        attempt: Attempt,
        plan: JobPlan,
        checkpoints: CheckpointCoordinator,
        translator: CheckpointTranslator,
        history: JobHistory,
        start: Start,
        floor: int,
        numbers: AttemptNumbers,
    ) -> None:
        """`checkpoints`, `translator`, `history` and `numbers` live as long as the job. `floor`: as
        of LoadLatest."""
        found = start.manifest
        began_with = NO_CHECKPOINT if found is None else found.checkpoint_id
        self._dealt = dict.fromkeys(plan.shape_of, began_with)
        """The checkpoint whose state was dealt out anew to the tasks of each vertex; of later ones
        each gets what was its own."""
        self._halted_at = found.checkpoint_id if start.halted and found is not None else None
        """The terminal checkpoint at which the job was stopped; the attempt only commits it."""
        self._attempt = attempt
        self._floor = floor
        self._numbers = numbers
        self._history = history
        self._plan = plan
        self.begun = False
        """Whether all tasks have been running."""
        self.restarts = RegionRestarts(plan.regions)
        self._requests = SplitRequests(attempt, plan.readers)
        self._alignment = WatermarkAlignment(plan.aligned)
        self._checkpoints = checkpoints
        self._translator = translator
        self.progress = Progress(frozenset(plan.tasks))

    def on_report(self, report: TaskReport, now_ms: int) -> Outcome:
        """A task said something, in its current attempt."""
        if self.restarts.is_ending(report.task):
            return NOTHING
        match report:
            case TaskRunning() | TaskDrained() | TaskFinished():
                return self._advance(report, now_ms)
            case TaskFailed(task=task, error=error, fenced=True) if self._numbers.is_left(task):
                return Outcome(go_back=fenced_before(error))
            case TaskFailed(task=task, error=error, recoverable=recoverable, symptom=symptom):
                return Outcome(failure=Failure(error, recoverable, symptom, task))
            case TaskCancelled(task=task):
                return self._broken(f"task {self._plan.labels[task]} stopped without being told to")
            case SplitsRequested(task=task, operator=operator):
                restart = self.restarts.of(task)
                if restart is None:
                    return self._ask([(operator, task)])
                restart.asked.append((operator, task))
            case WatermarkReported(task=task, operator=operator, watermark=watermark):
                told = self._alignment.on_report(operator, task, watermark)
                if told is not None:
                    return _do([Send(task, AlignWatermarks(operator, *told))])
            case CheckpointAcknowledged(task=task, checkpoint_id=n, snapshot=snapshot):
                acknowledged = self._checkpoints.on_acknowledge(task, n, snapshot, now_ms)
                return self.carry_out(acknowledged, now_ms) if acknowledged else NOTHING
            case CheckpointDeclined(task=task, checkpoint_id=n, reason=reason):
                declined = self._checkpoints.on_decline(task, n, reason, now_ms)
                return self.carry_out(declined, now_ms)
        return NOTHING

    def on_splits(
        self, operator: OperatorId, task: TaskId, answer: Answer | None, now_ms: int
    ) -> Outcome:
        """The answer to an AskForSplits of this attempt."""
        return _do(self._requests.on_answer(operator, task, answer, now_ms))

    def on_sources_snapshot(
        self,
        checkpoint_id: CheckpointId,
        states: Mapping[OperatorId, bytes],
        holds: Collection[TaskId] = (),
    ) -> Outcome:
        """The answer to a SnapshotSources of this attempt. `holds`: tasks that are to stand still
        behind it."""
        self._checkpoints.on_told(checkpoint_id)
        return _do(self._translator.on_snapshot(checkpoint_id, states, holds))

    def on_tick(self, now_ms: int) -> Outcome:
        """Time passed."""
        asked = self._requests.retry(now_ms)
        if not self.begun:
            return _do(asked)
        outcome = self.carry_out(self._checkpoints.on_tick(now_ms), now_ms)
        actions = (*outcome.actions, *asked, *self.proceed(now_ms))
        return Outcome(actions, outcome.failure, outcome.go_back)

    def next_tick_ms(self) -> int | None:
        """When splits should be asked for again, or a region goes on."""
        times = [self._requests.retry_at_ms]
        if not self._checkpoints.storing:
            times.append(self.restarts.next_ms())
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def take_over(self, left: TakeOver, now_ms: int) -> Outcome:
        """Its tasks run already, as another coordinator has left them. Those that do not are said
        to have failed behind this."""
        self.begun = True
        self._dealt = {**dict.fromkeys(self._dealt, left.newest), **left.dealt}
        self.progress.running |= self.progress.tasks
        self.progress.drained |= self.progress.tasks if left.terminal else left.drained
        self.progress.finished |= left.finished
        self.progress.committed = left.terminal
        self._alignment.resume(left.watermarks)
        told: list[Mail] = [CheckpointAborted(n) for n in left.aborted]
        if left.newest:
            told.append(CheckpointCompleted(left.newest, left.terminal))
        if not left.terminal:
            told.append(GoOn(left.seen))
        mail = [Send(task, one) for task in self._plan.tasks for one in told]
        if left.terminal:
            swept = self.carry_out(self._checkpoints.sweep(), now_ms)
            return Outcome((*mail, *swept.actions))
        asked = self._ask(left.asked)
        begun = self.carry_out(self._checkpoints.start(now_ms), now_ms)
        actions = (*mail, *self._requests.start(), *begun.actions)
        if left.ending:
            return Outcome(actions, go_back="it was being drained when its coordinator died")
        if asked.failure is None and self.progress.all_drained:
            last = self.carry_out(self._checkpoints.trigger_terminal(now_ms), now_ms)
            return Outcome((*actions, *last.actions), last.failure)
        return Outcome(actions, asked.failure or begun.failure, begun.go_back)

    # --- regions -----------------------------------------------------------------------------

    def peers(self, task: TaskId) -> tuple[TaskId, ...]:
        """Those that are restarted with it, itself among them."""
        return self.restarts.region_of(task).tasks

    def restart(self, region: Region, at_ms: int, why: str, now_ms: int) -> Outcome:
        """Stop its tasks, and begin them again not before `at_ms`. The checkpoint that is on is
        given up, for it lacks their part, unless it only has to be stored."""
        self._history.on_stopping(now_ms, region.tasks)
        numbers = self._numbers
        cancel = self.restarts.begin(
            region, numbers.newest_in(region.tasks), at_ms, numbers.newest_of_tasks()
        )
        return Outcome((cancel, *self._leave(region.tasks, why, now_ms)))

    def _leave(self, tasks: Collection[TaskId], why: str, now_ms: int) -> Actions:
        """They begin again, and are not heard until they do."""
        self.progress.restart(tasks)
        self._forget(tasks)
        return self.carry_out(self._checkpoints.on_job_restart(why), now_ms).actions

    def _forget(self, tasks: Collection[TaskId]) -> None:
        """What they have asked for and told."""
        self._requests.forget(tasks)
        self._alignment.restart(tasks)

    def on_tasks_stopped(self, attempt: Attempt, tasks: tuple[TaskId, ...], now_ms: int) -> Outcome:
        """The answer to a CancelTasks."""
        if self.restarts.on_stopped(attempt, tasks) is None:
            return NOTHING
        self._history.on_stopped(now_ms, [task for task in tasks if task in self.progress.tasks])
        return _do(self.proceed(now_ms))

    def proceed(self, now_ms: int) -> Actions:
        """Let go on what waits for its time, or for a checkpoint to be stored."""
        if self._checkpoints.storing:
            return ()
        newest = self._checkpoints.newest_complete
        return tuple(self.restarts.load(now_ms, self._numbers.next, self._floor, newest))

    def on_region_loaded(self, attempt: Attempt, latest: Latest) -> Outcome:
        """The answer to a LoadForRegion. The others have gone on from the newest complete one."""
        restart = self.restarts.find(attempt, Stage.LOADING)
        if restart is None:
            return NOTHING
        manifest, newest = latest.manifest, self._checkpoints.newest_complete
        found = 0 if manifest is None else manifest.checkpoint_id
        if found != (newest if newest > self._floor else 0):
            return Outcome(go_back=f"checkpoint {newest} is to be restored, and is not usable")
        region = restart.begins
        vertices = {task.vertex for task in region.tasks}
        restart.own_share = frozenset(v for v in vertices if found != self._dealt[v])
        restart.stage, restart.manifest = Stage.PREPARING, manifest
        stored = {} if manifest is None else manifest.enumerators
        states = {o: stored[o] for o in region.sources if o in stored}
        began = self._attempt
        return _do([RestartReaders(attempt, began, region.sources, states, region.readers)])

    def on_readers_ready(
        self, attempt: Attempt, repeated: Iterable[tuple[TaskId, Answer]], now_ms: int
    ) -> Outcome:
        """The answer to a RestartReaders."""
        restart = self.restarts.find(attempt, Stage.PREPARING)
        if restart is None:
            return NOTHING
        restart.stage, restart.repeated = Stage.STARTING, tuple(repeated)
        tasks, share = restart.begins.tasks, restart.own_share
        self._numbers.begin_region(tasks, attempt)
        self._history.on_deploying(attempt, now_ms, tasks)
        return _do([DeployTasks(attempt, tasks, restart.manifest, share, restart.stays)])

    def _runs_again(self, restart: RegionRestart, now_ms: int) -> Outcome:
        """All tasks of the region have come up."""
        self.restarts.over(restart)
        repeated = [Send(task, answer) for task, answer in restart.repeated]
        asked = self._ask(restart.asked)
        if asked.failure is not None or not self.progress.all_running:
            return Outcome((*repeated, *asked.actions), asked.failure)
        resumed = self.carry_out(self._checkpoints.resume(now_ms), now_ms)
        actions = (*repeated, *asked.actions, *resumed.actions)
        return Outcome(actions, resumed.failure, resumed.go_back, whole=True)

    # --- a part at another parallelism -----------------------------------------------------------

    def hold(
        self, tasks: tuple[TaskId, ...], now_ms: int, stays: tuple[TaskId, ...] = ()
    ) -> Outcome:
        """These are about to be stopped for a rescale, and not heard any more; those of `stays` are
        neither, but stand still. No checkpoint is taken until all of them run again. Some may be
        none of the job's."""
        self.restarts.hold((*tasks, *stays), self._numbers.last, stays)
        self.progress.restart(stays)
        why = "a part of the job is being rescaled: ask again when it runs"
        return _do(self._leave(tasks, why, now_ms))

    def stay_no_more(self, part: Part, now_ms: int) -> Outcome:
        """One of those that stay has failed before the job had its other graph: all begin again."""
        self._forget(part.stays)
        cancel = self.restarts.stay_no_more(part.stops[0])
        return NOTHING if cancel is None else self._stopping(cancel, now_ms)

    def move(self, first: TaskId, now_ms: int) -> Outcome:
        """They are to stop. `first`: of them."""
        return self._stopping(self.restarts.move(first), now_ms)

    def _stopping(self, cancel: CancelTasks, now_ms: int) -> Outcome:
        known = [task for task in cancel.tasks if task in self.progress.tasks]
        self._history.on_stopping(now_ms, known)
        return _do([cancel])

    def stop(self, tasks: tuple[TaskId, ...], now_ms: int) -> Outcome:
        """Both at once: of a rescale that goes back, or that another coordinator has begun."""
        held, moved = self.hold(tasks, now_ms), self.move(tasks[0], now_ms)
        return _do([*held.actions, *moved.actions])

    def may_adopt(self, first: TaskId) -> bool:
        """Whether they have stopped, and no checkpoint is being stored."""
        return self.restarts.is_moving(first) and not self._checkpoints.storing

    def adopt(self, plan: JobPlan, part: Part, now_ms: int) -> Outcome:
        """The job's from now on: what starts of the part begins, and the other tasks are those that
        run, or stay."""
        self._plan = plan
        self.progress.adopt(frozenset(plan.tasks))
        self.restarts.adopt(plan.regions, part.then, part.starts)
        self._alignment.adopt(plan.aligned, part.starts.tasks)
        newest = self._checkpoints.newest_complete
        self._dealt.update({task.vertex: newest for task in part.starts.tasks})
        return _do(self.proceed(now_ms))

    # --- both ------------------------------------------------------------------------------------

    def _ask(self, readers: Iterable[Reader]) -> Outcome:
        asked: list[Action] = []
        for operator, task in readers:
            try:
                asked += self._requests.request(operator, task)
            except StromError as error:
                return self._broken(str(error))
        return _do(asked)

    def carry_out(self, actions: protocol.Actions, now_ms: int) -> Outcome:
        """Turn what the checkpoint protocol asks for into actions of the host."""
        running = self._attempt if self.progress.all_running else None
        result = self._translator.translate(actions, running, now_ms, self._hearing)
        self.progress.committed |= result.committed
        failure = None if result.failure is None else Failure(result.failure)
        if result.halted:
            self.progress.drained |= self.progress.tasks
        return Outcome(tuple(result.actions), failure, result.go_back)

    def _hearing(self) -> list[TaskId]:
        """Those that are told what becomes of checkpoints."""
        tasks = self._plan.tasks if self.begun else ()
        return [task for task in tasks if self.restarts.hears(task)]

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self.progress.validate()
        self._requests.validate()
        self.restarts.validate()
        missing = self.progress.tasks - self.progress.running
        assert not self.begun or missing <= {t for r in self.restarts.all for t in r.region.tasks}

    def _advance(self, report: TaskRunning | TaskDrained | TaskFinished, now_ms: int) -> Outcome:
        """A task came one stage further; one that says so twice is heard once."""
        progress, task = self.progress, report.task
        match report:
            case TaskRunning() if task not in progress.running:
                progress.running.add(task)
                restart = self.restarts.of(task)
                if restart is not None and progress.running.issuperset(restart.region.tasks):
                    return self._runs_again(restart, now_ms)
                if progress.all_running and not self.begun:
                    return self._begin(now_ms)
            case TaskDrained() if task not in progress.running:
                return self._broken(f"task {self._plan.labels[task]} drained before it was running")
            case TaskDrained() if task not in progress.drained:
                progress.drained.add(task)
                if progress.all_drained:
                    return self.carry_out(self._checkpoints.trigger_terminal(now_ms), now_ms)
            case TaskFinished() if not progress.committed:
                label = self._plan.labels[task]
                return self._broken(f"task {label} finished before the terminal checkpoint")
            case TaskFinished():
                progress.finished.add(task)
        return NOTHING

    def _begin(self, now_ms: int) -> Outcome:
        """All tasks run: data flows, and requests for splits made so far are asked. Unless the job
        was stopped: then they commit, and end."""
        self.begun = True
        if self._halted_at is not None:
            self.progress.drained |= self.progress.tasks
            self.progress.committed = True
            done = CheckpointCompleted(self._halted_at, terminal=True)
            return _do(Send(task, done) for task in self._plan.tasks)
        outcome = self.carry_out(self._checkpoints.start(now_ms), now_ms)
        return Outcome((*outcome.actions, *self._requests.start()), outcome.failure)

    def _broken(self, cause: str) -> Outcome:
        return Outcome(failure=Failure(cause))


def _do(actions: Iterable[Action]) -> Outcome:
    return Outcome(tuple(actions))
