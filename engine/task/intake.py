"""What a task handles next: a source of its own is polled, other tasks' records come from the gate.

Both hand a little to the head of the chain per call, so that mail and network get their turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ...checkpoint.in_flight import Made, Waiting
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
from ...operators.base import PollStatus, SourceOperator
from ...operators.time.valve import Action as ValveAction
from ...operators.time.valve import WatermarkValve
from ..exchange.endpoint import InputGate
from ..graph.model import Channel
from .chain import OperatorChain
from .in_flight import captured
from .portions import Portions
from .replay import Replay, event_time

ELEMENTS_PER_STEP = 16
"""How much input one `take` handles at most."""

STEP_S = 0.01
"""How long, at most, but for the element being handled: slow functions must not hold up control."""


@dataclass
class InputState:
    """What a task has taken of its input and not handled. `lanes`: of a restored checkpoint;
    `channels`: of each input channel, after where its event time is. `records`: whether there is
    more than event time."""

    lanes: list[Waiting] = field(default_factory=list)
    channels: list[list[Made]] = field(default_factory=list)
    records: bool = False


class Intake(Protocol):
    """Where a task's records come from. Errors of operators come out of `take` as OperatorError."""

    @property
    def ended(self) -> bool:
        """Whether no record will come any more; never false again."""
        ...

    def take(self) -> bool:
        """Handle what there is, up to a step's worth; whether that was anything. Not called while
        the outputs are full or an operator is busy. Stops at the end of the records; what comes
        behind them, the barriers of the terminal checkpoint, is left to later calls."""
        ...

    def take_barriers(self) -> bool:
        """Take only barriers that no record and no watermark comes before; whether there were any.
        For a task that can take nothing else, but could take a snapshot."""
        ...

    def wake(self) -> None:
        """Mail came or a timer fired: there may be something again."""
        ...

    def begin(self, replay: Replay) -> None:
        """What a restored checkpoint had on its way here comes first. Before anything is taken."""
        ...

    @property
    def replaying(self) -> bool:
        """Whether something of that is left."""
        ...

    def before(self) -> InputState:
        """What comes before all that waits in the gate; for a checkpoint that overtakes."""
        ...

    def rewire(self, inputs: tuple[Channel, ...], gate: InputGate) -> None:
        """Records come by these channels from now on. All of what the former ones brought is
        handled; those that had ended do so again."""
        ...


class SourceIntake:
    """Polls the source at the head of the chain."""

    def __init__(self, chain: OperatorChain, source: SourceOperator) -> None:
        self._chain = chain
        self._source = source
        self._replay = Replay()
        """What was on its way to operators that are chained to the source now."""
        self._idle = False
        """Whether the last poll found nothing, and nobody has woken this since."""
        self.ended = False

    def take(self) -> bool:
        if not self._replay.over:
            self._take_replayed()
            return True
        if self._idle or self.ended:
            return False
        status = self._chain.head.guard(self._source.poll)
        self.ended = status is PollStatus.ENDED
        self._idle = status is PollStatus.IDLE
        return not self._idle

    def take_barriers(self) -> bool:
        """A source is told of checkpoints by mail."""
        return False

    def wake(self) -> None:
        self._idle = False

    def begin(self, replay: Replay) -> None:
        self._replay = replay

    @property
    def replaying(self) -> bool:
        return not self._replay.over

    def before(self) -> InputState:
        subtask = self._chain.deployment.task.subtask
        return InputState(self._replay.waiting(subtask, None), [], not self._replay.over)

    def rewire(self, inputs: tuple[Channel, ...], gate: InputGate) -> None:
        """A source has none."""

    def _take_replayed(self) -> None:
        item = self._replay.poll()
        if item is not None and isinstance(item[1], (ColumnBatch, ObjectBatch)):
            lane = self._replay.lanes[item[0]]
            self._chain.nodes[lane.node].process(item[1], lane.port)


