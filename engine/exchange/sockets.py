"""An endpoint between processes: non-blocking sockets on the task's own thread. The only other one
says heartbeats to other machines, while the task does not come to it.

One connection per pair of tasks carries all channels between them, TCP or, on one node, a unix
socket. The receiver listens; the sender connects and both prove that they belong to the job
(`handshake`). What goes to another machine may be encrypted (`encryption`), and who falls silent
there is found (`heartbeats`). Credits flow back on the same connection. Nothing else moves outside
`pump`.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...core.clock import Clock, SystemClock
from ...core.config import ExchangeConfig
from ...core.elements import Element
from ...core.errors import AuthenticationError, ConfigurationError, TransportError
from ...core.ids import ChannelId, TaskId
from ..graph.model import Channel
from .admission import Admission, Arrival
from .codec import decode
from .connections import Connection, IncomingConnection, OutgoingConnection, say_goodbye
from .dialing import Dialer
from .encryption import Encryption, JobCertificate, SecureSocket
from .endpoint import ExchangeStatistics, Wiring
from .gate import Gate
from .handshake import Hello, Verdict
from .heartbeats import Heartbeats, StandIn
from .listener import LOOPBACK, Listener, Site, SocketAddress, remote, site_of
from .metering import InFlight, Traffic, bound, statistics
from .sender import ChannelSender, SenderLink
from .stream import FrameStream, SecureStream
from .waking import Waker
from .wire import Frame

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
SHORTEST_SECRET = 16

MOST_SHARED = 64
"""Connections of one task that share memory: each takes a descriptor more at either end."""


class SocketEndpoint:
    """Implements `Endpoint`. `secret`: the job's, at least 16 random bytes, the same in all tasks.
    `site`: where it listens; None: as for one machine. `certificate`: the job's, to encrypt what
    goes to other machines.

    Listens from the start, so that its address can be given to peers before it is wired.
    """

    def __init__(
        self,
        task_id: TaskId,
        config: ExchangeConfig,
        secret: bytes,
        clock: Clock | None = None,
        site: Site | None = None,
        certificate: JobCertificate | None = None,
    ) -> None:
        if len(secret) < SHORTEST_SECRET:
            raise ConfigurationError(
                f"the job's secret needs {SHORTEST_SECRET} bytes or more, has {len(secret)}"
            )
        self._task = task_id
        self._config = config
        self._secret = secret
        self._clock = clock or SystemClock()
        self._meter = InFlight()
        self._traffic = Traffic()
        self._attempt = -1
        self._called: Callable[[TaskId], str] = str
        """What tasks are called in errors."""
        self._closed = False
        self._failure: TransportError | None = None
        """Why a connection broke; every pump raises it until the next `connect`."""
        self._encryption = None if certificate is None else Encryption(certificate)
        self._listener = Listener(site or site_of(config.bind_host, LOOPBACK, several=False))
        self._selector = selectors.DefaultSelector()
        self._admission = Admission(
            secret, self._selector, self._clock, self._on_proved, self._encryption
        )
        self._listen(self._listener.tcp)
        if self._listener.unix is not None:
            self._listen(self._listener.unix)
        self._pumping = threading.Lock()
        """Held by who sends or receives: the task's thread, or its stand-in."""
        self._heartbeats: Heartbeats[Connection] = Heartbeats(
            config.heartbeat_interval, config.heartbeat_timeout
        )
        self._stand_in: StandIn | None = None
        """From the first connection to another machine on."""
        self._waker = Waker()
        self._selector.register(self._waker.woken, READ, self._on_woken)
        self._reset()

    def _reset(self) -> None:
        self._outputs: dict[ChannelId, ChannelSender] = {}
        self._outgoing: dict[TaskId, OutgoingConnection] = {}
        self._dialers: dict[TaskId, Dialer] = {}
        """For outgoing connections that are not established yet."""
        self._incoming: dict[TaskId, IncomingConnection] = {}
        self._expected: dict[TaskId, list[Channel]] = {}
        """Input channels by sender."""
        self._gate = Gate((), self._config, _open, self._meter)
        self._failure = None

    def _listen(self, listening: socket.socket) -> None:
        self._selector.register(listening, READ, self._admission.on_listening(listening))

    def move(self, site: Site) -> None:
        """Listen there from now on, and have another address; who is connected stays so. On any
        thread, while nobody connects. TransportError if it cannot listen there."""
        if site == self._listener.site:
            return
        self._waker.wake()
        with self._pumping:
            before = self._listener.tcp
            self._selector.unregister(before)
            try:
                self._listener.move(site)
            finally:
                self._listen(self._listener.tcp)

    @property
    def address(self) -> SocketAddress:
        return self._listener.address

    @property
    def gate(self) -> Gate:
        return self._gate

    @property
    def outputs(self) -> Mapping[ChannelId, ChannelSender]:
        return self._outputs

    @property
    def rejected_handshakes(self) -> int:
        """Connections that could not prove that they belong to the job."""
        return self._admission.rejected

    def connect(self, wiring: Wiring) -> None:
        with self._pumping:
            self._connect(wiring)

    def _connect(self, wiring: Wiring) -> None:
        if self._closed:
            raise TransportError("the endpoint is closed")
        self._drop_attempt()
        self._reset()
        self._attempt = wiring.attempt
        self._called = wiring.called
        self._gate = Gate(wiring.inputs, self._config, _open, self._meter)
        for channel in wiring.inputs:
            self._expected.setdefault(channel.source, []).append(channel)
        for channel in wiring.outputs:
            self._add_output(channel, wiring)
        for arrival in self._admission.parked():
            self._on_proved(arrival)

    def _add_output(self, channel: Channel, wiring: Wiring) -> None:
        peer = channel.target
        connection = self._outgoing.get(peer)
        if connection is None:
            if peer not in wiring.peers:
                raise ConfigurationError(f"no address for receiver {self._called(peer)}")
            link = SenderLink(peer, self._clock.monotonic)
            connection = OutgoingConnection(link, self._config, self._traffic)
            self._outgoing[peer] = connection
            self._dialers[peer] = self._dial(peer, wiring.peers[peer])
        sender = ChannelSender(channel, self._config, connection.link, self._meter)
        connection.link.senders[channel.id] = sender
        self._outputs[channel.id] = sender

    def _dial(self, peer: TaskId, address: SocketAddress) -> Dialer:
        hello = Hello(self._attempt, self._task, peer)
        return Dialer(
            hello,
            address,
            self._secret,
            self._selector,
            self._clock,
            self._on_connected,
            self._on_unreachable,
            self._encryption,
        )

    def _on_connected(self, dialer: Dialer, connected: socket.socket | SecureSocket) -> None:
        peer = dialer.hello.receiver
        del self._dialers[peer]
        self._start(self._outgoing[peer], self._stream(connected))

    def _stream(self, connected: socket.socket | SecureSocket) -> FrameStream:
        if isinstance(connected, SecureSocket):
            return SecureStream(connected, self._meter)
        return FrameStream(connected, self._meter)

    def _on_unreachable(self, dialer: Dialer, reason: AuthenticationError | str) -> None:
        peer = dialer.hello.receiver
        del self._dialers[peer]
        whom = f"receiver {self._called(peer)}"
        if isinstance(reason, AuthenticationError):
            self._fail(AuthenticationError(f"{whom} {reason}"))
        else:
            self._fail(TransportError(f"{whom} is unreachable: {reason}"))

    def _on_proved(self, arrival: Arrival) -> None:
        """Let a proved sender in, turn it away, or leave it parked until this task is wired."""
        hello = arrival.hello
        assert hello is not None
        if hello.receiver != self._task:
            self._admission.turn_away(arrival, Verdict.MISDIRECTED)
        elif hello.attempt < self._attempt:
            self._admission.turn_away(arrival, Verdict.STALE)
        elif hello.attempt == self._attempt:
            if hello.sender not in self._expected:
                self._admission.turn_away(arrival, Verdict.MISDIRECTED)
            elif hello.sender in self._incoming:
                self._admission.turn_away(arrival, Verdict.DUPLICATE)
            else:
                self._admit(arrival, hello.sender)

    def _admit(self, arrival: Arrival, sender: TaskId) -> None:
        self._admission.release(arrival)
        stream = self._stream(arrival.socket)
        stream.queue([arrival.handshake.answer(Verdict.ACCEPTED)])
        connection = IncomingConnection(
            sender, stream, self._gate, self._expected[sender], self._traffic
        )
        self._incoming[sender] = connection
        self._start(connection, stream)

    def _start(self, connection: Connection, stream: FrameStream) -> None:
        connection.stream = stream
        if isinstance(connection, OutgoingConnection) and len(self._outgoing) <= MOST_SHARED:
            connection.share(stream)
        self._selector.register(
            stream.socket, READ, lambda mask: self._on_ready(connection, stream, mask)
        )
        if remote(stream.socket):
            self._heartbeats.add(connection, stream, self._clock.monotonic())
            if self._stand_in is None:
                self._stand_in = StandIn(self._heartbeats.interval_s, self._pumping, self._beat)
        if isinstance(stream, SecureStream):
            self._on_ready(connection, stream, READ)  # some may have come with the handshake's end

    def _beat(self) -> None:
        self._heartbeats.beat(self._clock.monotonic())

    def _on_ready(self, connection: Connection, stream: FrameStream, mask: int) -> bool:
        if connection.stream is not stream:
            return False  # dropped earlier in this turn
        try:
            if mask & READ:
                for frame in stream.receive():
                    connection.receive(frame)
                if connection.over or stream.eof:
                    self._on_end(connection)
        except (OSError, TransportError) as error:
            self._on_broken(connection, error)
        return True

    def _on_end(self, connection: Connection) -> None:
        if connection.over:
            self._hang_up(connection)
        else:
            self._on_broken(connection, "it hung up before the end of the data")

    def _on_broken(self, connection: Connection, reason: object) -> None:
        self._hang_up(connection)
        role = "receiver" if isinstance(connection, OutgoingConnection) else "sender"
        peer = self._called(connection.peer)
        self._fail(TransportError(f"connection to {role} {peer} broke: {reason}"))

    def _hang_up(self, connection: Connection) -> None:
        connection.slots = None
        if connection.stream is not None:
            self._heartbeats.remove(connection)
            self._selector.unregister(connection.stream.socket)
            connection.stream.close()
            connection.stream = None

    def _fail(self, error: TransportError) -> None:
        self._failure = self._failure or error

    def pump(self, timeout: float) -> bool:
        with self._pumping:
            return self._pump(timeout)

    def _pump(self, timeout: float) -> bool:
        if self._closed:
            raise TransportError("the endpoint is closed")
        moved = self._send()
        wait = 0.0 if moved or self._failure else self._patience(timeout)
        events = self._selector.select(wait)
        for key, mask in events:
            moved |= key.data(mask)
        if self._dialers or self._admission.strangers:
            moved |= self._tick()
        if self._stand_in is not None:
            self._look()
        if events or wait:
            moved |= self._send()
        if self._failure is not None:
            raise self._failure
        return moved

    def _tick(self) -> bool:
        """What is due for connections in the making."""
        moved = False
        for dialer in list(self._dialers.values()):
            moved |= dialer.tick()
        self._admission.tick()
        return moved

    def _look(self) -> None:
        """Give up those on other machines of whom nothing was heard for too long. Behind what has
        come."""
        now = self._clock.monotonic()
        if now >= self._heartbeats.due:
            for connection, silence in self._heartbeats.look(now):
                self._on_broken(connection, self._heartbeats.silent_for(silence))

    def _patience(self, timeout: float) -> float:
        """How long to wait for sockets: not beyond the next thing that time alone brings."""
        if timeout <= 0:
            return 0.0
        now = self._clock.monotonic()
        waits = [timeout]
        waits += [dialer.due() - now for dialer in self._dialers.values()]
        if (stranger := self._admission.due()) is not None:
            waits.append(stranger - now)
        if (flush := self.next_flush()) is not None:
            waits.append(flush)
        waits.append(self._heartbeats.due - now)
        return max(0.0, min(waits))

    def _send(self) -> bool:
        moved = self._return_credits()
        for outgoing in self._outgoing.values():
            if outgoing.link.active or (outgoing.stream is not None and outgoing.stream.pending):
                moved |= self._move(outgoing)
        for incoming in self._incoming.values():
            incoming.free_slots()
            if incoming.stream is not None and incoming.stream.pending:
                moved |= self._move(incoming)
        return moved

    def _move(self, connection: Connection) -> bool:
        stream = connection.stream
        try:
            moved = connection.send()
        except OSError as error:
            if stream is not None:
                self._on_ready(connection, stream, READ)  # its goodbye may be waiting
            if connection.stream is not None:
                self._on_broken(connection, error)
            return True
        if stream is not None:
            self._watch(connection, stream)
        return moved

    def _watch(self, connection: Connection, stream: FrameStream) -> None:
        """Ask for room in the socket exactly while something waits for it."""
        blocked = stream.pending > 0
        if stream.awaits_room != blocked:
            stream.awaits_room = blocked
            wanted = READ | WRITE if blocked else READ
            self._selector.modify(
                stream.socket, wanted, lambda mask: self._on_ready(connection, stream, mask)
            )

    def _return_credits(self) -> bool:
        grants = self._gate.take_grants()
        if not grants:
            return False
        by_sender: dict[TaskId, list[tuple[int, int]]] = {}
        for index, count in grants.items():
            sender = self._gate.channels[index].source
            by_sender.setdefault(sender, []).append((index, count))
        for sender, share in by_sender.items():
            self._incoming[sender].grant(share)
        return True

    def next_flush(self) -> float | None:
        """As for every endpoint; None also while a partly filled buffer waits for the peer."""
        waits = [
            wait
            for c in self._outgoing.values()
            if c.stream is not None and not c.stream.pending
            if (wait := c.link.due_in()) is not None
        ]
        return min(waits, default=None)

    def flush(self) -> None:
        for sender in self._outputs.values():
            sender.close_buffer()

    def drained(self) -> bool:
        return all(connection.drained for connection in self._outgoing.values())

    def _on_woken(self, mask: int) -> bool:
        self._waker.quiet()
        return True

    def wake(self) -> None:
        self._waker.wake()

    def statistics(self) -> ExchangeStatistics:
        writes = [sender.largest_write for sender in self._outputs.values()]
        limit = bound(self._config, len(self._gate.channels), writes, len(self._outgoing))
        return statistics(self._traffic, self._meter, limit)

    def _drop_attempt(self) -> None:
        """End all connections, in good order where the data is complete."""
        for dialer in self._dialers.values():
            dialer.close()
        connections: list[Connection] = [*self._outgoing.values(), *self._incoming.values()]
        for connection in connections:
            if connection.stream is not None:
                self._heartbeats.remove(connection)
                self._selector.unregister(connection.stream.socket)
                say_goodbye(connection)
        for outgoing in self._outgoing.values():
            outgoing.link.discard()
        self._gate.discard()

    def close(self) -> None:
        """Idempotent. Leaves no socket and no file."""
        if self._closed:
            return
        self._closed = True
        self._waker.stop()
        if self._stand_in is not None:
            self._stand_in.close()
        self._drop_attempt()
        self._admission.close()
        self._listener.close()
        self._selector.close()
        self._waker.close()


def _open(item: Any) -> Element:
    if isinstance(item, Frame):
        return decode(item)
    element: Element = item
    return element
