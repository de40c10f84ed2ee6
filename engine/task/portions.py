"""How many records of a batch a task hands to its chain at a time.

Batches grow on their way through the exchange: a megabyte holds a hundred thousand small
records. A function that needs a millisecond per record would be busy with it for minutes, and no
checkpoint and no cancel would be heard meanwhile. So a slow chain is given portions, a quick one,
whose cost is per batch, the whole batch.
"""

from __future__ import annotations

LONGEST_S = 0.25
"""What a portion should take at most."""

FIRST = 1024
LEAST = 64
"""Never fewer records than this, for functions that are slow per batch and quick per record; or
than the job's batch size, if that is less."""


class Portions:
    """Learns from how long portions took."""

    def __init__(self, batch_size: int) -> None:
        self._least = min(LEAST, batch_size)
        self.records = max(FIRST, self._least)
        """How many at most; never below `_least`."""

    def took(self, records: int, seconds: float) -> None:
        """A portion of `records` took `seconds`."""
        if seconds > LONGEST_S:
            self.records = max(self._least, int(records * LONGEST_S / seconds))
        elif records == self.records and seconds < LONGEST_S / 2:
            self.records *= 2
