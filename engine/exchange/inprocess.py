"""The exchange within one process and one thread: for the local host and the simulator.

Elements pass by reference, through the same senders, gates and credits as between processes; Python
objects that could not travel between processes are refused as they would be there.
Nothing happens outside `pump`, so the order of pumps decides everything and a run repeats exactly.
With `through_codec` every element is encoded to frames and read back, as on a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.batch import ObjectBatch
from ...core.clock import Clock
from ...core.config import ExchangeConfig
from ...core.elements import Element
from ...core.errors import ConfigurationError, SerializationError, TransportError
from ...core.ids import ChannelId, TaskId
from ..graph.model import Channel
from .codec import ChannelDecoder, ChannelEncoder, decode
from .endpoint import ExchangeStatistics, Wiring
from .gate import Gate
from .metering import InFlight, Traffic, bound, statistics
from .pickling import ValueCheck
from .sender import ChannelSender, Departure, SenderLink
from .wire import Frame, FrameReader, control_frame


@dataclass(frozen=True, slots=True)
class InProcessAddress:
    """`number` is never used twice in a network, so a new endpoint of a task is another address."""

    task: TaskId
    number: int


@dataclass
class InProcessNetwork:
    """Endpoints that can reach one another. `clock` drives buffer timeouts. `wake`, from any
    thread: the one that drives them all has something to do."""

    clock: Clock
    through_codec: bool = False
    wake: Callable[[], None] = lambda: None
    _endpoints: dict[InProcessAddress, InProcessEndpoint] = field(default_factory=dict)
    _made: int = 0

    def endpoint(self, task_id: TaskId, config: ExchangeConfig | None = None) -> InProcessEndpoint:
        """A new endpoint; former ones of this task get nothing that is meant for it."""
        self._made += 1
        address = InProcessAddress(task_id, self._made)
        endpoint = InProcessEndpoint(self, address, config or ExchangeConfig())
        self._endpoints[address] = endpoint
        return endpoint

    def find(self, address: InProcessAddress) -> InProcessEndpoint | None:
        """The endpoint at this address unless it is closed."""
        return self._endpoints.get(address)

    def remove(self, address: InProcessAddress) -> None:
        self._endpoints.pop(address, None)


@dataclass(slots=True)
class _Link:
    """One sending task to one receiving task within one attempt; both ends hold the same object."""

    source: InProcessEndpoint
    address: InProcessAddress
    senders: SenderLink
    target: InProcessEndpoint | None = None
    """Set once both ends are wired for the attempt; data flows from then on."""
    over: bool = False
    """Dropped by either end: nothing flows any more."""


class InProcessEndpoint:
    """Implements `Endpoint`; made by `InProcessNetwork.endpoint`. One thread uses all of them."""

    def __init__(
        self, network: InProcessNetwork, address: InProcessAddress, config: ExchangeConfig
    ) -> None:
        self._network = network
        self._address = address
        self._config = config
        self._meter = InFlight()
        self._traffic = Traffic()
        self._check = ValueCheck()
        self._closed = False
        self._reset()
        self.attempt = -1
        self._called: Callable[[TaskId], str] = str
        """What tasks are called in errors."""

    def _reset(self) -> None:
        self._outputs: dict[ChannelId, ChannelSender] = {}
        self._links: dict[TaskId, _Link] = {}
        """To receivers of output channels."""
        self._incoming: dict[TaskId, _Link] = {}
        """From senders that found this endpoint wired."""
        self._gate = Gate((), self._config, _as_is, self._meter)
        self._feeders: dict[int, ChannelSender] = {}
        """Whom to credit, by input channel index."""
        self._lost: str | None = None
        """Why a link broke; raised by the next pump."""
        self._arrived = False
        """Whether something came since the last pump."""

    @property
    def address(self) -> InProcessAddress:
        return self._address

    @property
    def gate(self) -> Gate:
        return self._gate

    @property
    def outputs(self) -> Mapping[ChannelId, ChannelSender]:
        return self._outputs

    def connect(self, wiring: Wiring) -> None:
        if self._closed:
            raise TransportError("the endpoint is closed")
        self._drop_all()
        self._reset()
        self.attempt = wiring.attempt
        self._called = wiring.called
        self._gate = Gate(wiring.inputs, self._config, self._opener(), self._meter)
        for channel in wiring.outputs:
            self._add_output(channel, wiring.peers)

    def _opener(self) -> Any:
        return _opened if self._network.through_codec else _as_is

    def _add_output(self, channel: Channel, peers: Mapping[TaskId, Any]) -> None:
        link = self._links.get(channel.target)
        if link is None:
            if channel.target not in peers:
                raise ConfigurationError(f"no address for receiver {self._called(channel.target)}")
            senders = SenderLink(channel.target, self._network.clock.monotonic)
            link = self._links[channel.target] = _Link(self, peers[channel.target], senders)
        sender = ChannelSender(channel, self._config, link.senders, self._meter)
        link.senders.senders[channel.id] = sender
        self._outputs[channel.id] = sender

    def pump(self, timeout: float) -> bool:
        """As for every endpoint, but it never waits: with one thread, nothing else could happen."""
        moved, self._arrived = self._arrived, False
        for link in self._links.values():
            if link.target is None:
                moved |= self._open(link)
        moved |= self._return_credits()
        for link in self._links.values():
            moved |= self._send(link)
        if self._lost is not None:
            raise TransportError(self._lost)
        return moved

    @property
    def stirs(self) -> bool:
        """Whether a pump may find something: what came, or what waits to be sent or opened."""
        if self._arrived or self._lost is not None:
            return True
        for link in self._links.values():  # asked after each step of a neighbour
            if link.senders.active or (link.target is None and not link.over):
                return True
        return False

    def _open(self, link: _Link) -> bool:
        """Whether the link came to life just now."""
        if link.target is not None or link.over:
            return False
        peer = self._network.find(link.address)
        whom = f"receiver {self._called(link.address.task)}"
        if peer is None:
            self._lost = f"{whom} is gone"
        elif peer.attempt > self.attempt:
            self._lost = f"{whom} is at attempt {peer.attempt}, this task at {self.attempt}"
        elif peer.attempt == self.attempt:
            link.target = peer
            peer.accept(link)
            return True
        return False

    def accept(self, link: _Link) -> None:
        """Called by the sending endpoint, once both are wired for the same attempt."""
        self._incoming[link.source.address.task] = link
        for sender in link.senders.senders.values():
            index = sender.channel.target_index
            known = self._gate.channels[index : index + 1]
            if not known or known[0].id != sender.channel.id:
                raise TransportError(
                    f"{self._called(sender.channel.source)} sends on channel {sender.channel.id}, "
                    f"which {self._called(self._address.task)} does not expect as input {index}"
                )
            self._feeders[index] = sender
            sender.ledger.on_credit(self._config.exclusive_buffers)

    def _return_credits(self) -> bool:
        grants = self._gate.take_grants()
        for index, count in grants.items():
            self._feeders[index].ledger.on_credit(count)
        return bool(grants)

    def _send(self, link: _Link) -> bool:
        sent = False
        if link.over:
            link.senders.discard()
        elif link.target is not None:
            while (departure := link.senders.take()) is not None:
                self._deliver(link.target, departure)
                sent = True
        return sent

    def _deliver(self, target: InProcessEndpoint, departure: Departure) -> None:
        index = departure.sender.channel.target_index
        element = departure.element
        target._arrived = True
        if element is None:
            target._gate.on_backlog(index, departure.backlog)
        elif departure.size:
            self._count(target, departure.size)
            item = self._through(departure)
            target._gate.deliver_buffer(index, item, departure.size, departure.backlog)
        else:
            target._gate.deliver_control(index, self._through_control(departure))

    def _count(self, target: InProcessEndpoint, size: int) -> None:
        self._traffic.bytes_sent += size
        self._traffic.buffers_sent += 1
        target._traffic.bytes_received += size
        target._traffic.buffers_received += 1

    def _through(self, departure: Departure) -> Any:
        try:
            return self._carried(departure)
        except SerializationError as error:
            error.edge = departure.sender.channel.edge
            raise

    def _carried(self, departure: Departure) -> Any:
        batch: Any = departure.element
        if not self._network.through_codec:
            unreadable = isinstance(batch, ObjectBatch) and self._check.refuse(batch.values)
            return _Unreadable(unreadable) if unreadable else batch
        encoder = ChannelEncoder(departure.sender.channel.id)
        parts = encoder.frames(batch, *encoder.encode(batch), departure.backlog)
        decoder = ChannelDecoder()
        return next(frame for frame in _read(parts) if decoder.admit(frame))

    def _through_control(self, departure: Departure) -> Any:
        if not self._network.through_codec:
            return departure.element
        element: Any = departure.element
        return _opened(_read([control_frame(departure.sender.channel.id, element)])[0])

    def next_flush(self) -> float | None:
        first: float | None = None
        for link in self._links.values():
            due = link.senders.due_in()
            if due is not None and (first is None or due < first):
                first = due
        return first

    def flush(self) -> None:
        for sender in self._outputs.values():
            sender.close_buffer()

    def drained(self) -> bool:
        return all(link.senders.empty for link in self._links.values())

    def wake(self) -> None:
        """`pump` never waits, but who calls it may."""
        self._network.wake()

    def statistics(self) -> ExchangeStatistics:
        writes = [sender.largest_write for sender in self._outputs.values()]
        limit = bound(self._config, len(self._gate.channels), writes, 0)
        return statistics(self._traffic, self._meter, limit)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._network.remove(self._address)
            self._drop_all()

    def _drop_all(self) -> None:
        """End all links. A peer whose link was not at its end finds out at its next pump."""
        for link in self._links.values():
            self._end(link, link.target, link.senders.finished)
        for link in self._incoming.values():
            channels = [s.channel.target_index for s in link.senders.senders.values()]
            done = all(map(self._gate.finished, channels)) and link.senders.finished
            self._end(link, link.source, done)
        for sender in self._outputs.values():
            sender.discard()
        self._gate.discard()

    def _end(self, link: _Link, peer: InProcessEndpoint | None, orderly: bool) -> None:
        if not link.over and peer is not None and not orderly:
            peer._lost = f"{peer._called(self._address.task)} went away"
        link.over = True


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """In place of a batch that the receiver could not unpickle."""

    error: SerializationError


def _as_is(item: Any) -> Element:
    if isinstance(item, _Unreadable):
        raise item.error
    element: Element = item
    return element


def _opened(item: Any) -> Element:
    return decode(item) if isinstance(item, Frame) else _as_is(item)


def _read(parts: list[Any]) -> list[Frame]:
    data = b"".join(bytes(memoryview(part).cast("B")) for part in parts)
    reader = FrameReader()
    frames: list[Frame] = []
    while data:
        room = reader.targets()
        count = 0
        for target in room:
            chunk = data[count : count + len(target)]
            target[: len(chunk)] = chunk
            count += len(chunk)
        data = data[count:]
        frames.extend(reader.received(count))
    return frames
