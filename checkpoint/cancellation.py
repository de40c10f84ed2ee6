"""Whether somebody still wants what is being written or read, and how those who do it hear."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock

from ..core.errors import CheckpointError


class UnwantedError(CheckpointError):
    """What was being done for a checkpoint is not wanted any more."""


class Cancellation:
    """Cancelled once, by any thread; asked and waited for by any number."""

    def __init__(self, what: str = "the checkpoint") -> None:
        """`what`: who is cancelled, for the error."""
        self._what = what
        self._event = Event()
        self._lock = Lock()
        self._hear: dict[int, Callable[[], None]] = {}
        """Called when it is cancelled, on the thread that cancels; empty from then on."""
        self._next = 0

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        with self._lock:
            self._event.set()
            hear, self._hear = list(self._hear.values()), {}
        for call in hear:
            call()

    def check(self) -> None:
        """UnwantedError if it is cancelled."""
        if self.cancelled:
            raise UnwantedError(f"{self._what} was given up: what it wrote is removed")

    def wait(self, seconds: float) -> None:
        """So long at most; UnwantedError as soon as it is cancelled."""
        self._event.wait(seconds)
        self.check()

    def heard_by(self, call: Callable[[], None]) -> Callable[[], None]:
        """`call` is called when it is cancelled, at once if it is; what is returned takes it
        back."""
        with self._lock:
            if not self._event.is_set():
                self._next += 1
                number = self._next
                self._hear[number] = call
                return lambda: self._unheard(number)
        call()
        return lambda: None

    def _unheard(self, number: int) -> None:
        with self._lock:
            self._hear.pop(number, None)
