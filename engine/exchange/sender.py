"""The sending end of a channel: coalesces batches into buffers, releases them by credit.

The transport pulls: it calls `take` while it can carry more, so what cannot leave stays here, keeps
growing towards full buffers, and makes `available` false. An idle network thus gets small buffers
at once, and a loaded one gets large ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from ...core.batch import Batch, ObjectBatch, compatible, concat
from ...core.config import ExchangeConfig
from ...core.elements import CheckpointBarrier, Control, Element, EndOfData
from ...core.ids import CheckpointId, TaskId
from ..graph.model import Channel
from .compaction import wire_bytes
from .credits import SenderLedger
from .kept import is_kept
from .metering import InFlight

ROUNDING_S = 1e-6
"""Float seconds are this inexact far from their origin; a buffer so close to its time is due."""

FIRST_OBJECT_BYTES = 64.0
"""Guess at the size of one object value until some have been encoded."""


def ends_channel(element: Control) -> bool:
    """Whether a channel that has carried `element` may be closed in good order."""
    match element:
        case EndOfData() | CheckpointBarrier(terminal=True):
            return True
    return False


@dataclass(slots=True)
class Departure:
    """What leaves next. `element` None: only the backlog is announced. `size`: 0 without credit.
    `starved`: what waits behind a buffer has no credit."""

    sender: ChannelSender
    element: Element | None
    size: int
    backlog: int
    starved: bool = False


@dataclass(slots=True)
class _Buffer:
    batches: list[Batch]
    size: int


class ChannelSender:
    """Implements `OutputChannel`. Used by the task's thread only."""

    def __init__(
        self, channel: Channel, config: ExchangeConfig, link: SenderLink, meter: InFlight
    ) -> None:
        self.channel = channel
        self.ledger = SenderLedger()
        self.waiting = 0
        """Bytes of all batches in `_closed` and `_open`."""
        self.largest_write = 0
        """The most bytes it was given between two looks at `available` that found it so."""
        self._given = 0
        """Bytes since the last of these."""
        self.finished = False
        """Whether the end of data (or a terminal barrier) has been written."""
        self._closed: deque[_Buffer | Control] = deque()
        self._buffers = 0
        """Buffers in `_closed`."""
        self._open = _Buffer([], 0)
        self._open_since = 0.0
        """When the first batch of `_open` came; valid while it is not empty."""
        self._object_bytes = FIRST_OBJECT_BYTES
        self._limit = config.buffer_bytes
        self._minimum = min(config.min_buffer_bytes, config.buffer_bytes)
        own = channel.buffer_timeout
        self._timeout = (config.buffer_timeout if own is None else own).total_seconds()
        self._link = link
        self._meter = meter

    def write(self, batch: Batch) -> None:
        rows = len(batch)
        if not rows:
            return
        size = wire_bytes(batch, self._object_bytes)
        self._given += size
        self.largest_write = max(self.largest_write, self._given)
        pieces = min(rows, -(-size // self._limit))
        if pieces <= 1:
            self._append(batch, size)
        else:
            for piece in _cut(batch, pieces):
                self._append(piece, wire_bytes(piece, self._object_bytes))
        self._link.active[self] = None

    def write_control(self, element: Control) -> None:
        self.close_buffer()
        self._closed.append(element)
        self.finished = self.finished or ends_channel(element)
        self._link.active[self] = None

    def overtake(self, barrier: CheckpointBarrier) -> list[Element]:
        passed: list[Element] = []
        open_batches = self._open.batches
        for place, item in enumerate(self._closed):
            if item == barrier:
                del self._closed[place]
                open_batches = []
                break
            if isinstance(item, _Buffer):
                passed += item.batches
            elif is_kept(item):
                passed.append(item)
        passed += open_batches
        self._closed.appendleft(replace(barrier, passed=bool(passed)))
        self._link.active[self] = None
        return passed

    def holds(self, checkpoint_id: CheckpointId) -> bool:
        return any(
            isinstance(item, CheckpointBarrier) and item.checkpoint_id == checkpoint_id
            for item in self._closed
        )

    @property
    def available(self) -> bool:
        if self.waiting >= self._limit:
            return False
        self._given = 0
        return True

    def waits_less_than(self, buffers: int) -> bool:
        return self.waiting < buffers * self._limit

    @property
    def empty(self) -> bool:
        return not self._closed and not self._open.batches

    def _append(self, batch: Batch, size: int) -> None:
        buffer = self._open
        if buffer.batches and (
            buffer.size + size > self._limit or not compatible(buffer.batches[-1], batch)
        ):
            self.close_buffer()
            buffer = self._open
        if not buffer.batches:
            self._open_since = self._link.now()
        buffer.batches.append(batch)
        buffer.size += size
        self.waiting += size
        self._meter.add(size)
        if buffer.size >= self._limit:
            self.close_buffer()

    def close_buffer(self) -> None:
        """The open buffer leaves as it is, before anything written from now on."""
        if self._open.batches:
            self._closed.append(self._open)
            self._buffers += 1
            self._open = _Buffer([], 0)

    def due_in(self, now: float) -> float | None:
        """Seconds until the open buffer is due; None if empty or if it waits for credit."""
        if not self._open.batches or not self.ledger.credit:
            return None
        wait = self._open_since + self._timeout - now
        return wait if wait > ROUNDING_S else 0.0

    def take(self, now: float) -> Departure | None:
        """The next thing that may leave, now removed from here; None when nothing may."""
        if not self._closed:
            if not self._ripe(now):
                return None
            if self.ledger.credit:
                self.close_buffer()
            else:
                return self._announcement()
        head = self._closed[0]
        if not isinstance(head, _Buffer):
            self._closed.popleft()
            return Departure(self, head, 0, 0)
        if not self.ledger.credit:
            return self._announcement()
        self._closed.popleft()
        self._buffers -= 1
        self.waiting -= head.size
        self._meter.sub(head.size)
        backlog = self._backlog
        self.ledger.on_sent(backlog)
        starved = backlog > 0 and not self.ledger.credit
        return Departure(self, concat(head.batches), head.size, backlog, starved)

    @property
    def _backlog(self) -> int:
        return self._buffers + (1 if self._open.batches else 0)

    def _announcement(self) -> Departure | None:
        backlog = self._backlog
        return Departure(self, None, 0, backlog) if self.ledger.announce(backlog) else None

    def _ripe(self, now: float) -> bool:
        """Whether the open buffer is worth a frame, or due. Without credit it keeps growing."""
        buffer = self._open
        return bool(buffer.batches) and (
            buffer.size >= self._minimum or self._open_since + self._timeout - now <= ROUNDING_S
        )

    def put_back(self, batch: Batch, encoded: int) -> None:
        """A departed batch turned out to take `encoded` bytes, too much for one buffer: cut it."""
        self.ledger.on_returned()
        if isinstance(batch, ObjectBatch):
            self._object_bytes = max(1.0, encoded / len(batch))
        pieces = min(len(batch), max(2, -(-encoded // self._limit)))
        share = -(-encoded // pieces)
        buffers = [_Buffer([piece], share) for piece in _cut(batch, pieces)]
        self._closed.extendleft(reversed(buffers))
        self._buffers += len(buffers)
        self.waiting += share * len(buffers)
        self._meter.add(share * len(buffers))
        self.largest_write = max(self.largest_write, share * len(buffers))
        self._link.active[self] = None

    def discard(self) -> None:
        """Drop everything; the channel is gone."""
        self._meter.sub(self.waiting)
        self.waiting = 0
        self._closed.clear()
        self._buffers = 0
        self._open = _Buffer([], 0)

    def validate(self) -> None:
        self.ledger.validate()
        sizes = [item.size for item in self._closed if isinstance(item, _Buffer)]
        assert self._buffers == len(sizes)
        assert self.waiting == sum(sizes) + self._open.size
        assert self._open.size < self._limit or not self._open.batches
        assert self.empty or self in self._link.active


def _cut(batch: Batch, pieces: int) -> Iterable[Batch]:
    """`pieces` slices (at most one per record) of nearly equal length."""
    rows = len(batch)
    bounds = [rows * i // pieces for i in range(pieces + 1)]
    for start, stop in pairwise(bounds):
        yield batch.slice(start, stop - start)


class SenderLink:
    """All channels from one task to one peer; the transport takes from them in turn."""

    def __init__(self, peer: TaskId, now: Callable[[], float]) -> None:
        self.peer = peer
        self.now = now
        self.senders: dict[int, ChannelSender] = {}
        """By channel id."""
        self.active: dict[ChannelSender, None] = {}
        """Those that hold something; in the order in which they may take their turn."""

    def take(self) -> Departure | None:
        """The next thing any channel may send, the channels taking turns."""
        if not self.active:
            return None
        now = self.now()
        for sender in list(self.active):
            departure = sender.take(now)
            if departure is None:
                continue
            del self.active[sender]
            if not sender.empty:
                self.active[sender] = None
            return departure
        return None

    def due_in(self) -> float | None:
        """Seconds until the first open buffer is due."""
        if not self.active:
            return None
        now = self.now()
        waits = [w for s in self.active if (w := s.due_in(now)) is not None]
        return min(waits, default=None)

    @property
    def empty(self) -> bool:
        return not self.active

    def discard(self) -> None:
        """Drop everything that waits; nobody is left to send it to."""
        for sender in self.senders.values():
            sender.discard()
        self.active.clear()

    @property
    def finished(self) -> bool:
        """Everything was written, up to the end, and has left."""
        return self.empty and all(sender.finished for sender in self.senders.values())
