"""How many results of a user's function are gathered before they go out as a batch."""

from __future__ import annotations

from ...core.clock import Clock

FIRST = 64
LEAST = 16
LONG_S = 0.05
"""What gathering a batch should take at most. More only where a function is slower than that for a
single call, or takes long over fewer results than the next batch was to have."""


class Pace:
    """Learns from how long batches took: up to `chunk` results for quick functions, few for slow
    ones, so that a generator that takes its time over each value does not keep its task from mail.
    """

    def __init__(self, chunk: int, clock: Clock) -> None:
        self._chunk = max(1, chunk)
        self._clock = clock
        self._began = 0.0
        self.size = min(FIRST, self._chunk)
        """How many results make a batch now; from 1 to `chunk`."""

    def begin(self) -> int:
        """A batch begins; its size."""
        self._began = self._clock.monotonic()
        return self.size

    def full(self) -> None:
        """It has its size."""
        took = self._clock.monotonic() - self._began
        if took > LONG_S:
            self.size = max(min(LEAST, self._chunk), int(self.size * LONG_S / took))
        elif took < LONG_S / 4:
            self.size = min(2 * self.size, self._chunk)
