"""The receiving ends of all input channels of one task: queues, fair polling, credit return.

Elements wait as they arrived (frames stay undecoded) and are opened when polled, so the memory held
is the memory counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...core.config import ExchangeConfig
from ...core.elements import (
    MAX_TIMESTAMP,
    CheckpointBarrier,
    Control,
    Element,
    EndOfData,
    LatencyMarker,
    StreamStatus,
    Watermark,
)
from ...core.errors import SerializationError, TransportError
from ...core.ids import CheckpointId
from ..graph.model import Channel
from .credits import GateLedger, Grant
from .kept import Kept
from .metering import InFlight
from .recording import Recording
from .sender import ends_channel


class Gate:
    """Implements `InputGate`. `opener` turns what was delivered into an element.

    Used by the task's thread only. After unblocking, a channel takes its turn behind the others.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        config: ExchangeConfig,
        opener: Callable[[Any], Element],
        meter: InFlight,
    ) -> None:
        self.channels = tuple(channels)
        for position, channel in enumerate(self.channels):
            if channel.target_index != position:
                raise TransportError(
                    f"{channel.target}: input {position} is wired to a channel with index "
                    f"{channel.target_index}"
                )
        count = len(self.channels)
        self.ledger = GateLedger(count, config.exclusive_buffers, config.floating_buffers)
        self._open = opener
        self._meter = meter
        self._queues: list[deque[tuple[Any, int, bool]]] = [deque() for _ in range(count)]
        """Per channel: what was delivered, its bytes, whether it used a credit."""
        self._blocked = [False] * count
        self._ready: deque[int] = deque()
        """Channels whose turn will come; each at most once."""
        self._listed = [False] * count
        """Whether a channel is in `_ready`; true for all that are unblocked and not empty."""
        self._finished = [False] * count
        self._grants: dict[int, int] = {}
        """Credits to send, by channel index."""
        self._announced: deque[tuple[int, CheckpointBarrier]] = deque()
        """Barriers that came and may overtake, until somebody asks."""
        self._recording: Recording | None = None

    def deliver_buffer(
        self, index: int, item: Any, size: int, backlog: int, starved: bool = False
    ) -> None:
        """A buffer arrived. `starved`: it took the last credit of a sender that is far away.
        TransportError if it had none."""
        self._grant(self.ledger.on_buffer(index, backlog, starved))
        self._meter.add(size)
        if self._recording is not None:
            self._recording.on_buffer(index, item)
        self._enqueue(index, (item, size, True))

    def deliver_control(self, index: int, element: Control) -> None:
        if ends_channel(element):
            self._finished[index] = True
        if self._recording is not None and self._recording.on_control(index, element):
            return
        if isinstance(element, CheckpointBarrier) and element.overtakes:
            self._announced.append((index, element))
        self._enqueue(index, (element, 0, False))

    def on_backlog(self, index: int, backlog: int, starved: bool = False) -> None:
        self._grant(self.ledger.on_backlog(index, backlog, starved))

    def _enqueue(self, index: int, entry: tuple[Any, int, bool]) -> None:
        self._queues[index].append(entry)
        if not self._listed[index] and not self._blocked[index]:
            self._listed[index] = True
            self._ready.append(index)

    def poll(self) -> tuple[int, Element] | None:
        ready = self._ready
        while ready:
            index = ready.popleft()
            queue = self._queues[index]
            if self._blocked[index] or not queue:
                self._listed[index] = False
                continue
            item, size, credited = queue.popleft()
            if queue:
                ready.append(index)
            else:
                self._listed[index] = False
            if credited:
                self._meter.sub(size)
                self._grant(self.ledger.on_consumed(index))
            return index, self._opened(index, item)
        return None

    def poll_barrier(self) -> tuple[int, CheckpointBarrier] | None:
        for index, queue in enumerate(self._queues):
            if self._blocked[index]:
                continue
            for place, (item, _, credited) in enumerate(queue):
                if isinstance(item, CheckpointBarrier) and (item.halt or not item.terminal):
                    del queue[place]  # an empty queue that is listed is passed over by `poll`
                    return index, item
                if credited or not _may_be_overtaken(item):
                    break
        return None

    def poll_announced(self) -> tuple[int, CheckpointBarrier] | None:
        return self._announced.popleft() if self._announced else None

    def record(self, checkpoint_id: CheckpointId, channels: Iterable[int]) -> None:
        recording = self._recording = Recording(checkpoint_id, channels, self._opened)
        for index in sorted(recording.open):
            self._record_queue(recording, index)

    def _record_queue(self, recording: Recording, index: int) -> None:
        queue = self._queues[index]
        for place, (item, _, credited) in enumerate(queue):
            if credited:
                recording.on_buffer(index, item)
            elif recording.on_control(index, item):
                del queue[place]  # an empty queue that is listed is passed over by `poll`
                return

    def poll_recorded(self) -> int | None:
        recording = self._recording
        return recording.came.popleft() if recording is not None and recording.came else None

    def end_recording(self) -> tuple[dict[int, list[Kept]], bool]:
        recording, self._recording = self._recording, None
        return ({}, False) if recording is None else (recording.items, recording.passed)

    def _opened(self, index: int, item: Any) -> Element:
        try:
            element = self._open(item)
        except (SerializationError, TransportError) as error:
            channel = self.channels[index]
            raise type(error)(f"from {channel.source} to {channel.target}: {error}") from error
        return element

    def block(self, index: int) -> None:
        self._blocked[index] = True
        self.ledger.block(index)

    def unblock_all(self) -> None:
        for index, blocked in enumerate(self._blocked):
            if not blocked:
                continue
            self._blocked[index] = False
            self._grant(self.ledger.unblock(index))
            if self._queues[index] and not self._listed[index]:
                self._listed[index] = True
                self._ready.append(index)

    def _grant(self, grants: list[Grant]) -> None:
        pending = self._grants
        for index, count in grants:
            pending[index] = pending.get(index, 0) + count

    def take_grants(self) -> dict[int, int]:
        """Credits to send to each channel's sender; the caller must send them."""
        grants = self._grants
        if grants:
            self._grants = {}
        return grants

    def finished(self, index: int) -> bool:
        """Whether the channel's end of data (or a terminal barrier) has arrived."""
        return self._finished[index]

    def discard(self) -> None:
        """Drop everything; the attempt is over."""
        for queue in self._queues:
            self._meter.sub(sum(size for _, size, _ in queue))
            queue.clear()
        self._ready.clear()
        self._listed = [False] * len(self._listed)
        self._grants = {}
        self._announced.clear()
        self._recording = None

    def validate(self) -> None:
        self.ledger.validate()
        assert len(set(self._ready)) == len(self._ready)
        for index, queue in enumerate(self._queues):
            assert (index in self._ready) == self._listed[index]
            assert not queue or self._blocked[index] or self._listed[index]


def _may_be_overtaken(element: Element) -> bool:
    """Whether a barrier may pass it: see `InputGate.poll_barrier`."""
    match element:
        case StreamStatus() | EndOfData() | LatencyMarker():
            return True
        case Watermark(timestamp):
            return timestamp == MAX_TIMESTAMP
    return False
