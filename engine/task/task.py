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
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from ...core.clock import Clock
from ...core.elements import CheckpointBarrier
from ...core.errors import OperatorError, SerializationError, StromError, TransportError
from ...core.failure_text import SUMMARY_LIMIT, TRACE_LIMIT, cut, described, is_for_the_program
from ...core.ids import Attempt, OperatorId
from ...logs.scope import tells_scope
from ..exchange.endpoint import Endpoint, Wiring
from ..exchange.pickling import opened, parcel
from ..messages import (
    AlignWatermarks,
    CancelTask,
    CheckpointAborted,
    CheckpointCompleted,
    EndSources,
    GoOn,
    Mail,
    NoMoreSplits,
    Rewire,
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
    WatermarkReported,
)
from .background import Background
from .chain import OperatorChain
from .chain_node import ChainNode
from .checkpointing import TaskCheckpoints
from .deployment import TaskDeployment
from .edges import edge_writers, rewire
from .intake import GateIntake, Intake, SourceIntake
from .reporting import FigureReports, LatencyMarkers
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

    over: bool

    def __init__(self, name: str) -> None:
        self.over = name in ("finished", "failed", "canceled")


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
        self.log_scope = deployment.log_scope
        self.state = TaskState.CREATED
        self._endpoint = endpoint
        self._clock = clock
        self._report = report
        self._background = background
        self._mailbox: deque[Mail | Callable[[], None]] = deque()
        self._wakeups = Wakeups()
        self._commits = Wakeups()
        """Of sinks and checkpoints, which go on also when nothing may be emitted any more."""
        self._chain = self._build_chain()
        self._source = self._chain.source
        self._complete = False
        """Whether the terminal checkpoint is complete, and at most its commit is to be done."""
        self._checkpoints = TaskCheckpoints(
            deployment,
            self._chain,
            endpoint.gate,
            clock,
            background,
            report,
            self.post,
            self._commits,
            lambda: self._intake.before(),
            lambda: self._intake.replaying,
        )
        self._intake = self._build_intake()
        self._figures = FigureReports(
            deployment,
            endpoint,
            self._chain,
            self._checkpoints,
            clock,
            self._wakeups,
            lambda: self.state,
            report,
        )
        self._times = self._figures.times
        self._markers = LatencyMarkers(deployment, self._chain, clock, self._wakeups)
        self._woken: list[Callable[[], None]] = []
        """Wake-ups of operators that came while the task was halted."""
        self._wired_in = deployment.attempt
        """The attempt of its channels."""
        self._severed: TransportError | None = None
        """Why it has no channels: they broke while a checkpoint held it."""

    def _build_chain(self) -> OperatorChain:
        d = self.deployment
        writers = edge_writers(d, self._endpoint.outputs)
        task, attempt = d.task, d.attempt
        return OperatorChain(
            d,
            writers,
            self._clock,
            self._wakeups,
            self._commits,
            publish=self._publish,
            request_splits=lambda op: self._report(SplitsRequested(task, attempt, op)),
            wake=self._wake_operator,
            report_watermark=lambda op, at: self._report(WatermarkReported(task, attempt, op, at)),
            threads=self._background.threads,
        )

    def _publish(self, operator: OperatorId, key: str, value: Any) -> None:
        """SerializationError, out of the operator's own call, if the value cannot travel."""
        d = self.deployment
        sent = parcel(value, "record", "the job's client")
        self._report(ValuePublished(d.task, d.attempt, operator, key, sent))

    def _build_intake(self) -> Intake:
        if self._source is not None:
            return SourceIntake(self._chain, self._source)
        return GateIntake(
            self.deployment.inputs,
            self._chain,
            self._endpoint.gate,
            self._clock,
            self.deployment.config.batch_size,
            self._checkpoints.on_barrier,
            lambda: self._halted,
        )

    # --- the host's side -------------------------------------------------------------------

    def post(self, mail: Mail | Callable[[], None]) -> None:
        """Put control mail into the mailbox and wake the loop. Thread-safe."""
        self._mailbox.append(mail)
        self._endpoint.wake()

    @property
    def has_mail(self) -> bool:
        """Whether something was posted that it has not handled."""
        return bool(self._mailbox)

    def _wake_operator(self, woken: Callable[[], None]) -> None:
        """Thread-safe: a source has something to read, or another operator something to go on with,
        which `woken` tells it."""

        def wake() -> None:
            if self._halted:
                self._woken.append(woken)
                return
            woken()
            self._intake.wake()

        self.post(wake)

    @tells_scope
    def step(self) -> bool:
        """Do one round of work; returns whether anything happened. Never raises, except for Ctrl-C
        in the main thread: an error ends the task and is reported."""
        if self.state.over:
            return False
        self._times.begin()
        try:
            did_something = self._step()
        except BaseException as error:
            self._fail(error)
            return True
        blocked = not did_something and (self._chain.busy or not self._chain.available)
        self._times.end(did_something, blocked)
        return did_something

    def rest(self, limit: float) -> None:
        """Wait up to `limit` seconds for input, mail, or the next deadline.

        A task with nothing to do gains nothing by letting buffers fill: after `IDLE_FLUSH_S` they
        leave, long before the buffer timeout of a busy one.
        """
        due = self.next_deadline()
        wait = limit if due is None else min(limit, due)
        try:
            if wait > IDLE_FLUSH_S and self._endpoint.next_flush() is not None:
                if not self._pump(IDLE_FLUSH_S):
                    self._endpoint.flush()
                    self._pump(0)
            else:
                self._pump(wait)
        except BaseException as error:
            self._fail(error)

    def next_deadline(self) -> float | None:
        """Seconds until `step` has something to do by itself; None: only input or mail can tell."""
        due = self._commits.next_due()
        alarm = None if self._halted else self._wakeups.next_due()
        if due is None or (alarm is not None and alarm < due):
            due = alarm
        flush = self._endpoint.next_flush()
        if due is None:
            return None if flush is None else max(0.0, flush)
        timer = (due - self._clock.now_ms()) / 1000.0
        return max(0.0, timer if flush is None else min(timer, flush))

    def abandon(self) -> None:
        """Drop everything without a word, as a crash would. For the simulator and dying hosts."""
        if not self.state.over:
            self.state = TaskState.CANCELED
            self._close_chain()
        self._checkpoints.close()
        self._background.close()

    # --- one step --------------------------------------------------------------------------

    def _step(self) -> bool:
        if self.state is TaskState.CREATED:
            self._open()
            return True
        busy = self._handle_mail()
        self._finish_if_committed()
        if self.state.over:
            return True
        self._chain.begin_slice()
        busy |= self._commits.fire(self._clock.now_ms())
        if self._halted:
            return self._stand_still() or busy
        if self._wakeups.fire(self._clock.now_ms(), lambda: self._halted):
            busy = True
            self._intake.wake()
        busy |= self._pump(0)
        return self._work() or busy

    @property
    def _halted(self) -> bool:
        """Whether it is to emit nothing any more: see `checkpointing`."""
        checkpoints = self._checkpoints
        held = checkpoints.held_at is not None
        return held or self.deployment.halted or checkpoints.halted_at is not None

    def _pump(self, timeout: float) -> bool:
        """As of the endpoint; channels that break while the task is held are let go of."""
        try:
            return self._endpoint.pump(timeout)
        except TransportError as error:
            if self._checkpoints.held_at is None:
                raise
            self._severed = error
            self._endpoint.connect(Wiring(self._wired_in, (), (), {}))
            return True

    def _stand_still(self) -> bool:
        """Barriers, and what sinks have still to commit; whether anything was done."""
        busy = self._pump(0)
        busy |= self._chain.resume_sinks()
        if self._checkpoints.held_at is not None:
            busy |= self._checkpoints.look_ahead()
        busy |= self._checkpoints.take_waiting()
        return self._intake.take_barriers() or busy

    def _go_on(self) -> None:
        """The savepoint behind which it was to halt is given up, or nothing holds it any more."""
        if self._severed is not None:
            raise self._severed
        woken, self._woken = self._woken, []
        for wake in woken:
            wake()
        self._intake.wake()

    def _work(self) -> bool:
        """What is parked, snapshots that waited for it, then input; whether anything was done."""
        chain, checkpoints = self._chain, self._checkpoints
        busy = checkpoints.look_ahead()
        if self._halted:
            return busy
        busy |= chain.resume()
        busy |= checkpoints.take_waiting()
        if checkpoints.waiting or self._halted:
            return busy
        if not chain.busy and chain.available:
            if self._markers.due:
                self._markers.send(self._intake.ended)
            busy |= self._intake.take()
        elif chain.settled:
            busy |= self._intake.take_barriers()
        if self._intake.ended and self.state is TaskState.RUNNING and not self._halted:
            busy |= self._drain()
        return busy

    def _open(self) -> None:
        self._intake.begin(self._checkpoints.restore())
        self._chain.open()
        self.state = TaskState.RUNNING
        self._figures.open()
        self._markers.open()
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
            case TriggerCheckpoint(checkpoint_id, timestamp_ms, terminal, base):
                place, halt = mail.savepoint, mail.halt
                overtakes = self.deployment.config.checkpoint.overtakes
                overtakes = overtakes and not terminal and place is None
                barrier = CheckpointBarrier(
                    checkpoint_id, timestamp_ms, terminal, base, place, halt, overtakes
                )
                self._checkpoints.trigger(barrier)
            case EndSources():
                if self._source is not None:
                    self._source.end()
                    self._intake.wake()
            case CheckpointCompleted(checkpoint_id, terminal):
                self._checkpoints.on_completed(checkpoint_id)
                self._chain.notify_complete(checkpoint_id)
                self._complete |= terminal
                self._finish_if_committed()
            case CheckpointAborted(checkpoint_id):
                halted = self._halted
                self._checkpoints.on_aborted(checkpoint_id)
                if halted and not self._halted:
                    self._go_on()
            case GoOn(checkpoint_id):
                halted = self._halted
                self._checkpoints.go_on(checkpoint_id)
                if halted and not self._halted:
                    self._go_on()
            case Rewire():
                self._rewire(mail)
            case SplitsAssigned(operator, splits):
                source, head = self._source_for(operator), self._chain.head
                head.guard(source.add_splits, list(head.guard(opened, splits, "splits")))
                self._intake.wake()
            case NoMoreSplits(operator):
                self._source_for(operator).no_more_splits()
                self._intake.wake()
            case AlignWatermarks(operator, limit_ms):
                self._chain.head.guard(self._source_for(operator).align, limit_ms)
                self._intake.wake()
            case CancelTask():
                self._end(TaskState.CANCELED)
                self._report(TaskCancelled(self.deployment.task, self.deployment.attempt))

    def _rewire(self, mail: Rewire) -> None:
        """Go on with other channels. What comes by the former ones is nothing but barriers of
        checkpoints that are given up."""
        if self._checkpoints.held_at is None:
            raise StromError(f"task {self.deployment.label} was wired anew while it ran")
        wiring: Wiring = mail.wiring
        self._endpoint.connect(wiring)
        self._wired_in, self._severed = Attempt(wiring.attempt), None
        inputs, outputs = tuple(wiring.inputs), tuple(wiring.outputs)
        self.deployment = d = replace(
            self.deployment, inputs=inputs, outputs=outputs, deals=mail.deals, shape=mail.shape
        )
        self._chain.deployment = d
        rewire(self._chain.writers, d, self._endpoint.outputs)
        self._intake.rewire(d.inputs, self._endpoint.gate)
        self._checkpoints.rewire(d, self._endpoint.gate)
        self._go_on()
        self._report(TaskRunning(d.task, d.attempt))
        if self.state is TaskState.DRAINED:
            self._report(TaskDrained(d.task, d.attempt))

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
        self._figures.send(self._figures.now(exact=True))
        self._report(TaskDrained(self.deployment.task, self.deployment.attempt))
        return True

    def _finish_if_committed(self) -> None:
        if not self._complete or self.state.over:
            return
        if not (self._chain.sinks_settled if self._halted else self._chain.settled):
            return
        if not self._chain.committed:
            return
        figures = self._figures.now(exact=True)
        self._end(TaskState.FINISHED)
        try:
            # What functions added while they were closed counts; their gauges are asked no more.
            figures["accumulators"] = self._chain.accumulators()
        except OperatorError as error:
            _log.warning("%s; what was added to accumulators in close() is not in them", error)
        self._figures.send(figures)
        self._report(TaskFinished(self.deployment.task, self.deployment.attempt))

    def _fail(self, error: BaseException) -> None:
        if is_for_the_program(error):
            raise error
        d = self.deployment
        self._end(TaskState.FAILED)
        known = error if isinstance(error, StromError) else StromError()
        symptom, text = isinstance(error, TransportError), self._failure(error)
        failed = TaskFailed(d.task, d.attempt, text, known.recoverable, symptom, known.fenced)
        self._report(failed)

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
        self._checkpoints.close()
        self._background.close()

    def _close_chain(self) -> None:
        """What an operator raises here can be told, and not undone (see `operators.closing`)."""
        for error in self._chain.close():
            _log.warning("closing failed: %s", error)
