"""A thread that waits for a server, and ends when it is told to, whatever the server does.

    end   it is told so, and with it whoever it waits for in this process
          what its sessions do is cancelled, again and again    a cancel between two statements,
                                                                or ahead of one, is lost
          CUT_S later      their connections are cut            the server is paused, or far away
          LEAVE_S later    the thread is left to itself         it waits to be connected, which
                                                                `connect_timeout` ends

A cancel comes before a cut, because a server that waits for a lock does not see that nobody listens
any more: it would write what it was told to when it gets the lock, long after others have gone on.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from .connection import PostgresConnection

if TYPE_CHECKING:
    from .connection import Session

AGAIN_S: Final = 0.1
"""Between two cancels."""

CUT_S: Final = 2.0

LEAVE_S: Final = 3.0

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """The thread is to end."""


class Line:
    """The socket of a connection, to be cut from another thread: whoever waits for it then finds
    that the server is gone. It is a duplicate, so that the connection may be closed meanwhile, and
    the number of its file be given to another."""

    def __init__(self, fileno: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fileno))

    def cut(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


class ServerThread:
    """Runs `run` from `start` on. `run` waits for servers in sessions that are `connected` or
    `attached`, and for all else in `pause`, or is woken by who ends it."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=run, name=f"strom-{name}", daemon=True)
        self._lock = threading.Lock()
        self._lines: dict[Line, Callable[[float], object] | None] = {}
        """Of the sessions in which the thread may wait now: how to cancel it, None: not at all."""

    def start(self) -> None:
        self._thread.start()

    def end(self) -> bool:
        """Whether it has ended; called once, from another thread."""
        self.stopping.set()
        if self._thread.ident is None:
            return True
        begun = time.monotonic()
        while True:
            self._thread.join(AGAIN_S)
            if not self._thread.is_alive():
                return True
            waited = time.monotonic() - begun
            if waited >= LEAVE_S:
                _log.warning(
                    "thread '%s' still waits for PostgreSQL to answer; it is left to end by itself",
                    self._thread.name,
                )
                return False
            if waited >= CUT_S:
                self.cut()
            else:
                self._cancel(CUT_S - waited)

    def cut(self) -> None:
        """Have the thread find that its connections are lost."""
        with self._lock:
            for line in self._lines:
                line.cut()

    # --- the thread's side -------------------------------------------------------------------

    def check(self) -> None:
        """Raises Stopped."""
        if self.stopping.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Raises Stopped."""
        if self.stopping.wait(seconds):
            raise Stopped

    @contextmanager
    def connected(self, connection: PostgresConnection, limited: bool = True) -> Iterator[Session]:
        """A session of the thread's. Raises psycopg's errors, and Stopped."""
        self.check()
        with closing(connection.connect(limited)) as session:

            def cancel(seconds: float) -> None:
                session.cancel_safe(timeout=seconds)

            with self.attached(session.fileno(), cancel):
                yield session

    @contextmanager
    def attached(
        self, fileno: int, cancel: Callable[[float], object] | None = None
    ) -> Iterator[None]:
        """While the thread may wait in the connection with this socket. `cancel` takes how long it
        may take (s). Raises Stopped."""
        line = Line(fileno)
        with closing(line):
            with self._lock:
                self._lines[line] = cancel
            try:
                self.check()
                yield
            finally:
                with self._lock:
                    del self._lines[line]

    def _cancel(self, seconds: float) -> None:
        """Under the lock: a connection is not closed while it is being cancelled."""
        with self._lock:
            for cancel in self._lines.values():
                if cancel is not None:
                    with suppress(Exception):
                        cancel(seconds)


@contextmanager
def cut_after(session: Session, seconds: float | None) -> Iterator[None]:
    """What waits in the session for so long finds that its connection is lost; None: never."""
    if seconds is None:
        yield
        return
    with closing(Line(session.fileno())) as line:
        timer = threading.Timer(seconds, line.cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
