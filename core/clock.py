"""Time is injected: nothing below the hosts reads a clock of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Processing time. All of a job's protocol code sees time only through this."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin, never going back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class VirtualClock:
    """A clock that moves only when told to; starts at `start_ms`."""

    def __init__(self, start_ms: int = 1_000_000_000_000) -> None:
        self._now_ms = start_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000.0

    def advance_ms(self, delta_ms: int) -> None:
        if delta_ms < 0:
            raise ValueError(f"a clock never goes back: advance by {delta_ms} ms")
        self._now_ms += delta_ms

    def advance_to(self, now_ms: int) -> None:
        self._now_ms = max(self._now_ms, now_ms)


def unheard(clock: Clock) -> Callable[[], int]:
    """Reads the time for what does not show: clocks that remember what they said leave this out."""
    found: Callable[[], int] = getattr(clock, "unread", clock.now_ms)
    return found
