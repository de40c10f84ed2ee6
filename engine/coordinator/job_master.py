"""The life of one job as a pure state machine: events in, actions out.

The host calls one method per event, from one thread, and carries out the returned actions in order
(`actions.py` says what each asks for). No event is answered late or twice by the host, but reports
and losses of tasks may come at any time; those of former attempts are ignored here.

    event                        called when
    start                        once, first
    on_loaded / on_load_failed   LoadLatest is done
    on_deployed / ..._failed     DeployAll is done (the failure: any part of it could not be done)
    on_report                    a task said something (engine/messages.py)
    on_task_lost                 a task's process or actor died, or cannot be reached
    on_all_stopped               CancelAll is done
    on_stored / on_store_failed  StoreCheckpoint is done
    on_trigger                   a user wants a checkpoint now
    on_cancel                    a user wants the job to stop; in any state, any number of times
    on_tick                      the time of the last TickAt came; early and extra calls do no harm

    step       status                    waits for                       then
    NEW        CREATED                   start                           LOADING
    LOADING    CREATED, RESTARTING       on_loaded                       DEPLOYING
    DEPLOYING  CREATED, RESTARTING       TaskRunning of all tasks        RUNNING
    RUNNING    RUNNING                   TaskFinished of all tasks       ENDED
    STOPPING   RESTARTING, FAILING,      on_all_stopped                  WAITING
               CANCELLING
    WAITING    the same                  answer to StoreCheckpoint,      LOADING or ENDED
                                         the restart delay
    ENDED      FAILED, CANCELED,         nothing
               FINISHED

A failure goes from any step before STOPPING to STOPPING (to WAITING where nothing is deployed).
A checkpoint may be being stored while the job fails: its outcome must be known before the next
attempt chooses what to restore, hence the wait. A bounded job ends in RUNNING: all tasks drained
-> terminal checkpoint -> CheckpointCompleted(terminal) to all -> each TaskFinished -> FINISHED.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from ...api.connectors import SplitEnumerator
from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.manifest import Manifest, unmatched
from ...checkpoint.storage import Latest
from ...core.errors import StateError, StromError
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..graph.model import ExecutionGraph
from ..messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    MetricsReported,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskReport,
    TaskRunning,
    ValuePublished,
)
from .actions import (
    Action,
    Actions,
    CancelAll,
    DeployAll,
    JobEnded,
    LoadLatest,
    Publish,
    Send,
    TickAt,
    Warn,
)
from .checkpointing import CheckpointTranslator
from .enumerators import EnumeratorSet, load_states
from .job_state import JobState, Progress
from .lifecycle import Lifecycle, Step
from .plan import make_plan
from .restart import make_policy

MakeEnumerators = Callable[[dict[OperatorId, Any]], Mapping[OperatorId, SplitEnumerator]]
"""From restored enumerator states (by operator; empty for a fresh start) to all enumerators."""


class JobMaster:
    """Decides everything about one job, over all its attempts."""

    def __init__(
        self,
        job_id: str,
        graph: ExecutionGraph,
        make_enumerators: MakeEnumerators,
        rng: random.Random,
        *,
        resume: bool = True,
        allow_unmatched: bool = False,
    ) -> None:
        """`resume`: start from the newest checkpoint in the job's storage, if there is one; else
        checkpoints that were there before are neither used nor touched. `allow_unmatched`: state
        of operators that the job lacks may be dropped at a restore. `rng` draws restart jitter."""
        plan = make_plan(job_id, graph)
        self._plan = plan
        self._make_enumerators = make_enumerators
        self._resume = resume
        self._allow_unmatched = allow_unmatched
        self._life = Lifecycle(plan.job_name)
        self._checkpoints = CheckpointCoordinator(plan.tasks, plan.config.checkpoint)
        self._translator = CheckpointTranslator(plan)
        self._policy = make_policy(plan.config.effective_restart, rng)
        self._attempt = -1
        """Of the last DeployAll, -1 before the first; only grows."""
        self._restarts = 0
        self._progress = Progress(frozenset(plan.tasks))
        """Of the current attempt."""
        self._enumerators: EnumeratorSet | None = None
        """Of the current attempt; None outside DEPLOYING and RUNNING."""
        self._floor = 0
        """Checkpoints up to this id belong to an earlier life of the job; not restored from."""
        self._restart_at_ms = 0
        self._last_failure: str | None = None
        """First cause of the latest failed attempt."""
        self._symptom = False
        """Whether that may only be the consequence of another task's loss."""
        self._published: set[tuple[OperatorId, str]] = set()
        self._metrics: dict[TaskId, dict[str, Any]] = {}
        self._announced_ms: int | None = None
        """The TickAt that the host has not answered yet."""
        self._out: list[Action] = []
        """Actions of the event being handled; empty between events."""

    # --- events of the host ------------------------------------------------------------------

    def start(self, now_ms: int) -> Actions:
        """Begin. The answer is always a LoadLatest."""
        if self._life.step is not Step.NEW:
            raise self._life.illegal("started twice")
        self._life.record("start")
        self._life.go(Step.LOADING)
        self._out.append(LoadLatest(self._floor))
        return self._flush()

    def on_loaded(self, latest: Latest, now_ms: int) -> Actions:
        """The answer to LoadLatest. Ignored if the job was cancelled meanwhile."""
        self._life.record(f"loaded {latest.manifest and latest.manifest.checkpoint_id}")
        if self._life.step is not Step.LOADING:
            return self._flush()
        manifest = latest.manifest
        if not self._resume and self._attempt < 0 and self._floor < latest.highest_id:
            self._floor, manifest = latest.highest_id, None
        else:
            self._out += [
                Warn(f"checkpoint {r.checkpoint_id} is not used: {r.reason}")
                for r in latest.rejected
            ]
        revoke = (0 if manifest is None else manifest.checkpoint_id) < self._newest_complete
        if revoke and (why := self._plan.why_not_back_to(self._newest_complete, manifest, latest)):
            self._fail(why, now_ms, recoverable=False)
            return self._flush()
        try:
            self._prepare(manifest, latest)
        except StateError as error:
            self._fail(str(error), now_ms, recoverable=False)
        except Exception as error:
            self._fail(f"the sources could not be prepared: {_text(error)}", now_ms)
        else:
            self._deploy(manifest, revoke)
        return self._flush()

    def on_load_failed(self, reason: str, now_ms: int, recoverable: bool = True) -> Actions:
        """The storage could not be read. Not `recoverable`: trying again would give the same."""
        self._life.record("load failed")
        if self._life.step is Step.LOADING:
            cause = f"the latest checkpoint could not be loaded: {reason}"
            self._fail(cause, now_ms, recoverable)
        return self._flush()

    def on_deployed(self, attempt: Attempt, now_ms: int) -> Actions:
        """Every task of the attempt was started. TaskRunning may come before or after."""
        self._life.record(f"deployed {attempt}")
        return self._flush()

    def on_deploy_failed(self, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """Some task could not be started. The answer is a CancelAll for those that were."""
        self._life.record(f"deploy of {attempt} failed")
        if self._is_current(attempt):
            self._fail(f"the job could not be deployed: {reason}", now_ms)
        return self._flush()

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """A task's process died. Expected of tasks that finished; while stopping it explains what
        was a symptom only, and is ignored otherwise."""
        self._life.record(f"lost {task} of {attempt}")
        cause = f"task {self._plan.labels[task]} was lost: {reason}"
        if self._is_current(attempt) and task not in self._progress.finished:
            self._fail(cause, now_ms)
        elif attempt == self._attempt and self._life.step is Step.STOPPING and self._symptom:
            self._last_failure, self._symptom = cause, False
        return self._flush()

    def on_all_stopped(self, attempt: Attempt, now_ms: int) -> Actions:
        """The answer to CancelAll."""
        self._life.record(f"all stopped of {attempt}")
        if self._life.step is Step.STOPPING and attempt == self._attempt:
            self._life.go(Step.WAITING)
            self._proceed(now_ms)
        return self._flush()

    def on_stored(self, checkpoint_id: CheckpointId, now_ms: int) -> Actions:
        """The answer to StoreCheckpoint: published."""
        self._life.record(f"stored {checkpoint_id}")
        self._carry_out(self._checkpoints.on_stored(checkpoint_id, now_ms), now_ms)
        self._proceed(now_ms)
        return self._flush()

    def on_store_failed(self, checkpoint_id: CheckpointId, why: str, now_ms: int) -> Actions:
        """The answer to StoreCheckpoint: not published, and nothing of it visible."""
        self._life.record(f"store of {checkpoint_id} failed")
        self._carry_out(self._checkpoints.on_store_failed(checkpoint_id, why, now_ms), now_ms)
        self._proceed(now_ms)
        return self._flush()

    def on_trigger(self, now_ms: int) -> Actions:
        """Take a checkpoint now; ignored unless the job is running and not about to finish."""
        self._life.record("trigger")
        if self._life.step is Step.RUNNING and not self._progress.all_drained:
            self._carry_out(self._checkpoints.trigger(now_ms, "manual"), now_ms)
        return self._flush()

    def on_cancel(self, now_ms: int) -> Actions:
        """Stop the job. Idempotent, and without effect on a job that is over."""
        self._life.record("cancel")
        if not self._life.status.is_terminal and self._life.status is not JobStatus.CANCELLING:
            self._stop(JobStatus.CANCELLING, now_ms)
        return self._flush()

    def on_tick(self, now_ms: int) -> Actions:
        """Time passed."""
        self._announced_ms = None
        if self._life.step is Step.RUNNING:
            self._carry_out(self._checkpoints.on_tick(now_ms), now_ms)
        self._retry_splits(now_ms)
        self._proceed(now_ms)
        return self._flush()

    # --- events of tasks ---------------------------------------------------------------------

    def on_report(self, report: TaskReport, now_ms: int) -> Actions:
        """A task said something. Ignored if it is not of the current attempt."""
        if report.attempt == self._attempt and self._life.step is not Step.ENDED:
            if report.task not in self._progress.tasks:
                raise self._life.illegal(f"{report.task} reports but is no task of this job")
            self._handle(report, now_ms)
        return self._flush()

    def status(self) -> JobState:
        """The job at this moment."""
        return JobState(
            job_id=self._plan.job_id,
            name=self._plan.job_name,
            status=self._life.status,
            attempt=Attempt(max(0, self._attempt)),
            restarts=self._restarts,
            running_tasks=len(self._progress.running) if self._life.deployed else 0,
            total_tasks=len(self._plan.tasks),
            checkpoints=self._checkpoints.statistics(),
            last_failure=self._last_failure,
            metrics=dict(self._metrics),
        )

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self._life.validate()
        self._checkpoints.validate()
        self._progress.validate()
        assert not self._out
        assert (self._enumerators is not None) == (self._life.deployed)
        assert self._life.step is not Step.RUNNING or self._progress.all_running
        pending = self._checkpoints.pending
        self._translator.validate(None if pending is None else pending.checkpoint_id)
        if self._enumerators is not None:
            self._enumerators.validate()

    def _handle(self, report: TaskReport, now_ms: int) -> None:
        match report:
            case ValuePublished(operator=operator, key=key, value=value):
                if (operator, key) not in self._published:
                    self._published.add((operator, key))
                    self._out.append(Publish(operator, key, value))
                return
            case MetricsReported(task=task, metrics=metrics):
                self._metrics[task] = metrics
                return
        self._life.record(f"{type(report).__name__} of {report.task}")
        if not self._life.deployed:
            return
        match report:
            case TaskRunning() | TaskDrained() | TaskFinished():
                self._advance(report, now_ms)
            case TaskFailed(error=error, recoverable=recoverable, symptom=symptom):
                self._fail(error, now_ms, recoverable, symptom)
            case TaskCancelled(task=task):
                self._fail(f"task {self._plan.labels[task]} stopped without being told to", now_ms)
            case SplitsRequested(task=task, operator=operator):
                self._answer_split_request(operator, task, now_ms)
            case CheckpointAcknowledged(task=task, checkpoint_id=n, snapshot=snapshot):
                actions = self._checkpoints.on_acknowledge(task, n, snapshot, now_ms)
                self._carry_out(actions, now_ms)
            case CheckpointDeclined(task=task, checkpoint_id=n, reason=reason):
                self._carry_out(self._checkpoints.on_decline(task, n, reason, now_ms), now_ms)

    def _advance(self, report: TaskRunning | TaskDrained | TaskFinished, now_ms: int) -> None:
        """A task came one stage further."""
        progress, task = self._progress, report.task
        match report:
            case TaskRunning():
                progress.running.add(task)
                if progress.all_running and self._life.step is Step.DEPLOYING:
                    self._run(now_ms)
            case TaskDrained() if task not in progress.running:
                self._fail(f"task {self._plan.labels[task]} drained before it was running", now_ms)
            case TaskDrained() if task not in progress.drained:
                progress.drained.add(task)
                if progress.all_drained:
                    self._carry_out(self._checkpoints.trigger_terminal(now_ms), now_ms)
            case TaskFinished() if not progress.committed:
                self._fail(
                    f"task {self._plan.labels[task]} finished before the terminal checkpoint",
                    now_ms,
                )
            case TaskFinished():
                progress.finished.add(task)
                if progress.all_finished:
                    self._end(JobStatus.FINISHED)

    # --- transitions -------------------------------------------------------------------------

    def _prepare(self, manifest: Manifest | None, latest: Latest) -> None:
        """Make the enumerators, from the manifest's states if there is one."""
        restored: dict[OperatorId, Any] = {}
        if manifest is not None:
            missing = [] if self._allow_unmatched else unmatched(manifest, self._plan.names)
            if missing:
                raise StateError(self._plan.why_unmatched(manifest, missing))
            kept = {o: s for o, s in manifest.enumerators.items() if o in self._plan.names}
            restored = load_states(kept)
        self._checkpoints.on_restored(
            None if manifest is None else manifest.checkpoint_id,
            [c for c in latest.ids if c > self._floor],
            latest.highest_id,
        )
        self._enumerators = EnumeratorSet(self._make_enumerators(restored), self._plan.names)

    @property
    def _newest_complete(self) -> int:
        newest = self._checkpoints.newest_complete
        return newest if newest > self._floor else 0

    def _deploy(self, manifest: Manifest | None, revoke: bool) -> None:
        self._attempt += 1
        self._progress = Progress(frozenset(self._plan.tasks))
        self._metrics.clear()
        self._life.go(Step.DEPLOYING)
        self._out.append(DeployAll(Attempt(self._attempt), manifest, revoke))

    def _run(self, now_ms: int) -> None:
        self._life.move(JobStatus.RUNNING)
        self._life.go(Step.RUNNING)
        self._policy.on_stable(now_ms)
        self._carry_out(self._checkpoints.start(now_ms), now_ms)
        self._retry_splits(now_ms, start=True)

    def _fail(
        self, cause: str, now_ms: int, recoverable: bool = True, symptom: bool = False
    ) -> None:
        """The attempt failed; only its first cause counts."""
        if self._life.step in (Step.STOPPING, Step.WAITING, Step.ENDED):
            return
        self._last_failure, self._symptom = cause, symptom
        delay_ms = self._policy.on_failure(now_ms) if recoverable else None
        if delay_ms is None:
            self._stop(JobStatus.FAILING, now_ms)
            return
        self._restarts += 1
        self._restart_at_ms = now_ms + delay_ms
        self._stop(JobStatus.RESTARTING, now_ms)

    def _stop(self, status: JobStatus, now_ms: int) -> None:
        """Stop the attempt, if one is deployed, on the way to what `status` leads to."""
        self._life.move(status)
        if self._life.deployed:
            self._life.go(Step.STOPPING)
            self._out.append(CancelAll(Attempt(self._attempt)))
        elif self._life.step in (Step.NEW, Step.LOADING):
            self._life.go(Step.WAITING)
        self._close_enumerators()
        self._carry_out(self._checkpoints.on_job_restart(), now_ms)
        self._proceed(now_ms)

    def _proceed(self, now_ms: int) -> None:
        """Leave WAITING, if nothing is left to wait for."""
        if self._life.step is not Step.WAITING or self._checkpoints.storing:
            return
        match self._life.status:
            case JobStatus.RESTARTING if now_ms >= self._restart_at_ms:
                self._life.go(Step.LOADING)
                self._out.append(LoadLatest(self._floor))
            case JobStatus.FAILING:
                self._end(JobStatus.FAILED)
            case JobStatus.CANCELLING:
                self._end(JobStatus.CANCELED)

    def _end(self, status: JobStatus) -> None:
        self._life.move(status)
        self._life.go(Step.ENDED)
        self._close_enumerators()
        self._carry_out(self._checkpoints.on_job_restart(), 0)
        error = self._last_failure if status is JobStatus.FAILED else None
        self._out.append(JobEnded(status, error))

    # --- checkpoints and splits --------------------------------------------------------------

    def _carry_out(self, actions: protocol.Actions, now_ms: int) -> None:
        """Turn what the checkpoint protocol asks for into actions of the host. Its TickAt is left
        out: `_flush` asks the protocol itself when it wants to be called."""
        running = self._life.step is Step.RUNNING
        result = self._translator.translate(actions, self._enumerators, running)
        self._out += result.actions
        self._progress.committed |= result.committed
        if result.failure is not None:
            self._fail(result.failure, now_ms)

    def _answer_split_request(self, operator: OperatorId, task: TaskId, now_ms: int) -> None:
        assert self._enumerators is not None
        try:
            answer = self._enumerators.request(operator, task, now_ms)
        except StromError as error:
            self._fail(str(error), now_ms)
            return
        if answer is not None:
            self._out.append(Send(task, answer))

    def _retry_splits(self, now_ms: int, start: bool = False) -> None:
        if self._enumerators is None:
            return
        if start:
            self._enumerators.start(now_ms)
        try:
            answers = self._enumerators.retry(now_ms)
        except StromError as error:
            self._fail(str(error), now_ms)
            return
        self._out += [Send(task, answer) for task, answer in answers]

    def _close_enumerators(self) -> None:
        if self._enumerators is not None:
            self._out += [Warn(problem) for problem in self._enumerators.close()]
            self._enumerators = None

    # --- bookkeeping -------------------------------------------------------------------------

    def _is_current(self, attempt: Attempt) -> bool:
        return attempt == self._attempt and self._life.deployed

    def _next_tick_ms(self) -> int | None:
        wishes: list[int | None] = []
        if self._life.step is Step.RUNNING:
            wishes.append(self._checkpoints.next_tick_ms())
        if self._enumerators is not None:
            wishes.append(self._enumerators.retry_at_ms)
        if self._life.step is Step.WAITING and not self._checkpoints.storing:
            wishes.append(self._restart_at_ms)
        return min((wish for wish in wishes if wish is not None), default=None)

    def _flush(self) -> Actions:
        """The actions of this event, with a TickAt if the next wish is not announced."""
        wish = self._next_tick_ms()
        if wish is not None and wish != self._announced_ms:
            self._announced_ms = wish
            self._out.append(TickAt(wish))
        actions = tuple(self._out)
        self._out.clear()
        return actions


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, StromError) else f"{type(error).__name__}: {error}"
