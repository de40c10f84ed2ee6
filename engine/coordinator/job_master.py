"""The life of one job as a pure state machine: events in, actions out.

The host calls one method per event, from one thread, and carries out the returned actions in order
(`actions.py` says what each asks for). No event is answered late or twice by the host, but reports
and losses of tasks may come at any time; those of former attempts are ignored here.

    event                        called when
    start                        once, first
    on_loaded / on_load_failed   LoadLatest is done
    on_sources_ready             PrepareSources is done
    on_splits                    AskForSplits is done
    on_sources_snapshot          SnapshotSources is done
    on_source_failed             one of these three could not be done
    on_deployed / ..._failed     DeployAll or DeployTasks is done (or any part of it could not be)
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
    on_tick                      the time of the last TickAt came; early and extra calls do no harm

The steps it goes through and what each waits for stand in `lifecycle.py`, what happens between
the deployment of an attempt and its end in `running_attempt.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.manifest import Manifest
from ...checkpoint.savepoints import Savepoint
from ...checkpoint.storage import Latest
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..graph.model import ExecutionGraph
from ..messages import MetricsReported, TaskReport, ValuePublished
from .actions import (
    Actions,
    AnswerSavepoint,
    CancelAll,
    CloseSources,
    DeployAll,
    JobEnded,
    LoadLatest,
    PrepareSources,
    Publish,
    TickAt,
    Warn,
)
from .checkpointing import CheckpointTranslator
from .failures import Failure, Failures
from .history import JobHistory
from .job_state import JobState
from .lifecycle import Lifecycle, Step
from .plan import make_plan
from .region_restarts import Stage
from .regions import Region
from .restart import make_policy
from .running_attempt import Outcome, RunningAttempt
from .split_requests import Answer
from .starting_point import Start, StartingPoint


class JobMaster:
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
    ) -> None:
        """`resume`: start from the newest checkpoint in the job's storage, if there is one; else
        checkpoints that were there before are neither used nor touched. `allow_unmatched`: state
        of operators that the job lacks may be dropped at a restore. `rng` draws restart jitter.
        `first_attempt`: greater than any of the masters that the job had before."""
        plan = make_plan(job_id, graph)
        self._plan = plan
        self._life = Lifecycle(plan.job_name)
        self._starting_point = StartingPoint(plan, resume, allow_unmatched)
        self._failures = Failures(make_policy(plan.config.effective_restart, rng))
        self._checkpoints = CheckpointCoordinator(
            plan.tasks, plan.config.checkpoint, labels=plan.labels
        )
        self._history = JobHistory(plan.tasks)
        self._translator = CheckpointTranslator(plan, self._history)
        self._first_attempt = first_attempt
        self._attempt = first_attempt - 1
        """The last number given, to all tasks or a region; one less than the first before that;
        only grows."""
        self._began = self._attempt
        """Of the last PrepareSources."""
        self._attempts: dict[TaskId, Attempt] = {}
        """Those that the tasks have, or had."""
        self._start: Start | None = None
        """What the current attempt begins with; not None exactly while PREPARING."""
        self._running: RunningAttempt | None = None
        """The current attempt; None outside DEPLOYING and RUNNING."""
        self._patience_ms = int(plan.config.cancellation_timeout.total_seconds() * 1000) // 2
        self._give_up_ms = 0
        """When a job that is to end waits no more for a checkpoint that is being stored."""
        self._published: set[tuple[OperatorId, str]] = set()
        self._metrics: dict[TaskId, dict[str, Any]] = {}
        """Of the current attempt, or the last one."""
        self._announced_ms: int | None = None
        """The TickAt that the host has not answered yet."""

    # --- events of the host ------------------------------------------------------------------

    def start(self, now_ms: int) -> Actions:
        """Begin. The answer is always a LoadLatest."""
        if self._life.step is not Step.NEW:
            raise self._life.illegal("started twice")
        self._life.record("start")
        self._history.on_status(JobStatus.CREATED, now_ms)
        return self._answer(self._load())

    def on_loaded(self, latest: Latest, now_ms: int) -> Actions:
        """The answer to LoadLatest. Ignored if the job was cancelled meanwhile."""
        self._life.record(f"loaded {latest.manifest and latest.manifest.checkpoint_id}")
        if self._life.step is not Step.LOADING:
            return self._answer()
        latest = self._starting_point.admit(latest, first=self._attempt < self._first_attempt)
        news = tuple(Warn(text) for text in self._starting_point.news(latest))
        match self._starting_point.prepare(latest, self._checkpoints):
            case Failure() as failure:
                return self._answer(news, self._fail(failure, now_ms))
            case Start() as start:
                return self._answer(news, self._prepare(start))

    def on_load_failed(self, reason: str, now_ms: int, recoverable: bool = True) -> Actions:
        """The storage could not be read. Not `recoverable`: trying again would give the same."""
        self._life.record("load failed")
        if self._life.step is not Step.LOADING:
            return self._answer()
        cause = f"the latest checkpoint could not be loaded: {reason}"
        return self._answer(self._fail(Failure(cause, recoverable), now_ms))

    def on_sources_ready(self, attempt: Attempt, now_ms: int) -> Actions:
        """The answer to PrepareSources. Ignored if the job was cancelled meanwhile."""
        self._life.record(f"sources of {attempt} ready")
        if attempt != self._began or self._start is None:
            return self._answer()
        return self._answer(self._deploy(self._start, now_ms))

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
        if attempt != self._began or self._running is None:
            return self._answer()
        outcome = self._running.on_splits(operator, task, answer, now_ms)
        return self._answer(self._after(outcome, now_ms))

    def on_sources_snapshot(
        self,
        attempt: Attempt,
        checkpoint_id: CheckpointId,
        states: Mapping[OperatorId, bytes],
        now_ms: int,
    ) -> Actions:
        """The answer to SnapshotSources: the pickled state of each enumerator."""
        self._life.record(f"snapshot {checkpoint_id} of the sources")
        if attempt != self._began or self._running is None:
            return self._answer()
        outcome = self._running.on_sources_snapshot(checkpoint_id, states)
        return self._answer(self._after(outcome, now_ms))

    def on_source_failed(
        self, attempt: Attempt, cause: str, now_ms: int, recoverable: bool = True
    ) -> Actions:
        """An enumerator of the attempt could not be made, or raised when it was called; or a sink
        refused the job, which is not `recoverable`."""
        self._life.record(f"a source of {attempt} failed")
        if attempt != self._began:
            return self._answer()
        return self._answer(self._fail(Failure(cause, recoverable), now_ms))

    def on_deployed(self, attempt: Attempt, now_ms: int) -> Actions:
        """Every task of the attempt was started. TaskRunning may come before or after."""
        self._life.record(f"deployed {attempt}")
        return self._answer()

    def on_deploy_failed(self, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """Some task could not be started. The answer is a CancelAll for those that were."""
        self._life.record(f"deploy of {attempt} failed")
        if self._running is None:
            return self._answer()
        restart = self._running.restarts.find(attempt, Stage.STARTING)
        if restart is None and attempt != self._began:
            return self._answer()
        what = "the job" if restart is None else "a part of the job"
        failure = Failure(f"{what} could not be deployed: {reason}")
        region = None if restart is None else restart.region
        return self._answer(self._fail(failure, now_ms, region))

    def on_tasks_stopped(self, attempt: Attempt, tasks: tuple[TaskId, ...], now_ms: int) -> Actions:
        """The answer to CancelTasks."""
        self._life.record(f"stopped {len(tasks)} tasks of {attempt}")
        if self._running is None:
            return self._answer()
        outcome = self._running.on_tasks_stopped(attempt, tasks, now_ms)
        return self._answer(self._after(outcome, now_ms))

    def on_region_loaded(self, attempt: Attempt, latest: Latest, now_ms: int) -> Actions:
        """The answer to LoadForRegion."""
        self._life.record(f"loaded {latest.manifest and latest.manifest.checkpoint_id} again")
        if self._running is None:
            return self._answer()
        outcome = self._running.on_region_loaded(attempt, latest)
        return self._answer(self._after(outcome, now_ms))

    def on_region_failed(self, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """The other answer: the storage could not be read. The whole job may fare better."""
        self._life.record("load failed")
        if self._running is None or self._running.restarts.find(attempt, Stage.LOADING) is None:
            return self._answer()
        cause = f"the latest checkpoint could not be loaded: {reason}"
        return self._answer(self._fail(Failure(cause), now_ms))

    def on_readers_ready(
        self, attempt: Attempt, repeated: Iterable[tuple[TaskId, Answer]], now_ms: int
    ) -> Actions:
        """The answer to RestartReaders: what readers were given since the checkpoint."""
        self._life.record(f"readers of {attempt} ready")
        if self._running is None:
            return self._answer()
        outcome = self._running.on_readers_ready(attempt, repeated, now_ms)
        for task in [task for task, now in self._attempts.items() if now == attempt]:
            self._metrics.pop(task, None)
        return self._answer(self._after(outcome, now_ms))

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """A task's process died. Expected of tasks that finished; while stopping it explains what
        was a symptom only, and is ignored otherwise."""
        self._life.record(f"lost {task} of {attempt}")
        cause = f"task {self._plan.labels[task]} was lost: {reason}"
        if attempt != self._attempts.get(task, self._attempt):
            return self._answer()
        running = self._running
        ending = running is not None and running.restarts.is_ending(task)
        if running is not None and not ending and task not in running.progress.finished:
            self._history.on_lost(task, now_ms)
            return self._answer(self._fail(Failure(cause, task=task), now_ms))
        if self._life.step is Step.STOPPING or (running is not None and ending):
            if running is not None and self._failures.last_task not in running.peers(task):
                return self._answer()
            self._failures.on_loss(cause)
            self._history.on_explained(self._failures.last_cause, task, self._host_of(task))
        return self._answer()

    def on_all_stopped(self, attempt: Attempt, now_ms: int) -> Actions:
        """The answer to CancelAll."""
        self._life.record(f"all stopped of {attempt}")
        if self._life.step is not Step.STOPPING or attempt != self._attempt:
            return self._answer()
        self._history.on_stopped(now_ms)
        self._life.go(Step.WAITING)
        return self._answer(self._proceed(now_ms))

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
            failed = self._fail(Failure(why, recoverable=False), now_ms)
        failed += self._on_store(
            self._checkpoints.on_store_failed(checkpoint_id, why, now_ms), now_ms
        )
        return self._answer(failed)

    def on_trigger(self, now_ms: int) -> Actions:
        """Take a checkpoint now; ignored unless the job is running and not about to finish."""
        self._life.record("trigger")
        if self._life.step is not Step.RUNNING or self._running is None:
            return self._answer()
        if self._running.progress.all_drained or self._running.restarts:
            return self._answer()
        return self._answer(self._carry_out(self._checkpoints.trigger(now_ms, "manual"), now_ms))

    def on_savepoint(self, savepoint: Savepoint, now_ms: int) -> Actions:
        """Take a savepoint, and maybe stop the job with it. An AnswerSavepoint for it comes now or
        later, exactly one."""
        self._life.record(f"savepoint {savepoint.request}")
        why = self._why_no_savepoint(savepoint)
        if why is not None:
            error = f"no savepoint was taken: {why}"
            return self._answer((AnswerSavepoint(savepoint.request, error=error),))
        actions = self._checkpoints.request_savepoint(savepoint, now_ms)
        return self._answer(self._carry_out(actions, now_ms))

    def on_cancel(self, now_ms: int) -> Actions:
        """Stop the job. Idempotent, and without effect on a job that is over."""
        self._life.record("cancel")
        if self._life.status.is_terminal or self._life.status is JobStatus.CANCELLING:
            return self._answer()
        return self._answer(self._stop(JobStatus.CANCELLING, now_ms))

    def on_tick(self, now_ms: int) -> Actions:
        """Time passed."""
        self._announced_ms = None
        within: Actions = ()
        if self._running is not None:
            within = self._after(self._running.on_tick(now_ms), now_ms)
        elif self._life.step is not Step.ENDED:
            within = self._carry_out(self._checkpoints.on_tick(now_ms), now_ms)
        return self._answer(within, self._proceed(now_ms))

    # --- events of tasks ---------------------------------------------------------------------

    def on_report(self, report: TaskReport, now_ms: int) -> Actions:
        """A task said something. Ignored if it is not of the current attempt."""
        if self._life.step is Step.ENDED:
            return self._answer()
        if report.attempt != self._attempts.get(report.task, self._attempt):
            return self._answer()
        if report.task not in self._plan.labels:
            raise self._life.illegal(f"{report.task} reports but is no task of this job")
        return self._answer(self._handle(report, now_ms))

    def why_not(self, manifest: Manifest) -> str | None:
        """Why the job must not start from a checkpoint, if so. From any thread."""
        return self._starting_point.why_not(manifest)

    @property
    def labels(self) -> Mapping[TaskId, str]:
        """What the tasks are called, as in `Map (1/2)`."""
        return self._plan.labels

    @property
    def shared_sources(self) -> frozenset[OperatorId]:
        """Sources of which single readers may begin again."""
        return self._plan.shared_sources

    def status(self) -> JobState:
        """The job at this moment."""
        return JobState(
            job_id=self._plan.job_id,
            name=self._plan.job_name,
            status=self._life.status,
            attempt=Attempt(max(self._first_attempt, self._attempt)),
            restarts=self._failures.restarts,
            running_tasks=0 if self._running is None else len(self._running.progress.running),
            total_tasks=len(self._plan.tasks),
            checkpoints=self._checkpoints.statistics(),
            last_failure=self._failures.last_cause,
            metrics=dict(self._metrics),
            history=self._history.picture,
        )

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self._life.validate()
        self._checkpoints.validate()
        assert (self._start is not None) == (self._life.step is Step.PREPARING)
        assert (self._running is not None) == self._life.deployed
        self._translator.validate(self._checkpoints.pending)
        if self._running is not None:
            self._running.validate()
            assert (self._life.step is Step.RUNNING) == self._running.begun

    def _handle(self, report: TaskReport, now_ms: int) -> Actions:
        match report:
            case ValuePublished(operator=operator, key=key, value=value):
                if (operator, key) in self._published:
                    return ()
                self._published.add((operator, key))
                return (Publish(operator, key, value),)
            case MetricsReported(task=task, metrics=metrics):
                self._metrics[task] = metrics
                return ()
        self._life.record(f"{type(report).__name__} of {report.task}")
        self._history.on_report(report, now_ms)
        if self._running is None:
            return ()
        return self._after(self._running.on_report(report, now_ms), now_ms)

    def _after(self, outcome: Outcome, now_ms: int) -> Actions:
        """What an event within the current attempt means for the job."""
        assert self._running is not None
        progress = self._running.progress
        if progress.all_running and self._life.step is Step.DEPLOYING:
            self._move(JobStatus.RUNNING, now_ms)
            self._life.go(Step.RUNNING)
            self._failures.on_stable(now_ms)
        if outcome.whole:
            self._failures.on_stable(now_ms)
        if outcome.failure is not None:
            return (*outcome.actions, *self._fail(outcome.failure, now_ms))
        if outcome.go_back is not None:
            status = self._failures.on_setback(outcome.go_back, now_ms)
            self._history.on_failure(outcome.go_back, None, Attempt(self._attempt), now_ms)
            return (*outcome.actions, *self._stop(status, now_ms))
        if progress.all_finished:
            return (*outcome.actions, *self._end(JobStatus.FINISHED, now_ms))
        return outcome.actions

    def _on_store(self, actions: protocol.Actions, now_ms: int) -> Actions:
        """What became of a checkpoint. A job that ended without waiting for it only counts it."""
        done = self._carry_out(actions, now_ms)
        if self._life.step is Step.ENDED:
            return ()
        within = () if self._running is None else self._running.proceed(now_ms)
        return self._answer(done, within, self._proceed(now_ms))

    # --- transitions -------------------------------------------------------------------------

    def _load(self) -> Actions:
        self._life.go(Step.LOADING)
        return (LoadLatest(self._starting_point.floor),)

    def _prepare(self, start: Start) -> Actions:
        self._began = self._next_attempt()
        self._attempts = dict.fromkeys(self._plan.tasks, Attempt(self._began))
        self._start = start
        self._metrics.clear()
        self._life.go(Step.PREPARING)
        return (PrepareSources(Attempt(self._began), start.enumerators),)

    def _next_attempt(self) -> Attempt:
        self._attempt += 1
        return Attempt(self._attempt)

    def _deploy(self, start: Start, now_ms: int) -> Actions:
        attempt = Attempt(self._began)
        self._history.on_deploying(attempt, now_ms)
        if start.manifest is not None:
            restored = start.manifest
            self._history.on_restored(restored.checkpoint_id, restored.savepoint, now_ms)
        self._start = None
        self._running = RunningAttempt(
            attempt,
            self._plan,
            self._checkpoints,
            self._translator,
            self._history,
            start,
            self._starting_point.floor,
            self._next_attempt,
        )
        self._attempts = self._running.attempts
        self._life.go(Step.DEPLOYING)
        return (DeployAll(attempt, start.manifest, start.revoke, start.halted),)

    def _fail(self, failure: Failure, now_ms: int, region: Region | None = None) -> Actions:
        """The attempt failed, or a part of it, which is its `region` or the task's; only the first
        cause counts."""
        if self._life.step in (Step.STOPPING, Step.WAITING, Step.ENDED):
            return ()
        alone = self._running if failure.recoverable and self._can_restart_regions() else None
        if alone is not None and failure.task is not None:
            region = alone.restarts.region_of(failure.task)
        at_ms = None
        if alone is not None and region is not None:
            at_ms = alone.restarts.shared_delay(alone.attempts[region.tasks[0]])
        news: Actions = ()
        if at_ms is None:
            status = self._failures.on_failure(failure, now_ms)
            at_ms = self._failures.restart_at_ms
        else:
            status = self._failures.on_another(failure)
            news = (Warn(f"another part of it failed, and is restarted, too: {failure.cause}"),)
        cause = self._failures.last_cause or failure.cause
        host = self._host_of(failure.task)
        if alone is None or region is None or status is not JobStatus.RESTARTING:
            newest = Attempt(max(0, self._attempt))
            attempt = newest if failure.task is None else self._attempts.get(failure.task, newest)
            self._history.on_failure(cause, failure.task, attempt, now_ms, host)
            return self._stop(status, now_ms)
        attempt = alone.attempts[region.tasks[0]]
        self._history.on_failure(cause, failure.task, attempt, now_ms, host)
        why = f"a part of the job is restarted: {cause}"
        return (*news, *self._after(alone.restart(region, at_ms, why, now_ms), now_ms))

    def _can_restart_regions(self) -> bool:
        """Whether tasks can begin again while others go on."""
        running = self._running
        return (
            self._plan.config.failover_strategy == "region"
            and len(self._plan.regions) > 1
            and self._life.step is Step.RUNNING
            and running is not None
            and not running.progress.committed
            and not self._checkpoints.ending
        )

    def _host_of(self, task: TaskId | None) -> str | None:
        """Where it runs in this attempt, as far as it has told."""
        report = {} if task is None else self._metrics.get(task, {})
        host: str | None = report.get("process", {}).get("host")
        return host

    def _stop(self, status: JobStatus, now_ms: int) -> Actions:
        """Stop the attempt, if one is deployed, on the way to what `status` leads to."""
        self._move(status, now_ms)
        self._give_up_ms = now_ms + self._patience_ms
        cancel: Actions = ()
        if self._life.deployed:
            self._history.on_stopping(now_ms)
            self._life.go(Step.STOPPING)
            cancel = (CancelAll(Attempt(self._attempt)),)
        elif self._life.step in (Step.NEW, Step.LOADING, Step.PREPARING):
            self._life.go(Step.WAITING)
        return (*cancel, *self._leave_attempt(now_ms), *self._proceed(now_ms))

    def _proceed(self, now_ms: int) -> Actions:
        """Leave WAITING, if nothing is left to wait for."""
        if self._life.step is not Step.WAITING:
            return ()
        storing = self._checkpoints.storing
        match self._life.status:
            case JobStatus.RESTARTING if not storing and now_ms >= self._failures.restart_at_ms:
                return self._load()
            case JobStatus.FAILING if not storing or now_ms >= self._give_up_ms:
                return self._end(JobStatus.FAILED, now_ms)
            case JobStatus.CANCELLING if not storing or now_ms >= self._give_up_ms:
                return self._end(JobStatus.CANCELED, now_ms)
        return ()

    def _move(self, status: JobStatus, now_ms: int) -> None:
        if status is not self._life.status:
            self._life.move(status)
            self._history.on_status(status, now_ms)

    def _end(self, status: JobStatus, now_ms: int) -> Actions:
        self._move(status, now_ms)
        self._life.go(Step.ENDED)
        left = [*self._leave_attempt(now_ms)]
        left += self._carry_out(self._checkpoints.on_job_end(status), now_ms)
        for n in self._checkpoints.pending:
            left.append(Warn(f"the job ends while checkpoint {n} is being published"))
        error = self._failures.last_cause if status is JobStatus.FAILED else None
        return (*left, JobEnded(status, error))

    def _leave_attempt(self, now_ms: int) -> Actions:
        """From now on no task of the attempt, if there is one, is heard or told anything."""
        close: Actions = ()
        if self._start is not None or self._running is not None:
            close = (CloseSources(Attempt(self._began)),)
        self._start = self._running = None
        match self._life.status:
            case JobStatus.RESTARTING | JobStatus.FAILING:
                why = f"the job failed: {self._failures.last_cause}"
            case status:
                why = f"the job is {status.value}"
        return (*close, *self._carry_out(self._checkpoints.on_job_restart(why), now_ms))

    def _why_no_savepoint(self, savepoint: Savepoint) -> str | None:
        """Why none can be taken in this state of the job."""
        if self._life.step is not Step.RUNNING or self._running is None:
            return f"the job is {self._life.status.value}, and not running: ask again when it is"
        if self._running.restarts:
            return "a part of the job is being restarted: ask again when it runs"
        if self._running.progress.all_drained:
            return "the job is finishing"
        if savepoint.stop == "drain" and self._plan.caches:
            return (
                f"'{self._plan.caches[0]}' keeps a stream that would be taken for whole: stop the "
                "job without drain, or cancel it"
            )
        return None

    def _carry_out(self, actions: protocol.Actions, now_ms: int) -> Actions:
        """Do what the checkpoint protocol asks for."""
        if self._running is not None:
            return self._after(self._running.carry_out(actions, now_ms), now_ms)
        return tuple(self._translator.translate(actions, None, now_ms).actions)

    # --- bookkeeping -------------------------------------------------------------------------

    def _next_tick_ms(self) -> int | None:
        times: list[int | None] = []
        if self._life.step is Step.RUNNING:
            times.append(self._checkpoints.next_tick_ms())
        if self._running is not None:
            times.append(self._running.next_tick_ms())
        if self._life.step is Step.WAITING:
            if self._life.status is not JobStatus.RESTARTING:
                times.append(self._give_up_ms)
            elif self._checkpoints.storing:
                times.append(self._checkpoints.next_tick_ms())
            else:
                times.append(self._failures.restart_at_ms)
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def _answer(self, *parts: Actions) -> Actions:
        """The actions of this event, with a TickAt if the next time is not announced."""
        actions = tuple(action for part in parts for action in part)
        time_ms = self._next_tick_ms()
        if time_ms is None or time_ms == self._announced_ms:
            return actions
        self._announced_ms = time_ms
        return (*actions, TickAt(time_ms))