class GateIntake:
    """Takes from the input gate: records to the head of the chain, watermarks and activity through
    the valve, barriers to the alignment."""

    def __init__(
        self,
        inputs: tuple[Channel, ...],
        chain: OperatorChain,
        gate: InputGate,
        clock: Clock,
        batch_size: int,
        on_barrier: Callable[[int, CheckpointBarrier], None],
        halted: Callable[[], bool],
    ) -> None:
        """`inputs` in order of `target_index`. `halted`: whether a barrier was one behind which
        nothing is to be taken."""
        self._halted = halted
        self._chain = chain
        self._clock = clock
        self._on_barrier = on_barrier
        self._wire(inputs, gate, WatermarkValve(len(inputs)))
        self._portions = Portions(batch_size)
        self._rest: tuple[int, Batch, int] | None = None
        """Input channel, batch, and how many of its records were handled: comes before anything
        else. While a restored checkpoint is replayed, one of its lanes."""
        self._replay = Replay()
        """What comes before the gate."""
        self._told: set[int] = set()
        """Ports of which the head has been told that they have ended."""

    def _wire(self, inputs: tuple[Channel, ...], gate: InputGate, valve: WatermarkValve) -> None:
        self._inputs = inputs
        self._gate = gate
        self._ports = [channel.port for channel in inputs]
        self._valve = valve
        self._open_ports = Counter(self._ports)
        """Channels by port that have not delivered EndOfData."""

    def rewire(self, inputs: tuple[Channel, ...], gate: InputGate) -> None:
        """Event time goes on where it was; whoever was idle says so again."""
        before = self._valve
        self._wire(inputs, gate, WatermarkValve(len(inputs), before.watermark))
        if not before.active:
            self._chain.head.process_status(True)

    @property
    def ended(self) -> bool:
        return not self._open_ports

    def take(self) -> bool:
        until = self._clock.monotonic() + STEP_S
        for taken in range(ELEMENTS_PER_STEP):
            if self._rest is not None:
                self._process(*self._rest)
            elif not self._replay.over:
                self._take_replayed()
            elif (item := self._gate.poll()) is not None:
                self._on_element(*item)
            else:
                return taken > 0
            chain = self._chain
            if chain.busy or not chain.available or self.ended or self._halted():
                break
            if self._clock.monotonic() >= until:
                break
        return True

    def take_barriers(self) -> bool:
        taken = False
        if self._rest is None and self._replay.over:
            while (item := self._gate.poll_barrier()) is not None:
                self._on_barrier(*item)
                taken = True
        return taken

    def wake(self) -> None:
        """The gate is asked each time."""

    def begin(self, replay: Replay) -> None:
        self._replay = replay

    @property
    def replaying(self) -> bool:
        return not self._replay.over

    def before(self) -> InputState:
        replay, target = self._replay, self._inputs[0].target.subtask
        rest = None
        if self._rest is not None:
            index, batch, done = self._rest
            rest = index, batch.slice(done, len(batch) - done)
        valve = self._valve if replay.over else WatermarkValve(len(self._inputs))
        channels = [event_time(valve.channel(one.target_index)) for one in self._inputs]
        if not replay.over:
            return InputState(replay.waiting(target, rest), channels, True)
        if rest is not None:
            channels[rest[0]].append(captured(rest[1]))
        return InputState([], channels, rest is not None)

    def _take_replayed(self) -> None:
        item = self._replay.poll()
        if item is None:
            self._end_replay()
            return
        lane, element = item
        at_head = not self._replay.lanes[lane].node
        match element:
            case Watermark(timestamp) if at_head:
                self._apply(self._replay.valve.on_watermark(lane, timestamp))
            case StreamStatus(active) if at_head:
                self._apply(self._replay.valve.on_status(lane, active))
            case ColumnBatch() | ObjectBatch():
                self._process(lane, element, 0)

    def _end_replay(self) -> None:
        """Event time goes on where the lanes were; whoever was idle says so again."""
        valve = self._replay.valve
        if not valve.active:
            self._chain.head.process_status(True)
        self._valve = WatermarkValve(len(self._inputs), valve.watermark)

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
        replay = self._replay
        if replay.over:
            self._chain.head.process(portion, self._ports[index])
        else:
            lane = replay.lanes[index]
            self._chain.nodes[lane.node].process(portion, lane.port)
        if not self._chain.busy:  # else nobody knows yet how long it takes
            self._portions.took(count, self._clock.monotonic() - started)

    def _on_control(self, index: int, element: Control) -> None:
        match element:
            case Watermark(timestamp):
                self._apply(self._valve.on_watermark(index, timestamp))
            case StreamStatus(active):
                self._apply(self._valve.on_status(index, active))
            case CheckpointBarrier():
                self._on_barrier(index, element)
            case LatencyMarker():
                self._chain.head.process_latency_marker(element)
            case EndOfData():
                self._apply(self._valve.on_end(index))
                self._end_channel(self._ports[index])

    def _apply(self, actions: list[ValveAction]) -> None:
        head = self._chain.head
        for action in actions:
            match action:
                case Watermark(timestamp):
                    head.process_watermark(timestamp)
                case StreamStatus(active):
                    head.process_status(active)

    def _end_channel(self, port: int) -> None:
        """One more channel of the port has ended; the last one ends the port."""
        self._open_ports[port] -= 1
        if not self._open_ports[port]:
            del self._open_ports[port]
            if port not in self._told:
                self._told.add(port)
                self._chain.head.end_input(port)
