"""The mailbox loop of one task, as steps: control mail first, data otherwise, never blocking.

    CREATED --open--> RUNNING --all inputs ended--> DRAINED --terminal commit--> FINISHED
        \\___________________\\______________________\\____ error -> FAILED, cancel -> CANCELED

A host calls `step` until the task is over; between steps that did nothing it may sleep in the
endpoint's `pump` until `next_deadline`. All of this runs on one thread; only `post` is thread-safe.
A task whose outputs are full takes no input but goes on handling mail, so that it can always be
cancelled and its checkpoints triggered: that is how backpressure walks upstream. What an operator
has still to emit then is parked in the chain, and comes before any input once there is room.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from ...core.clock import Clock
from ...core.elements import CheckpointBarrier
from ...core.errors import OperatorError, SerializationError, StromError, TransportError
from ...core.failure_text import SUMMARY_LIMIT, TRACE_LIMIT, cut, described, is_for_the_program
from ...core.ids import OperatorId
from ..exchange.endpoint import Endpoint
from ..exchange.pickling import opened, parcel
from ..messages import (
    CancelTask,
    CheckpointAborted,
    CheckpointCompleted,
    Mail,
    MetricsReported,
    NoMoreSplits,
    SplitsAssigned,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskReport,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
)
from .background import Background
from .chain import ChainNode, OperatorChain
from .checkpointing import TaskCheckpoints
from .deployment import TaskDeployment
from .edges import edge_writers
from .intake import GateIntake, Intake, SourceIntake
from .metrics import process_figures
from .wakeups import Wakeups

_log = logging.getLogger("strom")

IDLE_FLUSH_S = 0.001
"""How long an idle task waits for more before it sends partly filled buffers."""


class TaskState(Enum):
    CREATED = "created"
    RUNNING = "running"
    DRAINED = "drained"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def over(self) -> bool:
        return self in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELED)


class Task:
    """One subtask in one attempt. The endpoint is connected already and outlives the task."""

    def __init__(
        self,
        deployment: TaskDeployment,
        endpoint: Endpoint,
        clock: Clock,
        report: Callable[[TaskReport], None],
        background: Background,
    ) -> None:
        self.deployment = deployment
        self.state = TaskState.CREATED
        self._endpoint = endpoint
        self._clock = clock
        self._report = report
        self._background = background
        self._mailbox: deque[Mail | Callable[[], None]] = deque()
        self._wakeups = Wakeups()
        self._wake_metrics = self._wakeups.register(self._on_metrics_due)
        self._opened_cpu_s = 0.0
        """CPU time of this process when the task was open: what its start cost."""
        self._chain = self._build_chain()
        self._source = self._chain.source
        self._checkpoints = TaskCheckpoints(
            deployment, self._chain, endpoint.gate, clock, background, report, self.post
        )
        self._intake = self._build_intake()

    def _build_chain(self) -> OperatorChain:
        d = self.deployment
        writers = edge_writers(d, self._endpoint.outputs)
        task, attempt = d.task, d.attempt
        return OperatorChain(
            d,
            writers,
            self._clock,
            self._wakeups,
            publish=self._publish,
            request_splits=lambda op: self._report(SplitsRequested(task, attempt, op)),
        )

    def _publish(self, operator: OperatorId, key: str, value: Any) -> None:
        """SerializationError, out of the operator's own call, if the value cannot travel."""
        d = self.deployment
        sent = parcel(value, "record", "the job's client")
        self._report(ValuePublished(d.task, d.attempt, operator, key, sent))

    def _build_intake(self) -> Intake:
        if self._source is not None:
            return SourceIntake(self._chain.head, self._source)
        return GateIntake(
            self.deployment.inputs,
            self._chain,
            self._endpoint.gate,
            self._clock,
            self.deployment.config.batch_size,
            self._checkpoints.on_barrier,
        )

    # --- the host's side -------------------------------------------------------------------

    def post(self, mail: Mail | Callable[[], None]) -> None:
        """Put control mail into the mailbox and wake the loop. Thread-safe."""
        self._mailbox.append(mail)
        self._endpoint.wake()

    def step(self) -> bool:
        """Do one round of work; returns whether anything happened. Never raises, except for Ctrl-C
        in the main thread: an error ends the task and is reported."""
        if self.state.over:
            return False
        try:
            return self._step()
        except BaseException as error:
            self._fail(error)
            return True

    def rest(self, limit: float) -> None:
        """Wait up to `limit` seconds for input, mail, or the next deadline.

        A task with nothing to do gains nothing by letting buffers fill: after `IDLE_FLUSH_S` they
        leave, long before the buffer timeout of a busy one.
        """
        due = self.next_deadline()
        wait = limit if due is None else min(limit, due)
        try:
            if wait > IDLE_FLUSH_S and self._endpoint.next_flush() is not None:
                if not self._endpoint.pump(IDLE_FLUSH_S):
                    self._endpoint.flush()
                    self._endpoint.pump(0)
            else:
                self._endpoint.pump(wait)
        except BaseException as error:
            self._fail(error)

    def next_deadline(self) -> float | None:
        """Seconds until `step` has something to do by itself; None: only input or mail can tell."""
        due = self._wakeups.next_due()
        flush = self._endpoint.next_flush()
        timer = None if due is None else (due - self._clock.now_ms()) / 1000.0
        known = [t for t in (timer, flush) if t is not None]
        return max(0.0, min(known)) if known else None

    def abandon(self) -> None:
        """Drop everything without a word, as a crash would. For the simulator and dying hosts."""
        if not self.state.over:
            self.state = TaskState.CANCELED
            self._close_chain()
        self._background.close()

    # --- one step --------------------------------------------------------------------------

    def _step(self) -> bool:
        if self.state is TaskState.CREATED:
            self._open()
            return True
        busy = self._handle_mail()
        if self.state.over:
            return True
        self._chain.begin_slice()
        if self._wakeups.fire(self._clock.now_ms()):
            busy = True
            self._intake.wake()
        busy |= self._endpoint.pump(0)
        return self._work() or busy

    def _work(self) -> bool:
        """What is parked, snapshots that waited for it, then input; whether anything was done."""
        chain, checkpoints = self._chain, self._checkpoints
        busy = chain.resume()
        busy |= checkpoints.take_waiting()
        if checkpoints.waiting:
            return busy
        if not chain.busy and chain.available:
            busy |= self._intake.take()
        elif chain.settled:
            busy |= self._intake.take_barriers()
        if self._intake.ended and self.state is TaskState.RUNNING:
            busy |= self._drain()
        return busy

    def _open(self) -> None:
        self._checkpoints.restore()
        self._chain.open()
        self._opened_cpu_s = time.process_time()
        self.state = TaskState.RUNNING
        self._on_metrics_due(self._clock.now_ms())
        self._report(TaskRunning(self.deployment.task, self.deployment.attempt))

    def _handle_mail(self) -> bool:
        handled = False
        while self._mailbox and not self.state.over:
            mail = self._mailbox.popleft()
            handled = True
            if callable(mail):
                mail()
            else:
                self._on_mail(mail)
        return handled

    def _on_mail(self, mail: Mail) -> None:
        match mail:
            case TriggerCheckpoint(checkpoint_id, timestamp_ms, terminal):
                barrier = CheckpointBarrier(checkpoint_id, timestamp_ms, terminal)
                self._checkpoints.trigger(barrier)
            case CheckpointCompleted(checkpoint_id, terminal):
                self._chain.notify_complete(checkpoint_id)
                if terminal:
                    self._finish()
            case CheckpointAborted(checkpoint_id):
                self._checkpoints.on_aborted(checkpoint_id)
            case SplitsAssigned(operator, splits):
                source, head = self._source_for(operator), self._chain.head
                head.guard(source.add_splits, list(head.guard(opened, splits, "splits")))
                self._intake.wake()
            case NoMoreSplits(operator):
                self._source_for(operator).no_more_splits()
                self._intake.wake()
            case CancelTask():
                self._end(TaskState.CANCELED)
                self._report(TaskCancelled(self.deployment.task, self.deployment.attempt))

    def _source_for(self, operator: OperatorId) -> Any:
        if self._source is None or self._source.ctx.operator_id != operator:
            raise StromError(f"task {self.deployment.label} has no source {operator}")
        return self._source

    # --- the end ---------------------------------------------------------------------------

    def _drain(self) -> bool:
        """Let the operators finish, as far as the outputs take it; whether anything was done."""
        finished = self._chain.finished
        if not self._chain.finish():
            return self._chain.finished > finished
        self.state = TaskState.DRAINED
        self._endpoint.flush()
        self._report_metrics()
        self._report(TaskDrained(self.deployment.task, self.deployment.attempt))
        return True

    def _finish(self) -> None:
        self._report_metrics()
        self._end(TaskState.FINISHED)
        self._report(TaskFinished(self.deployment.task, self.deployment.attempt))

    def _fail(self, error: BaseException) -> None:
        if is_for_the_program(error):
            raise error
        d = self.deployment
        self._end(TaskState.FAILED)
        symptom = isinstance(error, TransportError)
        self._report(TaskFailed(d.task, d.attempt, self._failure(error), symptom=symptom))

    def _failure(self, error: BaseException) -> str:
        """What is reported: of whatever length the error is, it is a message."""
        if isinstance(error, SerializationError):
            error = self._operator_of(error.edge).attribute(error)
        if isinstance(error, OperatorError):
            return cut(str(error), SUMMARY_LIMIT + TRACE_LIMIT)
        return f"task {self.deployment.label}: {described(error)}"

    def _operator_of(self, edge: int | None) -> ChainNode:
        """Who feeds the job edge; None: the head, which reads what came from elsewhere."""
        operators = self.deployment.vertex.operators
        nodes = zip(self._chain.nodes, operators, strict=True)
        return next((node for node, o in nodes if edge in o.outer), self._chain.head)

    def _end(self, state: TaskState) -> None:
        self.state = state
        self._close_chain()
        self._background.close()

    def _close_chain(self) -> None:
        """What an operator raises here can be told, and not undone (see `operators.closing`)."""
        for error in self._chain.close():
            _log.warning("closing failed: %s", error)

    # --- metrics ---------------------------------------------------------------------------

    def _on_metrics_due(self, now_ms: int) -> None:
        self._report_metrics()
        interval = self.deployment.config.metrics_interval.total_seconds() * 1000
        self._wake_metrics(now_ms + max(1, round(interval)))

    def _report_metrics(self) -> None:
        d = self.deployment
        stats = self._endpoint.statistics()
        metrics = {
            "operators": self._chain.metrics(),
            "exchange": stats,
            "state": self.state.value,
            "process": {**process_figures(), "opened_cpu_s": self._opened_cpu_s},
        }
        self._report(MetricsReported(d.task, d.attempt, metrics))
