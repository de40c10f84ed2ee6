"""What happens within one attempt: its tasks come up, read splits, take checkpoints and end.

    task         says                      once all tasks have said so
    starting     TaskRunning               checkpoints and split requests begin
    running      TaskDrained               the terminal checkpoint is taken
    drained      TaskFinished, when the    the job is finished
                 terminal checkpoint is
                 complete

The job master makes a RunningAttempt when it deploys one and drops it when it stops the tasks. Each
event is answered by an Outcome; what follows from a failure, the master decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...core.errors import StromError
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ..messages import (
    AlignWatermarks,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskReport,
    TaskRunning,
    WatermarkReported,
)
from .actions import Action, Actions, Send
from .checkpointing import CheckpointTranslator
from .failures import Failure
from .job_state import Progress
from .plan import JobPlan
from .split_requests import Answer, SplitRequests
from .watermark_alignment import WatermarkAlignment


@dataclass(frozen=True)
class Outcome:
    """What the host is to do after an event, and why the attempt cannot go on, if it cannot.
    `go_back`: why there must be another one, though nothing failed."""

    actions: Actions = ()
    failure: Failure | None = None
    go_back: str | None = None


NOTHING = Outcome()


class RunningAttempt:
    """One attempt from its deployment until its tasks are stopped or have finished."""

    def __init__(
        self,
        attempt: Attempt,
        plan: JobPlan,
        checkpoints: CheckpointCoordinator,
        translator: CheckpointTranslator,
        halted_at: CheckpointId | None = None,
    ) -> None:
        """`checkpoints` and `translator` live as long as the job. `halted_at`: the terminal
        checkpoint at which the job was stopped; the attempt only commits it."""
        self._halted_at = halted_at
        self._attempt = attempt
        self._plan = plan
        self._requests = SplitRequests(attempt, plan.readers)
        self._alignment = WatermarkAlignment(plan.aligned)
        self._checkpoints = checkpoints
        self._translator = translator
        self.progress = Progress(frozenset(plan.tasks))

    def on_report(self, report: TaskReport, now_ms: int) -> Outcome:
        """A task of this attempt said something."""
        match report:
            case TaskRunning() | TaskDrained() | TaskFinished():
                return self._advance(report, now_ms)
            case TaskFailed(task=task, error=error, recoverable=recoverable, symptom=symptom):
                return Outcome(failure=Failure(error, recoverable, symptom, task))
            case TaskCancelled(task=task):
                return self._broken(f"task {self._plan.labels[task]} stopped without being told to")
            case SplitsRequested(task=task, operator=operator):
                try:
                    return _do(self._requests.request(operator, task))
                except StromError as error:
                    return self._broken(str(error))
            case WatermarkReported(task=task, operator=operator, watermark=watermark):
                told = self._alignment.on_report(operator, task, watermark)
                if told is not None:
                    return _do([Send(task, AlignWatermarks(operator, *told))])
            case CheckpointAcknowledged(task=task, checkpoint_id=n, snapshot=snapshot):
                acknowledged = self._checkpoints.on_acknowledge(task, n, snapshot, now_ms)
                return self.carry_out(acknowledged, now_ms)
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
        self, checkpoint_id: CheckpointId, states: Mapping[OperatorId, bytes]
    ) -> Outcome:
        """The answer to a SnapshotSources of this attempt."""
        self._checkpoints.on_told(checkpoint_id)
        return _do(self._translator.on_snapshot(checkpoint_id, states))

    def on_tick(self, now_ms: int) -> Outcome:
        """Time passed."""
        asked = self._requests.retry(now_ms)
        if not self.progress.all_running:
            return _do(asked)
        outcome = self.carry_out(self._checkpoints.on_tick(now_ms), now_ms)
        return Outcome((*outcome.actions, *asked), outcome.failure, outcome.go_back)

    def next_tick_ms(self) -> int | None:
        """When splits should be asked for again."""
        return self._requests.retry_at_ms

    def carry_out(self, actions: protocol.Actions, now_ms: int) -> Outcome:
        """Turn what the checkpoint protocol asks for into actions of the host."""
        running = self._attempt if self.progress.all_running else None
        result = self._translator.translate(actions, running, now_ms)
        self.progress.committed |= result.committed
        failure = None if result.failure is None else Failure(result.failure)
        if result.halted:
            self.progress.drained |= self.progress.tasks
        return Outcome(tuple(result.actions), failure, result.go_back)

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self.progress.validate()
        self._requests.validate()

    def _advance(self, report: TaskRunning | TaskDrained | TaskFinished, now_ms: int) -> Outcome:
        """A task came one stage further; one that says so twice is heard once."""
        progress, task = self.progress, report.task
        match report:
            case TaskRunning() if task not in progress.running:
                progress.running.add(task)
                if progress.all_running:
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
