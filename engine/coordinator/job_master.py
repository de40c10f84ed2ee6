"""The life of one job as a pure state machine: events in, actions out.

The host calls one method per event, from one thread, and carries out the returned actions in order
(`actions.py` says what each asks for). No event is answered late or twice by the host, but reports
and losses of tasks may come at any time; those of former attempts are ignored here.

    event                        called when
    start                        once, first
    on_loaded / on_load_failed   LoadLatest is done
    on_tasks_found               FindTasks is done
    on_sources_ready             PrepareSources, or TakeOverSources, is done
    on_splits                    AskForSplits is done
    on_sources_snapshot          SnapshotSources is done
    on_source_failed             one of these three could not be done
    on_deployed / ..._failed     DeployAll or DeployTasks is done (or any part of it could not be)
    on_little_room               the same could not be: there is room for fewer subtasks only
    on_tasks_stopped             CancelTasks is done
    on_region_loaded / ..._failed, on_readers_ready     LoadForRegion, RestartReaders are done
    on_report                    a task said something (engine/messages.py)
    on_task_lost                 a task's process or actor died, or cannot be reached
    on_all_stopped               CancelAll is done
    on_stored / on_store_failed  StoreCheckpoint is done
    on_fenced                    StoreCheckpoint was refused: another has taken over the job
    on_trigger                   a user wants a checkpoint now
    on_savepoint                 a user wants a savepoint, after which the job may be to end
    on_cancel                    a user wants the job to stop; in any state, any number of times
    on_rescale                   a user wants the job to go on at other parallelisms, its load asks
                                 for them, or there is room for them
    on_room, on_graph_kept       MakeRoom, KeepGraph are done
    on_tick                      the time of the last TickAt came; early and extra calls do no harm

The steps it goes through and what each waits for stand in `lifecycle.py`, what leads from one to
the next in `transitions.py`, and what happens between the deployment of an attempt and its end in
`running_attempt.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.savepoints import Savepoint
from ...checkpoint.storage import Latest
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ...state.key_group_deals import Balance
from ..accounts import TaskAccount
from ..graph.model import ExecutionGraph
from ..messages import CheckpointAcknowledged, MetricsReported, TaskReport, ValuePublished
from .actions import Actions, AnswerSavepoint, Publish, Warn
from .announced_ticks import AnnouncedTicks
from .askers import Asker
from .failures import Failure, Failures
from .handover import Handover
from .lifecycle import Step
from .plan import make_plan
from .region_restarts import Stage
from .rescales import Rescales
from .restart import make_policy
from .savepoint_rules import why_no_savepoint
from .shown_master import ShownMaster
from .split_requests import Answer
from .starting_point import StartingPoint
from .takeover import TakeOver
from .transitions import Transitions

NO_BALANCE: Final[Mapping[str, Balance]] = MappingProxyType({})


class JobMaster(ShownMaster):
    """Decides everything about one job, over all its attempts."""

    def __init__(
        self,
        job_id: str,
        graph: ExecutionGraph,
        rng: random.Random,
        *,
        resume: bool = True,
        allow_unmatched: bool = False,
        first_attempt: int = 0,
        takes_over: bool = False,
        left: Handover[ExecutionGraph] | None = None,
    ) -> None:
        """`resume`: start from the newest checkpoint in the job's storage, if there is one; else
        checkpoints that were there before are neither used nor touched. `allow_unmatched`: state
        of operators that the job lacks may be dropped at a restore. `rng` draws restart jitter.
        `first_attempt`: greater than any of the masters that the job had before. `takes_over`: the
        job may run, as the last of these has left it (`takeover`). `left`: what that has decided,
        of which `now` is this graph; None: there was none."""
        left = left or Handover()
        plan = make_plan(job_id, graph)
        starting_point = StartingPoint(plan, resume, allow_unmatched)
        policy = make_policy(plan.config.effective_restart, rng, left.failed)
        job = Transitions(
            plan,
            graph,
            starting_point,
            Failures(policy, left.restarts),
            first_attempt,
            takes_over,
            Rescales(graph, left),
        )
        super().__init__(job)
        self._ticks = AnnouncedTicks()
        self._published: set[tuple[OperatorId, str]] = set()

    # --- events of the host ------------------------------------------------------------------

    def start(self, now_ms: int) -> Actions:
        """Begin. The answer is always a LoadLatest."""
        if self._life.step is not Step.NEW:
            raise self._life.illegal("started twice")
        self._life.record("start")
        self._history.on_status(JobStatus.CREATED, now_ms)
        return self._answer(self._job.load())

    def on_loaded(self, latest: Latest, now_ms: int) -> Actions:
        """The answer to LoadLatest. Ignored if the job was cancelled meanwhile."""
        self._life.record(f"loaded {latest.manifest and latest.manifest.checkpoint_id}")
        if self._life.step is not Step.LOADING:
            return self._answer()
        latest = self._job.starting_point.admit(latest, first=self._numbers.none_yet)
        news = tuple(Warn(text) for text in self._job.starting_point.news(latest))
        if self._job.takes_over:
            return self._answer(news, self._job.find(latest))
        return self._answer(news, self._job.begin(latest, now_ms))

    def on_tasks_found(self, accounts: Sequence[TaskAccount], now_ms: int) -> Actions:
        """The answer to FindTasks, in the same turn."""
        self._life.record(f"found {len(accounts)} tasks")
        found = self._job.on_found(accounts, now_ms)
        left = self._job.left
        told = () if left is None else [self._handle(value, now_ms) for value in left.published]
        return self._answer(found, *told)

    def on_load_failed(self, reason: str, now_ms: int, recoverable: bool = True) -> Actions:
        """The storage could not be read. Not `recoverable`: trying again would give the same."""
        self._life.record("load failed")
        if self._life.step is not Step.LOADING:
            return self._answer()
        cause = f"the latest checkpoint could not be loaded: {reason}"
        return self._answer(self._job.fail(Failure(cause, recoverable), now_ms))

    def on_sources_ready(self, attempt: Attempt, now_ms: int) -> Actions:
        """The answer to PrepareSources. Ignored if the job was cancelled meanwhile."""
        self._life.record(f"sources of {attempt} ready")
        if self._job.left is not None and attempt == self._numbers.began:
            return self._answer(self._go_on(self._job.left, now_ms))
        if attempt != self._numbers.began or self._job.start is None:
            return self._answer()
        return self._answer(self._job.deploy(self._job.start, now_ms))

    def on_splits(
        self,
        attempt: Attempt,
        operator: OperatorId,
        task: TaskId,
        answer: Answer | None,
        now_ms: int,
    ) -> Actions:
        """The answer to AskForSplits; None: the enumerator has no splits for the reader now."""
        self._life.record(f"splits for {task}")
        if attempt != self._numbers.began or self._job.running is None:
            return self._answer()
        outcome = self._job.running.on_splits(operator, task, answer, now_ms)
        return self._answer(self._job.after(outcome, now_ms))

    def on_sources_snapshot(
        self,
        attempt: Attempt,
        checkpoint_id: CheckpointId,
        states: Mapping[OperatorId, bytes],
        now_ms: int,
    ) -> Actions:
        """The answer to SnapshotSources: the pickled state of each enumerator."""
        self._life.record(f"snapshot {checkpoint_id} of the sources")
        if attempt != self._numbers.began or self._job.running is None:
            return self._answer()
        return self._answer(
            self._job.rescale_steps.on_sources_snapshot(checkpoint_id, states, now_ms)
        )

    def on_source_failed(
        self, attempt: Attempt, cause: str, now_ms: int, recoverable: bool = True
    ) -> Actions:
        """An enumerator of the attempt could not be made, or raised when it was called; or a sink
        refused the job, which is not `recoverable`."""
        self._life.record(f"a source of {attempt} failed")
        if attempt != self._numbers.began:
            return self._answer()
        return self._answer(self._job.fail(Failure(cause, recoverable), now_ms))

    def on_deployed(self, attempt: Attempt, now_ms: int) -> Actions:
        """Every task of the attempt was started. TaskRunning may come before or after."""
        self._life.record(f"deployed {attempt}")
        return self._answer()

    def on_deploy_failed(self, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """Some task could not be started. The answer is a CancelAll for those that were."""
        self._life.record(f"deploy of {attempt} failed")
        if self._job.running is None:
            return self._answer()
        restart = self._job.running.restarts.find(attempt, Stage.STARTING)
        if restart is None and attempt != self._numbers.began:
            return self._answer()
        what = "the job" if restart is None else "a part of the job"
        failure = Failure(f"{what} could not be deployed: {reason}")
        region = None if restart is None else restart.region
        return self._answer(self._job.fail(failure, now_ms, region))

    def on_little_room(
        self, attempt: Attempt, smaller: ExecutionGraph, why: str, now_ms: int
    ) -> Actions:
        """Some task could not be started, for there is room for this only: the job goes on as
        that. It differs from that of now in parallelisms only."""
        self._life.record(f"little room for {attempt}")
        running = self._job.running
        if running is None:
            return self._answer()
        restart = running.restarts.find(attempt, Stage.STARTING)
        if restart is None and attempt != self._numbers.began:
            return self._answer()
        region = None if restart is None else restart.region
        return self._answer(self._job.rescale_steps.shrink(smaller, why, now_ms, region))

    def on_tasks_stopped(self, attempt: Attempt, tasks: tuple[TaskId, ...], now_ms: int) -> Actions:
        """The answer to CancelTasks."""
        self._life.record(f"stopped {len(tasks)} tasks of {attempt}")
        if self._job.running is None:
            return self._answer()
        outcome = self._job.running.on_tasks_stopped(attempt, tasks, now_ms)
        return self._answer(self._job.after(outcome, now_ms))

    def on_region_loaded(self, attempt: Attempt, latest: Latest, now_ms: int) -> Actions:
        """The answer to LoadForRegion."""
        self._life.record(f"loaded {latest.manifest and latest.manifest.checkpoint_id} again")
        if self._job.running is None:
            return self._answer()
        outcome = self._job.running.on_region_loaded(attempt, latest)
        return self._answer(self._job.after(outcome, now_ms))

    def on_region_failed(self, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """The other answer: the storage could not be read. The whole job may fare better."""
        self._life.record("load failed")
        if (
            self._job.running is None
            or self._job.running.restarts.find(attempt, Stage.LOADING) is None
        ):
            return self._answer()
        cause = f"the latest checkpoint could not be loaded: {reason}"
        return self._answer(self._job.fail(Failure(cause), now_ms))

    def on_readers_ready(
        self, attempt: Attempt, repeated: Iterable[tuple[TaskId, Answer]], now_ms: int
    ) -> Actions:
        """The answer to RestartReaders: what readers were given since the checkpoint."""
        self._life.record(f"readers of {attempt} ready")
        if self._job.running is None:
            return self._answer()
        outcome = self._job.running.on_readers_ready(attempt, repeated, now_ms)
        restart = self._job.running.restarts.find(attempt, Stage.STARTING)
        if restart is not None:
            self._job.figures.forget(restart.begins.tasks)
        return self._answer(self._job.after(outcome, now_ms))

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """A task's process died. Expected of tasks that finished; while stopping it explains what
        was a symptom only, and is ignored otherwise."""
        self._life.record(f"lost {task} of {attempt}")
        if self._job.left is not None:
            self._job.early.append(partial(self.on_task_lost, task, attempt, reason))
            return self._answer()
        if attempt != self._numbers.of(task) or task not in self._plan.labels:
            return self._answer()
        cause = f"task {self._plan.labels[task]} was lost: {reason}"
        running = self._job.running
        ending = running is not None and running.restarts.is_ending(task)
        if running is not None and not ending and task not in running.progress.finished:
            self._history.on_lost(task, now_ms)
            return self._answer(self._job.fail(Failure(cause, task=task), now_ms))
        if self._life.step is Step.STOPPING or (running is not None and ending):
            self._job.failover.explain(task, cause, running)
        return self._answer()

    def on_all_stopped(self, attempt: Attempt, now_ms: int) -> Actions:
        """The answer to CancelAll."""
        self._life.record(f"all stopped of {attempt}")
        if self._life.step is not Step.STOPPING or attempt != self._numbers.last:
            return self._answer()
        self._history.on_stopped(now_ms)
        self._life.go(Step.WAITING)
        return self._answer(self._job.proceed(now_ms))

    def on_stored(self, checkpoint_id: CheckpointId, now_ms: int) -> Actions:
        """The answer to StoreCheckpoint: published."""
        self._life.record(f"stored {checkpoint_id}")
        return self._on_store(self._checkpoints.on_stored(checkpoint_id, now_ms), now_ms)

    def on_store_failed(self, checkpoint_id: CheckpointId, why: str, now_ms: int) -> Actions:
        """The answer to StoreCheckpoint: not published, and nothing of it visible."""
        self._life.record(f"store of {checkpoint_id} failed")
        return self._on_store(self._checkpoints.on_store_failed(checkpoint_id, why, now_ms), now_ms)

    def on_fenced(self, checkpoint_id: CheckpointId, why: str, now_ms: int) -> Actions:
        """The answer to StoreCheckpoint: nothing was published, and nothing will be. The job fails
        for good, whatever is tolerated."""
        self._life.record(f"fenced at {checkpoint_id}")
        failed: Actions = ()
        if not self._life.status.is_terminal:
            failed = self._job.fail(Failure(why, recoverable=False), now_ms)
        failed += self._on_store(
            self._checkpoints.on_store_failed(checkpoint_id, why, now_ms), now_ms
        )
        return self._answer(failed)

    def on_trigger(self, now_ms: int) -> Actions:
        """Take a checkpoint now; ignored unless the job is running and not about to finish."""
        self._life.record("trigger")
        if self._life.step is not Step.RUNNING or self._job.running is None:
            return self._answer()
        if self._job.running.progress.all_drained or self._job.running.restarts:
            return self._answer()
        return self._answer(
            self._job.carry_out(self._checkpoints.trigger(now_ms, "manual"), now_ms)
        )

    def on_savepoint(self, savepoint: Savepoint, now_ms: int) -> Actions:
        """Take a savepoint, and maybe stop the job with it. An AnswerSavepoint for it comes now or
        later, exactly one."""
        self._life.record(f"savepoint {savepoint.request}")
        why = why_no_savepoint(savepoint, self._plan, self._life, self._job.running)
        if self._job.rescales.part is not None:
            why = "a part of the job is being rescaled: ask again when it runs"
        way = self._job.rescales.give_way("a savepoint") if why is None else ()
        if why is None and self._job.rescales.now is not None:
            why = "the job is being rescaled: ask again when that is done"
        if why is not None and not self._checkpoints.repeats(savepoint):
            error = f"no savepoint was taken: {why}"
            return self._answer(way, (AnswerSavepoint(savepoint.request, error=error),))
        actions = self._checkpoints.request_savepoint(savepoint, now_ms)
        return self._answer(way, self._job.carry_out(actions, now_ms))

    def on_rescale(
        self,
        request: int,
        graph: ExecutionGraph,
        asker: Asker,
        now_ms: int,
        balance: Mapping[str, Balance] = NO_BALANCE,
    ) -> Actions:
        """Go on as `graph`, which differs from that of now in parallelisms and deals only. An
        AnswerRescale for it comes now or later, exactly one. `balance`: as of `RescaleFigures`."""
        self._life.record(f"rescale {request} for {asker.value}")
        return self._answer(self._job.rescale_steps.rescale(request, graph, asker, balance, now_ms))

    def on_room(self, request: int, why: str | None, now_ms: int) -> Actions:
        """The answer to MakeRoom; `why`: there is none."""
        self._life.record(f"room for {request}")
        return self._answer(self._job.rescale_steps.on_room(request, why, now_ms))

    def on_graph_kept(self, now_ms: int) -> Actions:
        """The answer to KeepGraph."""
        self._life.record("graph kept")
        return self._answer(self._job.rescale_steps.on_graph_kept(now_ms))

    def on_cancel(self, now_ms: int) -> Actions:
        """Stop the job. Idempotent, and without effect on a job that is over."""
        self._life.record("cancel")
        if self._life.status.is_terminal or self._life.status is JobStatus.CANCELLING:
            return self._answer()
        return self._answer(self._job.stop(JobStatus.CANCELLING, now_ms))

    def on_tick(self, now_ms: int) -> Actions:
        """Time passed."""
        self._ticks.came()
        within: Actions = ()
        if self._job.running is not None:
            within = self._job.after(self._job.running.on_tick(now_ms), now_ms)
        elif self._life.step is not Step.ENDED:
            within = self._job.carry_out(self._checkpoints.on_tick(now_ms), now_ms)
        return self._answer(within, self._job.proceed(now_ms))

    # --- events of tasks ---------------------------------------------------------------------

    def on_report(self, report: TaskReport, now_ms: int) -> Actions:
        """A task said something. Ignored if it is not of the current attempt, or none that the job
        has any more."""
        if self._life.step is Step.ENDED or report.attempt != self._numbers.of(report.task):
            return self._answer()
        if report.task not in self._plan.labels:
            if all(report.task.vertex != task.vertex for task in self._plan.tasks):
                raise self._life.illegal(f"{report.task} reports but is no task of this job")
            return self._answer()
        actions = self._handle(report, now_ms)
        if not actions and isinstance(report, MetricsReported | CheckpointAcknowledged):
            return ()  # neither changes when there is something to do
        return self._answer(actions)

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self._job.validate()

    def _handle(self, report: TaskReport, now_ms: int) -> Actions:
        match report:
            case ValuePublished(operator=operator, key=key, value=value):
                if (operator, key) in self._published:
                    return ()
                self._published.add((operator, key))
                return (Publish(operator, key, value),)
            case MetricsReported():
                self._job.figures.on_report(report)
                return ()
        if self._job.left is not None:
            self._job.early.append(partial(self.on_report, report))
            return ()
        if isinstance(report, CheckpointAcknowledged) and report.snapshot.in_flight is not None:
            self._job.rescales.on_overtaken(report.checkpoint_id)
        self._life.record(type(report).__name__, "of", report.task)
        self._history.on_report(report, now_ms)
        if self._job.running is None:
            return ()
        return self._job.after(self._job.running.on_report(report, now_ms), now_ms)

    def _go_on(self, left: TakeOver, now_ms: int) -> Actions:
        """Tasks that another master has left are this one's; then comes what they said since."""
        early, self._job.early = self._job.early, []
        going = self._job.go_on(left, now_ms)
        heard = [event(now_ms) for event in early]
        return tuple(action for part in (going, *heard) for action in part)

    def _on_store(self, actions: protocol.Actions, now_ms: int) -> Actions:
        """What became of a checkpoint. A job that ended without waiting for it only counts it."""
        done = self._job.carry_out(actions, now_ms)
        if self._life.step is Step.ENDED:
            return ()
        within = () if self._job.running is None else self._job.running.proceed(now_ms)
        return self._answer(done, within, self._job.proceed(now_ms))

    def _answer(self, *parts: Actions) -> Actions:
        """The actions of this event, with a TickAt if the next time is not announced."""
        actions = tuple(action for part in parts for action in part)
        return (*actions, *self._ticks.announce(self._job.ticks_due()))
