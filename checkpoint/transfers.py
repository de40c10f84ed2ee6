"""Files on their way to and from a storage: several at a time, and of all together not too much.

Each process has one pool, which its tasks share: a job with many tasks does not open as many
connections, and what waits to be written is held in memory by the states anyway. Whoever hands a
transfer over waits until there is room (`InFlight`, pure).

A transfer that is cancelled counts no more, even if its call hangs: it ends some time on a thread
of its own, and cleans up after itself. So a storage that hangs holds up no later checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Event, Lock, Thread
from typing import Any, Final, Generic, Protocol, TypeVar

from .cancellation import Cancellation

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

MOST: Final = 8
"""Transfers of one process at a time."""

MOST_BYTES: Final = 128 << 20
"""Bytes of all of them. A larger one goes alone."""


@dataclass
class InFlight:
    """What is on its way.

    >>> room = InFlight(most=2, most_bytes=100)
    >>> room.begin(60), room.begin(60), room.begin(40), room.begin(0)
    (True, False, True, False)
    >>> room.end(60), room.end(40), room.begin(1000), room.begin(0)
    (None, None, True, True)
    """

    most: int
    most_bytes: int
    count: int = 0
    """From 0 to `most`."""
    size: int = 0
    """At most `most_bytes`, unless one larger began while there was nothing."""

    def begin(self, size: int) -> bool:
        """Begin one of so many bytes, if there is room."""
        if self.count >= self.most:
            return False
        if self.size and self.size + size > max(self.most_bytes, self.size):
            return False
        self.count += 1
        self.size += size
        return True

    def end(self, size: int) -> None:
        self.count -= 1
        self.size -= size
        assert self.count >= 0 <= self.size, self


class Pending(Protocol[T_co]):
    """A transfer that was handed over."""

    def result(self) -> T_co:
        """Wait for what it returns, or raises. UnwantedError as soon as it is cancelled."""
        ...


class Transfers(Protocol):
    """Where transfers run."""

    def submit(self, size: int, call: Callable[[], T], cancellation: Cancellation) -> Pending[T]:
        """Have `call` done, which moves about `size` bytes, when there is room: waits for that.
        UnwantedError if it is cancelled meanwhile."""
        ...

    def try_submit(self, call: Callable[[], Any]) -> bool:
        """Have `call` done, of which nobody wants to know how it ends; False if there is no
        room."""
        ...


class _Done(Generic[T]):
    def __init__(self, value: T) -> None:
        self._value = value

    def result(self) -> T:
        return self._value


class Inline:
    """One after the other on the caller's thread, where there are no others (the simulator)."""

    def submit(self, size: int, call: Callable[[], T], cancellation: Cancellation) -> Pending[T]:
        cancellation.check()
        return _Done(call())

    def try_submit(self, call: Callable[[], Any]) -> bool:
        call()
        return True


class TransferPool:
    """Each transfer on a daemon thread of its own: one that hangs keeps no program from ending."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._room = InFlight(most, most_bytes)
        """Guarded by `_changed`."""
        self._changed = Condition()

    def submit(self, size: int, call: Callable[[], T], cancellation: Cancellation) -> Pending[T]:
        unheard = cancellation.heard_by(self._wake)
        try:
            with self._changed:
                while True:
                    cancellation.check()
                    if self._room.begin(size):
                        break
                    self._changed.wait()
        finally:
            unheard()
        running = _Running(call, cancellation, lambda: self._end(size))
        running.start()
        return running

    def try_submit(self, call: Callable[[], Any]) -> bool:
        with self._changed:
            if not self._room.begin(0):
                return False
        _Running(call, Cancellation(), lambda: self._end(0)).start()
        return True

    def statistics(self) -> InFlight:
        with self._changed:
            room = self._room
            return InFlight(room.most, room.most_bytes, room.count, room.size)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _end(self, size: int) -> None:
        with self._changed:
            self._room.end(size)
            self._changed.notify_all()


class _Running(Generic[T]):
    """One transfer on its thread. It leaves its room once: when it ends, or is cancelled."""

    def __init__(
        self, call: Callable[[], T], cancellation: Cancellation, end: Callable[[], None]
    ) -> None:
        self._call: Callable[[], T] | None = call
        self._cancellation = cancellation
        self._end: Callable[[], None] | None = end
        self._lock = Lock()
        self._over = Event()
        self._value: T
        self._error: BaseException | None = None
        self._finished = False

    def start(self) -> None:
        self._unheard = self._cancellation.heard_by(self.leave)
        Thread(target=self._run, name="strom-transfer", daemon=True).start()

    def result(self) -> T:
        self._over.wait()
        if not self._finished:
            self._cancellation.check()
        if self._error is not None:
            raise self._error
        return self._value

    def leave(self) -> None:
        with self._lock:
            end, self._end = self._end, None
        if end is not None:
            end()
        self._over.set()

    def _run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        try:
            self._value = call()
        except BaseException as error:
            self._error = error
        del call  # and with it what it has moved
        self._finished = True
        self._unheard()
        self.leave()


INLINE: Final[Transfers] = Inline()

_pool: TransferPool | None = None
_pool_lock = Lock()


def process_pool() -> Transfers:
    """The pool of this process."""
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = TransferPool()
        return _pool
