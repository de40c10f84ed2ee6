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

The steps it goes through and what each waits for stand in `lifecycle.py`, what happens between
the deployment of an attempt and its end in `running_attempt.py`.
"""

from __future__ import annotations

import random
from typing import Any

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...checkpoint.storage import Latest
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ...core.job_status import JobStatus
from ..graph.model import ExecutionGraph
from ..messages import MetricsReported, TaskReport, ValuePublished
from .actions import (
    Action,
    Actions,
    CancelAll,
    DeployAll,
    JobEnded,
    LoadLatest,
    Publish,
    TickAt,
    Warn,
)
from .checkpointing import CheckpointTranslator
from .failures import Failure, Failures
from .job_state import JobState
from .lifecycle import Lifecycle, Step
from .plan import make_plan
from .restart import make_policy
from .running_attempt import RunningAttempt
from .starting_point import MakeEnumerators, Start, StartingPoint


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
        self._life = Lifecycle(plan.job_name)
        self._starting_point = StartingPoint(plan, make_enumerators, resume, allow_unmatched)
        self._failures = Failures(make_policy(plan.config.effective_restart, rng))
        self._checkpoints = CheckpointCoordinator(plan.tasks, plan.config.checkpoint)
        self._translator = CheckpointTranslator(plan)
        self._attempt = -1
        """Of the last DeployAll, -1 before the first; only grows."""
        self._running: RunningAttempt | None = None
        """The current attempt; None outside DEPLOYING and RUNNING."""
        self._published: set[tuple[OperatorId, str]] = set()
        self._metrics: dict[TaskId, dict[str, Any]] = {}
        """Of the current attempt, or the last one."""
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
        self._load()
        return self._flush()

    def on_loaded(self, latest: Latest, now_ms: int) -> Actions:
        """The answer to LoadLatest. Ignored if the job was cancelled meanwhile."""
        self._life.record(f"loaded {latest.manifest and latest.manifest.checkpoint_id}")
        if self._life.step is not Step.LOADING:
            return self._flush()
        latest = self._starting_point.admit(latest, first=self._attempt < 0)
        self._out += [
            Warn(f"checkpoint {r.checkpoint_id} is not used: {r.reason}") for r in latest.rejected
        ]
        match self._starting_point.prepare(latest, self._checkpoints):
            case Failure() as failure:
                self._fail(failure, now_ms)
            case Start() as start:
                self._deploy(start)
        return self._flush()

    def on_load_failed(self, reason: str, now_ms: int, recoverable: bool = True) -> Actions:
        """The storage could not be read. Not `recoverable`: trying again would give the same."""
        self._life.record("load failed")
        if self._life.step is Step.LOADING:
            cause = f"the latest checkpoint could not be loaded: {reason}"
            self._fail(Failure(cause, recoverable), now_ms)
        return self._flush()

    def on_deployed(self, attempt: Attempt, now_ms: int) -> Actions:
        """Every task of the attempt was started. TaskRunning may come before or after."""
        self._life.record(f"deployed {attempt}")
        return self._flush()

    def on_deploy_failed(self, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """Some task could not be started. The answer is a CancelAll for those that were."""
        self._life.record(f"deploy of {attempt} failed")
        if attempt == self._attempt and self._running is not None:
            self._fail(Failure(f"the job could not be deployed: {reason}"), now_ms)
        return self._flush()

    def on_task_lost(self, task: TaskId, attempt: Attempt, reason: str, now_ms: int) -> Actions:
        """A task's process died. Expected of tasks that finished; while stopping it explains what
        was a symptom only, and is ignored otherwise."""
        self._life.record(f"lost {task} of {attempt}")
        cause = f"task {self._plan.labels[task]} was lost: {reason}"
        if attempt != self._attempt:
            return self._flush()
        if self._running is not None and task not in self._running.progress.finished:
            self._fail(Failure(cause), now_ms)
        elif self._life.step is Step.STOPPING:
            self._failures.on_loss(cause)
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
        attempt = self._running
        if self._life.step is Step.RUNNING and attempt and not attempt.progress.all_drained:
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
        if self._running is not None:
            self._after(self._running, self._running.on_tick(now_ms), now_ms)
        self._proceed(now_ms)
        return self._flush()

    # --- events of tasks ---------------------------------------------------------------------

    def on_report(self, report: TaskReport, now_ms: int) -> Actions:
        """A task said something. Ignored if it is not of the current attempt."""
        if report.attempt == self._attempt and self._life.step is not Step.ENDED:
            if report.task not in self._plan.labels:
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
            restarts=self._failures.restarts,
            running_tasks=0 if self._running is None else len(self._running.progress.running),
            total_tasks=len(self._plan.tasks),
            checkpoints=self._checkpoints.statistics(),
            last_failure=self._failures.last_cause,
            metrics=dict(self._metrics),
        )

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self._life.validate()
        self._checkpoints.validate()
        assert not self._out
        assert (self._running is not None) == self._life.deployed
        pending = self._checkpoints.pending
        self._translator.validate(None if pending is None else pending.checkpoint_id)
        if self._running is not None:
            self._running.validate()
            assert (self._life.step is Step.RUNNING) == self._running.progress.all_running

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
        if self._running is not None:
            self._after(self._running, self._running.on_report(report, now_ms), now_ms)

    def _after(self, attempt: RunningAttempt, failure: Failure | None, now_ms: int) -> None:
        """What an event within the attempt means for the job."""
        if attempt.progress.all_running and self._life.step is Step.DEPLOYING:
            self._life.move(JobStatus.RUNNING)
            self._life.go(Step.RUNNING)
            self._failures.on_stable(now_ms)
        if failure is not None:
            self._fail(failure, now_ms)
        elif attempt.progress.all_finished:
            self._end(JobStatus.FINISHED, now_ms)

    # --- transitions -------------------------------------------------------------------------

    def _load(self) -> None:
        self._life.go(Step.LOADING)
        self._out.append(LoadLatest(self._starting_point.floor))

    def _deploy(self, start: Start) -> None:
        self._attempt += 1
        self._running = RunningAttempt(
            self._plan, start.enumerators, self._checkpoints, self._translator, self._out
        )
        self._metrics.clear()
        self._life.go(Step.DEPLOYING)
        self._out.append(DeployAll(Attempt(self._attempt), start.manifest, start.revoke))

    def _fail(self, failure: Failure, now_ms: int) -> None:
        """The attempt failed; only its first cause counts."""
        if self._life.step not in (Step.STOPPING, Step.WAITING, Step.ENDED):
            self._stop(self._failures.on_failure(failure, now_ms), now_ms)

    def _stop(self, status: JobStatus, now_ms: int) -> None:
        """Stop the attempt, if one is deployed, on the way to what `status` leads to."""
        self._life.move(status)
        if self._life.deployed:
            self._life.go(Step.STOPPING)
            self._out.append(CancelAll(Attempt(self._attempt)))
        elif self._life.step in (Step.NEW, Step.LOADING):
            self._life.go(Step.WAITING)
        self._leave_attempt(now_ms)
        self._proceed(now_ms)

    def _proceed(self, now_ms: int) -> None:
        """Leave WAITING, if nothing is left to wait for."""
        if self._life.step is not Step.WAITING or self._checkpoints.storing:
            return
        match self._life.status:
            case JobStatus.RESTARTING if now_ms >= self._failures.restart_at_ms:
                self._load()
            case JobStatus.FAILING:
                self._end(JobStatus.FAILED, now_ms)
            case JobStatus.CANCELLING:
                self._end(JobStatus.CANCELED, now_ms)

    def _end(self, status: JobStatus, now_ms: int) -> None:
        self._life.move(status)
        self._life.go(Step.ENDED)
        self._leave_attempt(now_ms)
        self._carry_out(self._checkpoints.on_job_end(), now_ms)
        error = self._failures.last_cause if status is JobStatus.FAILED else None
        self._out.append(JobEnded(status, error))

    def _leave_attempt(self, now_ms: int) -> None:
        """From now on no task of the attempt, if there is one, is heard or told anything."""
        if self._running is not None:
            self._running.close()
            self._running = None
        self._carry_out(self._checkpoints.on_job_restart(), now_ms)

    def _carry_out(self, actions: protocol.Actions, now_ms: int) -> None:
        """Do what the checkpoint protocol asks for. Its TickAt is left out: `_flush` asks the
        protocol itself when it wants to be called."""
        if self._running is not None:
            self._after(self._running, self._running.carry_out(actions), now_ms)
        else:
            self._out += self._translator.translate(actions, None, running=False).actions

    # --- bookkeeping -------------------------------------------------------------------------

    def _next_tick_ms(self) -> int | None:
        wishes: list[int | None] = []
        if self._life.step is Step.RUNNING:
            wishes.append(self._checkpoints.next_tick_ms())
        if self._running is not None:
            wishes.append(self._running.next_tick_ms())
        if self._life.step is Step.WAITING and not self._checkpoints.storing:
            wishes.append(self._failures.restart_at_ms)
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
