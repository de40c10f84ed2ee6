"""Whether the program that a job is attached to still lives, judged by its renewals.

Prior art: the client heartbeat of Flink, which cancels an attached job minutes after its client
fell silent. Here a missed renewal is counted, not the time since the last: a coordinator that was
stopped or swapped out itself finds one miss when it wakes, however late, and by then the renewals
that waited for it have arrived.
"""

from __future__ import annotations

from typing import Final

from ...core.clock import Clock

PERIOD_S: Final = 3.0
"""From one renewal to the next. The lease is looked at as often."""

MISSES: Final = 6
"""So many renewals in a row may not be missing. A program whose process is known to be dead is not
waited for; this is for one that is stopped, or behind a network that is gone."""


class Lease:
    """Pure: told of renewals, asked by `look`.

    Invariant: `_misses` counts the looks in a row, a period or more apart, between which no renewal
    came.
    """

    def __init__(self, clock: Clock, period_s: float = PERIOD_S, misses: int = MISSES) -> None:
        self._clock = clock
        self._period_s = period_s
        self._allowed = misses
        self._misses = 0
        self._renewed = False
        """Since the last look."""
        self._counted_at = clock.monotonic()
        self._lost = False

    def renew(self) -> None:
        """The program gave a sign of life."""
        self._renewed = True

    def lose(self) -> None:
        """The program's process is known to be dead."""
        self._lost = True

    def look(self) -> bool:
        """Whether the job has lost its program. To be asked once a period; more often is as good,
        more seldom only makes it later."""
        now = self._clock.monotonic()
        if self._renewed:
            self._renewed = False
            self._misses = 0
            self._counted_at = now
        elif now - self._counted_at >= self._period_s:
            self._misses += 1
            self._counted_at = now
        return self._lost or self._misses >= self._allowed

    def next_look_s(self) -> float:
        """Seconds until a look may find another miss."""
        return max(0.0, self._counted_at + self._period_s - self._clock.monotonic())
