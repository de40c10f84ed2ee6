"""A lock between a task's thread, which moves arrays, and a snapshot's thread, which reads them.

The snapshot's thread takes the lock for one chunk after the other and would nearly always get it
back before a thread that waits for it wakes up. So whoever wants to move goes first: readers queue
behind it at a second lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Turns:
    """`moving` waits for one `reading` at most."""

    def __init__(self) -> None:
        self._next = Lock()
        """Held by who waits for the other lock."""
        self._lock = Lock()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """For a chunk of a long read: nothing is moved meanwhile."""
        with self._next:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def moving(self) -> Iterator[None]:
        """For what must not happen during a `reading`."""
        with self._next, self._lock:
            yield
