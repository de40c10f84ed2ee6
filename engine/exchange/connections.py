"""The two directions of data between a pair of tasks, over one stream each.

`OutgoingConnection` carries this task's buffers to one receiver and takes credits;
`IncomingConnection` does the reverse. Both live for one attempt. They do not know the selector: the
endpoint tells them when to read, and looks at `stream.pending` to learn whether to wait for room.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...core.batch import ColumnBatch, ObjectBatch
from ...core.config import ExchangeConfig
from ...core.errors import SerializationError, TransportError
from ...core.ids import ChannelId, TaskId
from ..graph.model import Channel
from .codec import ChannelDecoder, ChannelEncoder
from .gate import Gate
from .listener import remote
from .metering import OUTGOING_LIMIT, Traffic, frame_limit
from .sender import Departure, SenderLink
from .shared_memory import MOST_SLOTS, LentSlots, OwnSlots
from .stream import FrameStream
from .wire import (
    BUFFERS,
    SHARED,
    STARVED,
    Frame,
    Kind,
    check_timestamps,
    control_frame,
    credit_frame,
    decode_control,
    decode_credits,
    header,
    small_frame,
)


class OutgoingConnection:
    """To one receiver. Exists before its stream does: until then everything waits in `link`."""

    def __init__(self, link: SenderLink, config: ExchangeConfig, traffic: Traffic) -> None:
        self.peer = link.peer
        self.link = link
        self.stream: FrameStream | None = None
        """None before the receiver has accepted, and again once the connection is over."""
        self.over = False
        """The receiver closed in good order; nothing more needs to be sent."""
        self._encoders: dict[int, ChannelEncoder] = {}
        self._config = config
        self._limit = frame_limit(config)
        self._traffic = traffic
        self.slots: OwnSlots | None = None
        """What buffers are put into; None: they go through the socket."""

    def share(self, stream: FrameStream) -> None:
        """Before anything is sent: offer the receiver memory, if it is on this machine."""
        if not self._config.shared_memory or remote(stream.socket):
            return
        buffers = len(self.link.senders) * self._config.exclusive_buffers
        count = min(MOST_SLOTS, buffers + self._config.floating_buffers)
        try:
            slots = OwnSlots(count, self._limit)
        except (OSError, AttributeError):  # no such memory here, or no more
            return
        if stream.hand_over(small_frame(Kind.MEMORY, slots.told), slots.descriptor):
            self.slots = slots
        slots.handed_over()

    def send(self) -> bool:
        """Hand the socket what it takes of what credit allows; whether anything moved."""
        stream = self.stream
        if stream is None:
            if self.over:
                self.link.discard()
            return False
        moved = False
        while True:
            self._fill(stream)
            if not stream.pending:
                return moved
            moved |= stream.flush()
            if stream.pending:
                return moved  # the socket is full

    def _fill(self, stream: FrameStream) -> None:
        while stream.pending < OUTGOING_LIMIT:
            departure = self.link.take()
            if departure is None:
                break
            self._queue(stream, departure)

    def _queue(self, stream: FrameStream, departure: Departure) -> None:
        channel = departure.sender.channel.id
        element = departure.element
        if element is None:
            stream.queue([header(Kind.BACKLOG, 0, channel, departure.backlog)])
        elif isinstance(element, (ColumnBatch, ObjectBatch)):
            self._queue_buffer(stream, departure, element)
        else:
            stream.queue([control_frame(channel, element)])

    def _queue_buffer(
        self, stream: FrameStream, departure: Departure, batch: ColumnBatch | ObjectBatch
    ) -> None:
        try:
            self._encode(stream, departure, batch)
        except SerializationError as error:
            error.edge = departure.sender.channel.edge
            raise

    def _encode(
        self, stream: FrameStream, departure: Departure, batch: ColumnBatch | ObjectBatch
    ) -> None:
        channel = departure.sender.channel.id
        encoder = self._encoders.get(channel)
        if encoder is None:
            encoder = self._encoders[channel] = ChannelEncoder(channel)
        kind, payload = encoder.encode(batch)
        size = sum(memoryview(part).nbytes for part in payload)
        if size > self._limit and len(batch) > 1:
            departure.sender.put_back(batch, size)
            return
        place = None if self.slots is None else self.slots.take(payload, size)
        shared = place is not None
        payload = payload if place is None else [place]
        backlog, starved = departure.backlog, departure.starved
        stream.queue(encoder.frames(batch, kind, payload, backlog, starved, shared))
        self._traffic.bytes_sent += size
        self._traffic.buffers_sent += 1

    def receive(self, frame: Frame) -> None:
        """A frame from the receiver: credits, or its goodbye."""
        if frame.kind is Kind.CREDIT:
            for channel, count in decode_credits(frame.payload):
                sender = self.link.senders.get(channel)
                if sender is None:
                    raise TransportError(f"credit for channel {channel}, which does not go there")
                sender.ledger.on_credit(count)
        elif frame.kind is Kind.CLOSE:
            if not self.finished:
                raise TransportError("it closed before the end of the data")
            self.over = True
        elif frame.kind is Kind.FREE and self.slots is not None:
            self.slots.give_back(frame.payload)
        elif frame.kind is Kind.MEMORY and self.slots is not None:
            self.slots.accept()
        elif frame.kind is not Kind.HEARTBEAT:
            raise TransportError(f"unexpected {frame.kind.name} frame from a receiver")

    @property
    def finished(self) -> bool:
        """Everything up to the end of the data has been handed to the stream."""
        return self.link.finished

    @property
    def drained(self) -> bool:
        return self.over or (self.link.empty and (self.stream is None or not self.stream.pending))


class IncomingConnection:
    """From one sender, which may write only to the channels that are its own."""

    def __init__(
        self,
        peer: TaskId,
        stream: FrameStream,
        gate: Gate,
        channels: Sequence[Channel],
        traffic: Traffic,
    ) -> None:
        self.peer = peer
        self.stream: FrameStream | None = stream
        self.over = False
        """The sender closed in good order."""
        self._gate = gate
        self._far = remote(stream.socket)
        """Whether it takes time to get there: credits may have to reach further."""
        self._inputs = {c.id: (c.target_index, ChannelDecoder()) for c in channels}
        self._channel_ids = {c.target_index: c.id for c in channels}
        self._traffic = traffic
        self.slots: LentSlots | None = None
        """What buffers may lie in; None: they come through the socket."""
        exclusive = gate.ledger.exclusive
        self.grant([(channel.target_index, exclusive) for channel in channels])

    def grant(self, grants: list[tuple[int, int]]) -> None:
        """Credits for channels of this sender, by gate index; sent with the next `send`."""
        if self.stream is not None:
            ids = self._channel_ids
            self.stream.queue([credit_frame([(ids[index], count) for index, count in grants])])

    def send(self) -> bool:
        return self.stream is not None and bool(self.stream.pending) and self.stream.flush()

    def free_slots(self) -> None:
        """Tell the sender of slots that nobody here uses any more, with the next `send`."""
        if self.slots is not None and self.stream is not None and (freed := self.slots.freed()):
            self.stream.queue([small_frame(Kind.FREE, freed)])

    def receive(self, frame: Frame) -> None:
        """A frame from the sender: goes to the gate as it is."""
        if frame.kind is Kind.CLOSE:
            if not self.finished:
                raise TransportError("it closed before the end of the data")
            self.over = True
            return
        if frame.kind is Kind.HEARTBEAT:
            return
        if frame.kind is Kind.MEMORY and self.slots is None:
            self._accept(frame)
            return
        known = self._inputs.get(ChannelId(frame.channel))
        if known is None:
            raise TransportError(f"it wrote to channel {frame.channel}, which is not its own")
        index, decoder = known
        if frame.kind in BUFFERS:
            if frame.flags & SHARED:
                self._borrow(frame)
            decoder.admit(frame)
            self._traffic.bytes_received += frame.length
            self._traffic.buffers_received += 1
            starved = self._far and bool(frame.flags & STARVED)
            self._gate.deliver_buffer(index, frame, frame.length, frame.backlog, starved)
        elif frame.kind is Kind.CONTROL:
            self._gate.deliver_control(index, decode_control(frame.payload))
        elif frame.kind is Kind.BACKLOG:
            self._gate.on_backlog(index, frame.backlog, self._far)
        elif frame.kind in (Kind.SCHEMA, Kind.DICTIONARY):
            decoder.admit(frame)
        else:
            raise TransportError(f"unexpected {frame.kind.name} frame from a sender")

    def _accept(self, frame: Frame) -> None:
        """Memory is offered, and taken if it can be read."""
        assert self.stream is not None
        descriptor = self.stream.take_descriptor()
        if descriptor is not None:
            with suppress(OSError):
                self.slots = LentSlots(frame.payload, descriptor)
                self.stream.queue([small_frame(Kind.MEMORY)])

    def _borrow(self, frame: Frame) -> None:
        """Its payload is where it says."""
        if self.slots is None:
            raise TransportError(
                "it says that a buffer is in shared memory, of which there is none"
            )
        frame.payload = self.slots.lend(frame.payload)
        frame.length = frame.payload.size
        check_timestamps(frame)

    @property
    def finished(self) -> bool:
        """The end of the data has arrived on every channel."""
        return all(map(self._gate.finished, self._channel_ids))


Connection = OutgoingConnection | IncomingConnection


def say_goodbye(connection: Connection) -> None:
    """Close in good order if the data is complete, else abruptly, which the peer reports. Shared
    memory stays for as long as anybody uses something in it."""
    connection.slots = None
    stream = connection.stream
    if stream is None:
        return
    connection.stream = None
    try:
        if connection.finished:
            stream.queue([small_frame(Kind.CLOSE)])
            stream.linger()
    except OSError:
        pass  # the peer is gone, and its own error says why
    stream.close()
