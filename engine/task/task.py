"""The mailbox loop of one task, as steps: control mail first, data otherwise, never blocking.

    CREATED --open--> RUNNING --all inputs ended--> DRAINED --terminal commit--> FINISHED
        \\___________________\\______________________\\____ error -> FAILED, cancel -> CANCELLED

A host calls `step` until the task is over; between steps that did nothing it may sleep in the
endpoint's `pump` until `next_deadline`. All of this runs on one thread; only `post` is thread-safe.
A task whose outputs are full takes no input but goes on handling mail, so that it can always be
cancelled and its checkpoints triggered: that is how backpressure walks upstream.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from ...checkpoint.alignment import Abandon, Align, BarrierAligner, Block, UnblockAll
from ...checkpoint.handles import SubtaskSnapshot
from ...checkpoint.snapshot_io import read_operator, write_subtask
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.clock import Clock
from ...core.elements import (
    CheckpointBarrier,
    Control,
    Element,
    EndOfData,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from ...core.errors import OperatorError, StromError, TransportError
from ...core.ids import CheckpointId, OperatorId
from ...operators.base import PollStatus
from ...operators.valve import Action as ValveAction
from ...operators.valve import WatermarkValve
from ...state.backend import NoSnapshot
from ..exchange.endpoint import Endpoint
from ..messages import (
    CancelTask,
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
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
from .chain import OperatorChain
from .deployment import TaskDeployment
from .edges import edge_writers
from .metrics import process_figures
from .portions import Portions
from .wakeups import Wakeups

ELEMENTS_PER_STEP = 16
"""How much input one step takes before it looks at mail and the network again."""

STEP_S = 0.01
"""How long, at most, but for the element being handled: slow functions must not hold up control."""

IDLE_FLUSH_S = 0.001
"""How long an idle task waits for more before it sends partly filled buffers."""


class TaskState(Enum):
    CREATED = "created"
    RUNNING = "running"
    DRAINED = "drained"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in (TaskState.FINISHED, TaskState.FAILED, TaskState.CANCELLED)


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
        self._source_idle = False
        self._ports = [c.port for c in deployment.inputs]
        self._valve = WatermarkValve(len(self._ports)) if self._ports else None
        self._aligner = BarrierAligner(len(self._ports)) if self._ports else None
        self._alignment_started = 0.0
        self._portions = Portions(deployment.config.batch_size)
        self._rest: tuple[int, Batch, int] | None = None
        """Input channel, batch, and how many of its records were handled: comes before the gate."""
        self._open_channels = len(self._ports)
        """Input channels that have not delivered EndOfData; 0 from DRAINED on."""
        self._open_ports = Counter(self._ports)

    def _build_chain(self) -> OperatorChain:
        d = self.deployment
        writers = edge_writers(d, self._endpoint.outputs)
        task, attempt = d.task, d.attempt
        return OperatorChain(
            d,
            writers,
            self._clock,
            self._wakeups,
            publish=lambda op, key, value: self._report(
                ValuePublished(task, attempt, op, key, value)
            ),
            request_splits=lambda op: self._report(SplitsRequested(task, attempt, op)),
        )

    # --- the host's side -------------------------------------------------------------------

    def post(self, mail: Mail | Callable[[], None]) -> None:
        """Put control mail into the mailbox and wake the loop. Thread-safe."""
        self._mailbox.append(mail)
        self._endpoint.wake()

    def step(self) -> bool:
        """Do one round of work; returns whether anything happened. Never raises: an error ends the
        task and is reported."""
        if self.state.over:
            return False
        try:
            return self._step()
        except Exception as error:
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
        except Exception as error:
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
            self.state = TaskState.CANCELLED
            self._chain.close()
        self._background.close()

    # --- one step --------------------------------------------------------------------------

    def _step(self) -> bool:
        if self.state is TaskState.CREATED:
            self._open()
            return True
        busy = self._handle_mail()
        if self.state.over:
            return True
        if self._wakeups.fire(self._clock.now_ms()):
            busy = True
            self._source_idle = False
        busy |= self._endpoint.pump(0)
        if self._chain.available:
            busy |= self._poll_source() if self._source is not None else self._take_input()
        return busy

    def _open(self) -> None:
        self._restore()
        self._chain.open()
        self._opened_cpu_s = process_figures()["cpu_s"]
        self.state = TaskState.RUNNING
        self._on_metrics_due(self._clock.now_ms())
        self._report(TaskRunning(self.deployment.task, self.deployment.attempt))

    def _restore(self) -> None:
        d = self.deployment
        if d.restore is None:
            return
        for context in self._chain.contexts:
            keyed, operator = read_operator(
                d.restore_storage,
                d.restore,
                context.operator_id,
                d.task.subtask,
                d.vertex.parallelism,
                d.vertex.max_parallelism,
            )
            context.keyed_state.restore(keyed)
            context.operator_state.restore(operator)

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
                self._snapshot(CheckpointBarrier(checkpoint_id, timestamp_ms, terminal), 0.0)
            case CheckpointCompleted(checkpoint_id, terminal):
                self._chain.notify_complete(checkpoint_id)
                if terminal:
                    self._finish()
            case CheckpointAborted(checkpoint_id):
                self._on_aborted(checkpoint_id)
            case SplitsAssigned(operator, splits):
                source = self._source_for(operator)
                self._chain.head.guard(source.add_splits, list(splits))
                self._source_idle = False
            case NoMoreSplits(operator):
                self._source_for(operator).no_more_splits()
                self._source_idle = False
            case CancelTask():
                self._end(TaskState.CANCELLED)
                self._report(TaskCancelled(self.deployment.task, self.deployment.attempt))

    def _source_for(self, operator: OperatorId) -> Any:
        if self._source is None or self._source.ctx.operator_id != operator:
            raise StromError(f"task {self.deployment.label} has no source {operator}")
        return self._source

    # --- data ------------------------------------------------------------------------------

    def _poll_source(self) -> bool:
        if self._source_idle or self.state is not TaskState.RUNNING:
            return False
        assert self._source is not None
        status = self._chain.head.guard(self._source.poll)
        if status is PollStatus.ENDED:
            self._drain()
        elif status is PollStatus.IDLE:
            self._source_idle = True
            return False
        return True

    def _take_input(self) -> bool:
        until = self._clock.monotonic() + STEP_S
        for taken in range(ELEMENTS_PER_STEP):
            if self._rest is not None:
                self._process(*self._rest)
            elif (item := self._endpoint.gate.poll()) is not None:
                self._on_element(*item)
            else:
                return taken > 0
            if not self._chain.available or self.state.over or self._clock.monotonic() >= until:
                break
        return True

    def _on_element(self, index: int, element: Element) -> None:
        if isinstance(element, (ColumnBatch, ObjectBatch)):
            if len(element):
                self._process(index, element, 0)
        else:
            self._on_control(index, element)

    def _process(self, index: int, batch: Batch, done: int) -> None:
        """One portion of a batch of which `done` records were handled before."""
        left = len(batch) - done
        count = min(left, self._portions.records)
        portion = batch if count == len(batch) else batch.slice(done, count)
        self._rest = None if count == left else (index, batch, done + count)
        started = self._clock.monotonic()
        self._chain.head.process(portion, self._ports[index])
        self._portions.took(count, self._clock.monotonic() - started)

    def _on_control(self, index: int, element: Control) -> None:
        assert self._valve is not None
        match element:
            case Watermark(timestamp):
                self._apply_valve(self._valve.on_watermark(index, timestamp))
            case StreamStatus(active):
                self._apply_valve(self._valve.on_status(index, active))
            case CheckpointBarrier():
                self._on_barrier(index, element)
            case LatencyMarker(marked_ms, _, _):
                delay = self._clock.now_ms() - marked_ms
                self._chain.head.metrics.gauge("latency_ms", delay)
            case EndOfData():
                self._open_channels -= 1
                self._apply_valve(self._valve.on_end(index))
                self._end_port(self._ports[index])
                if self._open_channels == 0:
                    self._drain()

    def _apply_valve(self, actions: list[ValveAction]) -> None:
        head = self._chain.head
        for action in actions:
            match action:
                case Watermark(timestamp):
                    head.guard(head.operator.process_watermark, timestamp)
                case StreamStatus(active):
                    head.guard(head.operator.process_status, active)

    def _end_port(self, port: int) -> None:
        """One more channel of the port has ended; the last one ends the port."""
        self._open_ports[port] -= 1
        if not self._open_ports[port]:
            head = self._chain.head
            head.guard(head.operator.end_input, port)

    def _drain(self) -> None:
        self._chain.finish()
        self.state = TaskState.DRAINED
        self._endpoint.flush()
        self._report_metrics()
        self._report(TaskDrained(self.deployment.task, self.deployment.attempt))

    # --- checkpoints -----------------------------------------------------------------------

    def _on_barrier(self, index: int, barrier: CheckpointBarrier) -> None:
        assert self._aligner is not None
        if not self._aligner.aligning:
            self._alignment_started = self._clock.monotonic()
        for action in self._aligner.on_barrier(index, barrier):
            match action:
                case Block(channel):
                    self._endpoint.gate.block(channel)
                case UnblockAll():
                    self._endpoint.gate.unblock_all()
                case Align(aligned):
                    waited = self._clock.monotonic() - self._alignment_started
                    self._snapshot(aligned, waited * 1000.0)
                case Abandon(checkpoint_id):
                    self._chain.notify_aborted(checkpoint_id)

    def _on_aborted(self, checkpoint_id: CheckpointId) -> None:
        if self._aligner is not None:
            for action in self._aligner.on_abort(checkpoint_id):
                if isinstance(action, UnblockAll):
                    self._endpoint.gate.unblock_all()
        self._chain.notify_aborted(checkpoint_id)

    def _snapshot(self, barrier: CheckpointBarrier, alignment_ms: float) -> None:
        """The synchronous part, the barrier onwards, and the rest handed to the background."""
        started = self._clock.monotonic()
        checkpoint_id = barrier.checkpoint_id
        only_commits = barrier.terminal and self.deployment.config.checkpoint.only_commits
        self._chain.prepare_snapshot(checkpoint_id, only_commits)
        self._chain.send_barrier(barrier)
        parts = [
            (
                c.operator_id,
                NoSnapshot() if only_commits else c.keyed_state.snapshot(),
                c.operator_state.snapshot(),
            )
            for c in self._chain.contexts
        ]
        sync_ms = (self._clock.monotonic() - started) * 1000.0
        task, storage = self.deployment.task, self.deployment.storage

        def done(snapshot: Any, error: BaseException | None) -> None:
            elapsed = (self._clock.monotonic() - started) * 1000.0 - sync_ms
            self.post(
                lambda: self._on_written(
                    checkpoint_id, snapshot, error, (sync_ms, elapsed, alignment_ms)
                )
            )

        self._background.submit(lambda: write_subtask(storage, checkpoint_id, task, parts), done)

    def _on_written(
        self,
        checkpoint_id: CheckpointId,
        snapshot: SubtaskSnapshot,
        error: BaseException | None,
        times: tuple[float, float, float],
    ) -> None:
        d = self.deployment
        if error is not None:
            reason = f"task {d.label}: {type(error).__name__}: {error}"
            self._report(CheckpointDeclined(d.task, d.attempt, checkpoint_id, reason))
        else:
            self._report(CheckpointAcknowledged(d.task, d.attempt, checkpoint_id, snapshot, *times))

    # --- the end ---------------------------------------------------------------------------

    def _finish(self) -> None:
        self._report_metrics()
        self._end(TaskState.FINISHED)
        self._report(TaskFinished(self.deployment.task, self.deployment.attempt))

    def _fail(self, error: Exception) -> None:
        d = self.deployment
        self._end(TaskState.FAILED)
        text = (
            str(error)
            if isinstance(error, OperatorError)
            else (f"task {d.label}: {type(error).__name__}: {error}")
        )
        symptom = isinstance(error, TransportError)
        self._report(TaskFailed(d.task, d.attempt, text, symptom=symptom))

    def _end(self, state: TaskState) -> None:
        self.state = state
        self._chain.close()
        self._background.close()

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
