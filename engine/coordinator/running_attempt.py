"""What happens within one attempt: its tasks come up, read splits, take checkpoints and end.

    task         says                      once all tasks have said so
    starting     TaskRunning               checkpoints and split requests begin
    running      TaskDrained               the terminal checkpoint is taken
    drained      TaskFinished, when the    the job is finished
                 terminal checkpoint is
                 complete

The job master makes a RunningAttempt when it deploys one and drops it when it stops the tasks. An
event that the attempt cannot go on after comes back as a Failure; the master decides what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.coordinator import CheckpointCoordinator
from ...core.errors import StromError
from ...core.ids import TaskId
from ..messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskReport,
    TaskRunning,
)
from .actions import Action, Send, Warn
from .checkpointing import CheckpointTranslator
from .enumerators import Answer, EnumeratorSet
from .failures import Failure
from .job_state import Progress
from .plan import JobPlan


class RunningAttempt:
    """One attempt from its deployment until its tasks are stopped or have finished."""

    def __init__(
        self,
        plan: JobPlan,
        enumerators: EnumeratorSet,
        checkpoints: CheckpointCoordinator,
        translator: CheckpointTranslator,
        out: list[Action],
    ) -> None:
        """Closes `enumerators`. `checkpoints` and `translator` live as long as the job; what the
        host is to do is appended to `out`."""
        self._plan = plan
        self._enumerators = enumerators
        self._checkpoints = checkpoints
        self._translator = translator
        self._out = out
        self.progress = Progress(frozenset(plan.tasks))

    def on_report(self, report: TaskReport, now_ms: int) -> Failure | None:
        """A task of this attempt said something."""
        match report:
            case TaskRunning() | TaskDrained() | TaskFinished():
                return self._advance(report, now_ms)
            case TaskFailed(error=error, recoverable=recoverable, symptom=symptom):
                return Failure(error, recoverable, symptom)
            case TaskCancelled(task=task):
                return Failure(f"task {self._plan.labels[task]} stopped without being told to")
            case SplitsRequested(task=task, operator=operator):
                return self._send(lambda: self._enumerators.request(operator, task, now_ms))
            case CheckpointAcknowledged(task=task, checkpoint_id=n, snapshot=snapshot):
                return self.carry_out(self._checkpoints.on_acknowledge(task, n, snapshot, now_ms))
            case CheckpointDeclined(task=task, checkpoint_id=n, reason=reason):
                return self.carry_out(self._checkpoints.on_decline(task, n, reason, now_ms))
        return None

    def on_tick(self, now_ms: int) -> Failure | None:
        """Time passed."""
        failure = None
        if self.progress.all_running:
            failure = self.carry_out(self._checkpoints.on_tick(now_ms))
        return failure or self._send(lambda: self._enumerators.retry(now_ms))

    def next_tick_ms(self) -> int | None:
        """When splits should be asked for again."""
        return self._enumerators.retry_at_ms

    def carry_out(self, actions: protocol.Actions) -> Failure | None:
        """Turn what the checkpoint protocol asks for into actions of the host."""
        running = self.progress.all_running
        result = self._translator.translate(actions, self._enumerators, running)
        self._out += result.actions
        self.progress.committed |= result.committed
        return None if result.failure is None else Failure(result.failure)

    def close(self) -> None:
        """The tasks are being stopped, or have finished. Called once; no event follows."""
        self._out += [Warn(problem) for problem in self._enumerators.close()]

    def validate(self) -> None:
        """Assert the invariants of the fields. For use between events."""
        self.progress.validate()
        self._enumerators.validate()

    def _advance(
        self, report: TaskRunning | TaskDrained | TaskFinished, now_ms: int
    ) -> Failure | None:
        """A task came one stage further; one that says so twice is heard once."""
        progress, task = self.progress, report.task
        match report:
            case TaskRunning() if task not in progress.running:
                progress.running.add(task)
                return self._begin(now_ms) if progress.all_running else None
            case TaskDrained() if task not in progress.running:
                return Failure(f"task {self._plan.labels[task]} drained before it was running")
            case TaskDrained() if task not in progress.drained:
                progress.drained.add(task)
                if progress.all_drained:
                    return self.carry_out(self._checkpoints.trigger_terminal(now_ms))
            case TaskFinished() if not progress.committed:
                label = self._plan.labels[task]
                return Failure(f"task {label} finished before the terminal checkpoint")
            case TaskFinished():
                progress.finished.add(task)
        return None

    def _begin(self, now_ms: int) -> Failure | None:
        """All tasks run: data flows, and requests for splits made so far are answered."""
        failure = self.carry_out(self._checkpoints.start(now_ms))
        return failure or self._send(lambda: self._enumerators.start(now_ms))

    def _send(self, ask: Callable[[], Iterable[tuple[TaskId, Answer]]]) -> Failure | None:
        """Pass on what the enumerators answer."""
        try:
            self._out += [Send(task, answer) for task, answer in ask()]
        except StromError as error:
            return Failure(str(error))
        return None
