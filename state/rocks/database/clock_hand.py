"""What leaves memory next: a hand goes over all places, and takes those not asked for since it came
by (the clock algorithm, which approximates least recently used)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ....core.arrays import Bools, Slots


class ClockHand:
    """Of one table of places 0, 1, ...; the table keeps their marks, and sets them when a place is
    asked for."""

    def __init__(self) -> None:
        self.at = 0

    def take(
        self,
        most: int,
        count: int,
        marks: npt.NDArray[np.bool_],
        may_leave: Callable[[int, int], Bools],
    ) -> Slots:
        """Up to `most` of the first `count` places, in the order in which the hand comes by. It
        clears the marks that it passes, and sets those of what it takes, so that it is not taken
        again. `may_leave`: which places from, to (exclusive) hold something."""
        found: list[Slots] = []
        left = 2 * count  # at the second time round nothing has been asked for
        while most > 0 and left > 0:
            start = self.at if self.at < count else 0
            stop = min(start + max(4 * most, 1024), start + left, count)
            places = start + np.flatnonzero(~marks[start:stop] & may_leave(start, stop))
            if len(places) > most:
                places = places[:most]
                stop = int(places[-1]) + 1
            marks[start:stop] = False
            marks[places] = True
            left -= stop - start
            most -= len(places)
            self.at = stop
            found.append(places)
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def moved(self, kept: Slots) -> None:
        """Only these places are left, in this order, ascending, and are numbered anew."""
        self.at = int(np.searchsorted(kept, self.at))
