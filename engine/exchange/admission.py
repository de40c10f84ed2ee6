"""Who may come in: the accepting side's handshakes, and what happens to strangers.

Until a peer has proved itself only the handshake's fixed messages are read from it, a few bytes at
a time. Whoever says anything else, or takes too long, is dropped and counted, unnoticed by the job.
"""

from __future__ import annotations

import os
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...core.clock import Clock
from ...core.errors import AuthenticationError
from .encryption import Encryption, SecureSocket
from .handshake import NONCE_BYTES, Hello, ReceiverHandshake, Verdict
from .listener import foreign, remote, tune

HANDSHAKE_DEADLINE_S: Final = 10.0
MOST_STRANGERS: Final = 128
"""Unproved connections at a time; one more pushes out the oldest."""


class Arrival:
    """One accepted connection. `hello` is set once the peer has proved what it says."""

    def __init__(
        self, connection: socket.socket | SecureSocket, secret: bytes, deadline: float
    ) -> None:
        self.socket = connection
        self.deadline = deadline
        self._shaking = isinstance(connection, SecureSocket)
        """Whether TLS's own handshake comes first."""
        self.handshake = ReceiverHandshake(secret, os.urandom(NONCE_BYTES))
        self._received = b""

    @property
    def hello(self) -> Hello | None:
        return self.handshake.hello

    def advance(self) -> None:
        """Read what is there of the handshake. OSError, AuthenticationError: drop the peer."""
        if self._shaking and isinstance(self.socket, SecureSocket):
            if not self.socket.shake():
                return
            self._shaking = False
        while needed := self.handshake.needed:
            try:
                data = self.socket.recv(needed - len(self._received))
            except BlockingIOError:
                return
            if not data:
                raise AuthenticationError("the peer hung up during the handshake")
            self._received += data
            if len(self._received) < needed:
                return
            message, self._received = self._received, b""
            answer = self.handshake.receive(message)
            if answer and self.socket.send(answer) != len(answer):
                raise AuthenticationError("the peer does not read")


class Admission:
    """Accepts, lets peers prove themselves, and hands those that did to `proved(arrival)`.

    That callee either takes the socket (`release`), answers and drops it (`turn_away`), or leaves
    it parked for a later attempt, to come back from `parked()`.
    """

    def __init__(
        self,
        secret: bytes,
        selector: selectors.BaseSelector,
        clock: Clock,
        proved: Callable[[Arrival], None],
        encryption: Encryption | None = None,
    ) -> None:
        """`encryption`: of what comes from other machines."""
        self.rejected = 0
        """Connections dropped for want of a proof."""
        self._secret = secret
        self._selector = selector
        self._clock = clock
        self._proved = proved
        self._encryption = encryption
        self.strangers: dict[Arrival, None] = {}
        """Unproved, oldest first; all are in the selector."""
        self._parked: dict[Arrival, None] = {}
        """Proved and waiting for this endpoint to be wired; all are in the selector."""

    def on_listening(self, listening: socket.socket) -> Callable[[int], bool]:
        """The callback for a listening socket."""

        def accept(mask: int) -> bool:
            try:
                while True:
                    self._welcome(listening.accept()[0])
            except OSError:
                return True  # nobody else is waiting, or no file descriptor is left for now

        return accept

    def _welcome(self, connection: socket.socket) -> None:
        if foreign(connection):
            self.rejected += 1
            connection.close()
            return
        tune(connection)
        deadline = self._clock.monotonic() + HANDSHAKE_DEADLINE_S
        spoken: socket.socket | SecureSocket = connection
        if self._encryption is not None and remote(connection):
            spoken = self._encryption.accepted(connection)
        arrival = Arrival(spoken, self._secret, deadline)
        self.strangers[arrival] = None
        self._selector.register(
            connection, selectors.EVENT_READ, lambda mask: self._on_ready(arrival)
        )
        if len(self.strangers) > MOST_STRANGERS:
            self._reject(next(iter(self.strangers)))

    def _on_ready(self, arrival: Arrival) -> bool:
        if arrival in self._parked:
            self.release(arrival)  # it hung up, or speaks out of turn
            arrival.socket.close()
            return True
        if arrival not in self.strangers:
            return False  # pushed out earlier in this turn
        try:
            arrival.advance()
        except (OSError, AuthenticationError):
            self._reject(arrival)
            return True
        if arrival.hello is not None:
            del self.strangers[arrival]
            self._parked[arrival] = None
            self._proved(arrival)
        return True

    def parked(self) -> list[Arrival]:
        """Peers that proved themselves and were neither released nor turned away."""
        return list(self._parked)

    def release(self, arrival: Arrival) -> None:
        """The caller takes over this connection."""
        del self._parked[arrival]
        self._selector.unregister(arrival.socket)

    def turn_away(self, arrival: Arrival, verdict: Verdict) -> None:
        """Tell a proved peer why it may not come in, and drop it."""
        self.release(arrival)
        with suppress(OSError):  # it may be gone already
            arrival.socket.send(arrival.handshake.answer(verdict))
        arrival.socket.close()

    def _reject(self, arrival: Arrival) -> None:
        self.rejected += 1
        del self.strangers[arrival]
        self._selector.unregister(arrival.socket)
        arrival.socket.close()

    def due(self) -> float | None:
        """When the oldest unproved peer runs out of time."""
        return next((arrival.deadline for arrival in self.strangers), None)

    def tick(self) -> None:
        """Drop those that took too long."""
        now = self._clock.monotonic()
        for arrival in [a for a in self.strangers if a.deadline <= now]:
            self._reject(arrival)

    def close(self) -> None:
        for arrival in (*self.strangers, *self._parked):
            self._selector.unregister(arrival.socket)
            arrival.socket.close()
        self.strangers.clear()
        self._parked.clear()
