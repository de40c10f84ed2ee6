"""Reaching a receiver: connect, prove, wait to be accepted; with growing pauses between tries."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from ...core.clock import Clock
from ...core.errors import AuthenticationError
from .encryption import Encryption, SecureSocket
from .handshake import NONCE_BYTES, Hello, SenderHandshake, Verdict
from .listener import SocketAddress, node_identity, remote, tune

CONNECT_DEADLINE_S: Final = 30.0
"""Within this a receiver must have answered the hello."""

WIRING_DEADLINE_S: Final = 300.0
"""Within this a receiver that answered must have been wired for the attempt and accept."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0

_REASONS = {
    Verdict.STALE: "it is at a later attempt",
    Verdict.MISDIRECTED: "it expects no data from this task",
    Verdict.DUPLICATE: "it already has a connection from this task",
}


class Dialer:
    """One outgoing connection in the making.

    Calls `connected(self, socket)` once, with a socket over which frames may flow, or
    `failed(self, reason)` once, with what the receiver did if it is not of this job. Until then it
    has at most one socket in the selector.
    """

    def __init__(
        self,
        hello: Hello,
        address: SocketAddress,
        secret: bytes,
        selector: selectors.BaseSelector,
        clock: Clock,
        connected: Callable[[Dialer, socket.socket | SecureSocket], None],
        failed: Callable[[Dialer, AuthenticationError | str], None],
        encryption: Encryption | None = None,
    ) -> None:
        """`encryption`: of what goes to other machines."""
        self.hello = hello
        self._address = address
        self._secret = secret
        self._selector = selector
        self._clock = clock
        self._connected = connected
        self._failed = failed
        self._unix = address.node == node_identity() and address.unix_path is not None
        """Whether to try the unix socket; given up after it failed once."""
        self._encryption = encryption
        self._socket: socket.socket | SecureSocket | None = None
        self._shaking: SecureSocket | None = None
        """`_socket` while TLS's own handshake goes on there."""
        self._handshake: SenderHandshake | None = None
        """Set once the hello is sent on `_socket`."""
        self._received = b""
        self._started = clock.monotonic()
        self._next_try: float | None = self._started
        """When to try again; None while a try is in progress."""
        self._pause = FIRST_PAUSE_S
        self._reason = "no connection was tried"

    def due(self) -> float:
        """When `tick` should be called at the latest."""
        return self._deadline() if self._next_try is None else self._next_try

    def _deadline(self) -> float:
        waiting = self._handshake is not None and self._handshake.challenged
        return self._started + (WIRING_DEADLINE_S if waiting else CONNECT_DEADLINE_S)

    def tick(self) -> bool:
        """Start a try that is due, or give up; whether anything was done."""
        now = self._clock.monotonic()
        if now >= self._deadline():
            self._give_up(f"not connected after {now - self._started:.0f} s: {self._reason}")
            return True
        if self._next_try is None or now < self._next_try:
            return False
        self._next_try = None
        self._try()
        return True

    def _try(self) -> None:
        family, target = self._target()
        try:
            if family is None:
                info = socket.getaddrinfo(
                    self._address.host, self._address.port, type=socket.SOCK_STREAM
                )
                family, target = info[0][0], info[0][4]
            connection = socket.socket(family, socket.SOCK_STREAM)
            self._socket = connection
            tune(connection)
            code = connection.connect_ex(target)
        except OSError as error:
            self._retry(str(error))
            return
        if code in (0, errno.EINPROGRESS):
            self._selector.register(self._socket, selectors.EVENT_WRITE, self.on_ready)
        else:
            self._retry(os.strerror(code))

    def _target(self) -> tuple[int | None, Any]:
        if self._unix:
            return socket.AF_UNIX, self._address.unix_path
        return None, None

    def on_ready(self, mask: int) -> bool:
        """The socket is connected, or has an answer, or has failed."""
        try:
            if self._shaking is not None:
                self._shake(self._shaking)
            elif self._handshake is None:
                self._on_reached()
            else:
                self._listen()
        except AuthenticationError as error:
            self._forget_socket()
            self._failed(self, error)
        except ssl.SSLCertVerificationError as error:
            self._forget_socket()
            why = f"has another certificate than that of this job: {error.verify_message}"
            self._failed(self, AuthenticationError(why))
        except OSError as error:
            self._retry(str(error))
        return True

    def _on_reached(self) -> None:
        connection = self._socket
        assert isinstance(connection, socket.socket)
        code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._selector.modify(connection, selectors.EVENT_READ, self.on_ready)
        if self._encryption is None or not remote(connection):
            self._say_hello()
        else:
            self._socket = self._shaking = self._encryption.connected(connection)
            self._shake(self._shaking)

    def _shake(self, connection: SecureSocket) -> None:
        if connection.shake():
            self._shaking = None
            self._say_hello()

    def _say_hello(self) -> None:
        self._handshake = SenderHandshake(self._secret, self.hello, os.urandom(NONCE_BYTES))
        self._say(self._handshake.start())

    def _say(self, message: bytes) -> None:
        assert self._socket is not None
        if message and self._socket.send(message) != len(message):
            raise OSError("the handshake could not be sent in one piece")

    def _listen(self) -> None:
        assert self._socket is not None
        assert self._handshake is not None
        data = self._socket.recv(self._handshake.needed - len(self._received))
        if not data:
            raise OSError("the receiver hung up during the handshake")
        self._received += data
        if len(self._received) < self._handshake.needed:
            return
        message, self._received = self._received, b""
        self._say(self._handshake.receive(message))
        verdict = self._handshake.verdict
        if verdict is None:
            return
        if verdict is not Verdict.ACCEPTED:
            self._give_up(_REASONS[verdict])
            return
        connection, self._socket = self._socket, None
        self._selector.unregister(connection)
        self._connected(self, connection)

    def _retry(self, reason: str) -> None:
        self._reason = reason
        self._forget_socket()
        self._unix = False
        self._next_try = self._clock.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)

    def _give_up(self, reason: str) -> None:
        self._forget_socket()
        self._failed(self, reason)

    def _forget_socket(self) -> None:
        if self._socket is not None:
            if self._socket in self._selector.get_map():
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        self._shaking = None
        self._handshake = None
        self._received = b""

    def close(self) -> None:
        """Stop trying. Calls nobody."""
        self._forget_socket()
