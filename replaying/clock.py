"""The clock of an operator that runs again: it says what it said then."""

from __future__ import annotations

from collections import deque

import numpy as np


class ReplayClock:
    """Readings come with the call that they were made in, and are given in their order. Where a
    program that was changed asks more often, the time stands still; what it does not ask for is
    dropped with the call after."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._monotonic = now_ms / 1000.0
        self._times: deque[list[int]] = deque()
        """The number of the call, how often, and what."""
        self._monotonics: deque[list[int]] = deque()
        self._call = 0

    def now_ms(self) -> int:
        found = _next(self._times)
        if found is not None:
            self._now_ms = found
        return self._now_ms

    def unread(self) -> int:
        """The time, of which what was read says nothing."""
        return self._now_ms

    def monotonic(self) -> float:
        found = _next(self._monotonics)
        if found is not None:
            self._monotonic = found / 1e9
        return self._monotonic

    def advance_to(self, now_ms: int) -> None:
        """A wake-up came at this time."""
        self._now_ms = max(self._now_ms, now_ms)

    def begin(self) -> None:
        """A call begins. What is read just before it belongs to the call before."""
        self._call += 1
        for readings in (self._times, self._monotonics):
            while readings and readings[0][0] < self._call - 1:
                readings.popleft()

    def expect(self, said: bytes) -> None:
        """What is read within this call, and just before the next one."""
        for count, value in np.frombuffer(said, dtype="<i8").reshape(-1, 2).tolist():
            readings = self._times if count > 0 else self._monotonics
            readings.append([self._call, abs(count), value])


def _next(readings: deque[list[int]]) -> int | None:
    if not readings:
        return None
    first = readings[0]
    first[1] -= 1
    if not first[1]:
        readings.popleft()
    return first[2]
