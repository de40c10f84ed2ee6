"""Ending the wait of a selector, from any thread."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Waker:
    """`woken` is readable from a `wake` on until `quiet`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waker, self.woken = socket.socketpair()
        self._waker.setblocking(False)
        self.woken.setblocking(False)
        self._over = False

    def wake(self) -> None:
        """Thread-safe; nothing happens once it is over."""
        with self._lock:
            if not self._over:
                with suppress(BlockingIOError):  # enough is in the pipe to wake it
                    self._waker.send(b"\0")

    def quiet(self) -> None:
        """By the thread that was woken."""
        with suppress(BlockingIOError):
            while self.woken.recv(4096):
                pass

    def stop(self) -> None:
        """From now on `wake` does nothing."""
        with self._lock:
            self._over = True

    def close(self) -> None:
        self.stop()
        self._waker.close()
        self.woken.close()
