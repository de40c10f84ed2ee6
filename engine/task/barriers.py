"""The barriers in a task's input: what comes is told to the aligner, and done as it says.

Of a checkpoint that may overtake, a task hears as soon as its first barrier has come, wherever that
waits; it is aligned until it is due, `alignment_timeout` behind its trigger, and overtakes then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from ...checkpoint.barrier_alignment import (
    Abandon,
    Actions,
    Align,
    BarrierAligner,
    Block,
    Overtake,
    Recorded,
    UnblockAll,
)
from ...checkpoint.barrier_tracking import BarrierTracker
from ...core.checkpointing_mode import CheckpointingMode
from ...core.clock import Clock
from ...core.config import CheckpointConfig
from ...core.elements import CheckpointBarrier
from ...core.ids import CheckpointId
from ..exchange.endpoint import InputGate
from ..exchange.kept import Kept


class Taker(Protocol):
    """Who takes the snapshots."""

    def take(
        self, barrier: CheckpointBarrier, alignment_ms: float, overtaken: frozenset[int] | None
    ) -> None:
        """Now, or as soon as it can be taken: no input is, before. `overtaken`: the channels whose
        barriers have not come, which are to be recorded from the snapshot on; None if all have come
        in their turn."""
        ...

    def recorded(
        self, checkpoint_id: CheckpointId, items: Mapping[int, Sequence[Kept]], passed: bool
    ) -> None:
        """The last barrier has come; this came before, by channel. `passed`: whether one of the
        barriers has overtaken at its sender."""
        ...

    def abandoned(self, checkpoint_id: CheckpointId) -> None:
        """It will not be completed."""
        ...


def due_ms(barrier: CheckpointBarrier, config: CheckpointConfig, now_ms: int) -> int | None:
    """When a barrier that is seen for the first time may overtake; None: never. Clocks may differ
    between machines: it is at most the timeout from now."""
    if not barrier.overtakes:
        return None
    timeout = round(config.alignment_timeout.total_seconds() * 1000)
    return now_ms + min(timeout, max(0, barrier.timestamp_ms + timeout - now_ms))


class Barriers:
    """Of one task with inputs, in one attempt."""

    def __init__(
        self,
        channels: int,
        in_order: Iterable[int],
        gate: InputGate,
        clock: Clock,
        config: CheckpointConfig,
        wake_at: Callable[[int], None],
        taker: Taker,
    ) -> None:
        """`wake_at`: makes `on_due` be called at that time (ms)."""
        self._aligner: BarrierAligner | BarrierTracker
        if config.mode is CheckpointingMode.EXACTLY_ONCE:
            self._aligner = BarrierAligner(channels, in_order)
        else:
            self._aligner = BarrierTracker(channels)
        self._gate = gate
        self._clock = clock
        self._config = config
        self._wake_at = wake_at
        self._taker = taker
        self._newest = CheckpointId(0)
        """Of what is known below."""
        self.due_ms: int | None = None
        """When it may overtake."""
        self.passed = False
        """Whether one of its barriers has overtaken at its sender."""
        self.delay_ms = 0.0
        """From its trigger until its first barrier came."""
        self._started = 0.0

    def on_barrier(self, index: int, barrier: CheckpointBarrier) -> None:
        """Input channel `index` delivered a barrier in its turn."""
        self._known(barrier)
        self._do(self._aligner.on_barrier(index, barrier))

    def look(self) -> bool:
        """What has come ahead of its turn; whether anything had."""
        found = False
        while (item := self._gate.poll_announced()) is not None:
            index, barrier = item
            self._known(barrier)
            self._do(self._aligner.on_announced(index, barrier))
            self._look_at_time(self._clock.now_ms())
            found = True
        while (recorded := self._gate.poll_recorded()) is not None:
            self._do(self._aligner.on_recorded(recorded))
            found = True
        return found

    def on_due(self, now_ms: int) -> None:
        """Some time that was asked for has come."""
        self._look_at_time(now_ms)

    def on_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The coordinator gave it up."""
        for action in self._aligner.on_abort(checkpoint_id):
            if isinstance(action, UnblockAll):
                self._gate.unblock_all()
            else:
                self._gate.end_recording()

    def _known(self, barrier: CheckpointBarrier) -> None:
        if barrier.checkpoint_id > self._newest:
            now_ms = self._clock.now_ms()
            self._newest = barrier.checkpoint_id
            self._started = self._clock.monotonic()
            self.delay_ms = max(0.0, now_ms - barrier.timestamp_ms)
            self.due_ms = due_ms(barrier, self._config, now_ms)
            self.passed = False
            if self.due_ms is not None and self.due_ms > now_ms:
                self._wake_at(self.due_ms)
        if barrier.checkpoint_id == self._newest:
            self.passed |= barrier.passed

    def _look_at_time(self, now_ms: int) -> None:
        if self.due_ms is not None and self.due_ms <= now_ms:
            self._do(self._aligner.on_due(self._newest))

    def _do(self, actions: Actions) -> None:
        for action in actions:
            match action:
                case Block(channel):
                    self._gate.block(channel)
                case UnblockAll():
                    self._gate.unblock_all()
                case Align(barrier):
                    self._taker.take(barrier, self._waited_ms, None)
                case Overtake(barrier, channels):
                    self._taker.take(barrier, self._waited_ms, channels)
                case Recorded(checkpoint_id):
                    self._taker.recorded(checkpoint_id, *self._gate.end_recording())
                case Abandon(checkpoint_id):
                    self._gate.end_recording()
                    self._taker.abandoned(checkpoint_id)

    @property
    def _waited_ms(self) -> float:
        return (self._clock.monotonic() - self._started) * 1000.0
