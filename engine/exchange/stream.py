"""A connected, non-blocking socket that carries frames both ways.

Sending gathers whole frames without copying them; receiving fills Arrow's memory in place.
Socket errors surface as OSError; the owner knows the peer and names it.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from .metering import InFlight
from .wire import Frame, FrameReader

MOST_PIECES: Final = 64
"""Pieces per `sendmsg`; the kernel allows 1,024."""

MOST_BYTES: Final = 4 << 20
"""Received per turn before other connections get theirs."""

LINGER_STEPS: Final = 100
LINGER_STEP_S: Final = 0.01


class FrameStream:
    """`pending`: bytes queued for the socket. `eof`: the peer has ended its side."""

    def __init__(self, connection: socket.socket, meter: InFlight) -> None:
        self.socket = connection
        self.pending = 0
        self.eof = False
        self.awaits_room = False
        """Whether the selector reports when the socket takes more."""
        self._out: deque[memoryview] = deque()
        self._meter = meter
        self._reader = FrameReader()

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

    def flush(self) -> bool:
        """Hand over what the socket takes; whether it took anything. `pending` tells the rest."""
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
                count = self.socket.recvmsg_into(targets)[0]
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
            frames.extend(self._reader.received(count))
            if count < sum(map(len, targets)):
                break  # the socket is empty; saves asking once more
        return frames

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
        self._meter.sub(self.pending)
        self.pending = 0
        self._out.clear()
        self.socket.close()


def _unacknowledged(connection: socket.socket) -> int:
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
