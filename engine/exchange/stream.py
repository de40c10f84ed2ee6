"""A connected, non-blocking socket that carries frames both ways.

Sending gathers whole frames without copying them; receiving fills Arrow's memory in place.
Socket errors surface as OSError; the owner knows the peer and names it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from .encryption import SecureSocket
from .listener import remote
from .metering import InFlight
from .wire import Frame, FrameReader, Kind, header

MOST_PIECES: Final = 64
"""Pieces per `sendmsg`; the kernel allows 1,024."""

MOST_BYTES: Final = 4 << 20
"""Received per turn before other connections get theirs."""

LINGER_STEPS: Final = 100
LINGER_STEP_S: Final = 0.01

_DESCRIPTOR: Final = struct.Struct("i")

HEARTBEAT: Final = memoryview(header(Kind.HEARTBEAT, 0))


class FrameStream:
    """`pending`: bytes queued for the socket. `eof`: the peer has ended its side."""

    def __init__(self, connection: socket.socket | SecureSocket, meter: InFlight) -> None:
        self.socket: Any = connection
        self.pending = 0
        self.received = 0
        """Bytes so far."""
        self.eof = False
        self.awaits_room = False
        """Whether the selector reports when the socket takes more."""
        self._out: deque[memoryview] = deque()
        self._unmetered = 0
        """What of `pending` the meter does not know of yet."""
        self._meter = meter
        self._reader = FrameReader()
        self._descriptor: int | None = None
        """That came along, and nobody has taken yet."""
        far = isinstance(connection, SecureSocket) or remote(connection)
        self._room = 0 if far else socket.CMSG_LEN(_DESCRIPTOR.size)
        """For one to come along: the first that does is the last."""

    def hand_over(self, frame: bytes, descriptor: int) -> bool:
        """Send a frame with a descriptor, which the receiver gets one of its own for, ahead of all
        else; whether the socket took it. An error is found by the next `flush`. On a unix socket
        only."""
        assert not self.pending, "something waits to be sent"
        passed = (socket.SOL_SOCKET, socket.SCM_RIGHTS, _DESCRIPTOR.pack(descriptor))
        try:
            sent = self.socket.sendmsg([frame], [passed])
        except OSError:
            return False
        self.queue([memoryview(frame)[sent:]])
        return True

    def take_descriptor(self) -> int | None:
        """The one that came along; who takes it closes it. None: none did, or this process can have
        no more."""
        found, self._descriptor = self._descriptor, None
        return found

    def queue(self, parts: Iterable[Any]) -> int:
        """Send these bytes-like parts after all before; returns their size. Does not send yet."""
        size = 0
        for part in parts:
            view = memoryview(part)
            if view.format != "B" or view.ndim != 1:
                view = view.cast("B")
            if view.nbytes:
                self._out.append(view)
                size += view.nbytes
        self.pending += size
        self._meter.add(size)
        return size

    def beat(self) -> None:
        """Say that this end lives, unless something else waits to be sent. On any thread, with the
        endpoint's lock; the meter is the task's alone. An error is found by the next `flush`."""
        if self.pending:
            return
        try:
            sent = self.socket.sendmsg([HEARTBEAT])
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if rest := HEARTBEAT[sent:]:
            self._out.append(rest)
            self.pending += rest.nbytes
            self._unmetered += rest.nbytes

    def _meter_all(self) -> None:
        self._meter.add(self._unmetered)
        self._unmetered = 0

    def flush(self) -> bool:
        """Hand over what the socket takes; whether it took anything. `pending` tells the rest."""
        if self._unmetered:
            self._meter_all()
        moved = False
        out = self._out
        while out:
            try:
                count = self.socket.sendmsg(list(islice(out, MOST_PIECES)))
            except BlockingIOError:
                return moved
            moved = True
            self.pending -= count
            self._meter.sub(count)
            while count:
                first = out[0]
                if count < first.nbytes:
                    out[0] = first[count:]
                    break
                count -= first.nbytes
                out.popleft()
        return moved

    def receive(self) -> list[Frame]:
        """The frames completed by what has arrived. Sets `eof`. TransportError: nonsense came."""
        frames: list[Frame] = []
        total = 0
        while total < MOST_BYTES:
            targets = self._reader.targets()
            try:
                count = self._receive_into(targets)
            except BlockingIOError:
                break
            except OSError:
                if frames:
                    break  # a goodbye may be among them; the next call finds the end
                raise
            if not count:
                self.eof = True
                break
            total += count
            self.received += count
            frames.extend(self._reader.received(count))
            if count < sum(map(len, targets)):
                break  # the socket is empty; saves asking once more
        return frames

    def _receive_into(self, targets: list[memoryview]) -> int:
        if not self._room:
            return int(self.socket.recvmsg_into(targets)[0])
        flags = socket.MSG_CMSG_CLOEXEC
        count, passed, _, _ = self.socket.recvmsg_into(targets, self._room, flags)
        for level, kind, data in passed:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._descriptor, self._room = _DESCRIPTOR.unpack_from(data)[0], 0
        return int(count)

    def linger(self) -> None:
        """Before an orderly close: let the kernel deliver what was handed to it, up to a second.

        Closing with unread input resets a TCP connection and would lose output that is still on
        its way, so input is read and dropped meanwhile.
        """
        for _ in range(LINGER_STEPS):
            self.flush()
            self._drop_input()
            if not self.pending and not _unacknowledged(self.socket):
                return
            writers = [self.socket] if self.pending else []
            select.select([self.socket], writers, [], LINGER_STEP_S)
            if self.eof:
                return

    def _drop_input(self) -> None:
        try:
            while data := self.socket.recv(1 << 16):
                del data
            self.eof = True
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._meter_all()
        self._meter.sub(self.pending)
        self.pending = 0
        self._out.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self.socket.close()


class SecureStream(FrameStream):
    """Over TLS. All that was fetched from the socket is decrypted at once, so that whatever is
    still to be received, the socket says so."""

    def __init__(self, connection: SecureSocket, meter: InFlight) -> None:
        super().__init__(connection, meter)

    def receive(self) -> list[Frame]:
        frames: list[Frame] = []
        self._decrypt(frames)  # what came with the end of the handshake
        total = 0
        while total < MOST_BYTES:
            try:
                fetched = self.socket.fetch()
            except BlockingIOError:
                break
            except OSError:
                if frames:
                    break
                raise
            if not fetched:
                self.eof = True
                break
            total += fetched
            self.received += fetched
            self._decrypt(frames)
        return frames

    def _decrypt(self, frames: list[Frame]) -> None:
        while count := self.socket.recvmsg_into(self._reader.targets()):
            frames.extend(self._reader.received(count))


def _unacknowledged(connection: Any) -> int:
    """Bytes that a TCP peer's kernel has not got yet. A unix socket delivers at once."""
    if connection.family == getattr(socket, "AF_UNIX", None):
        return 0
    try:
        import array
        import fcntl
        import termios

        count = array.array("i", [0])
        fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, count)
        return count[0]
    except (ImportError, OSError):
        return 0
