"""One run of numbers per slot, in one arena: gathered and replaced for many slots at a time."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Int64s
from .grown import fill_to, ranges

_SPARE = 4096


class Runs:
    """Run of slot s: `_arena[_starts[s]:][:_sizes[s]]`. What is replaced becomes garbage; when it
    is more than what is in use, the arena is packed."""

    def __init__(self) -> None:
        self._arena = np.empty(0, dtype=np.int64)
        self._starts = np.empty(0, dtype=np.int64)
        self._sizes = np.empty(0, dtype=np.int64)
        self._used = 0
        self._slots = 0
        self._live = 0

    def grow(self, slots: int) -> None:
        """New slots have empty runs."""
        self._slots = slots
        self._starts = fill_to(self._starts, slots, 0)
        self._sizes = fill_to(self._sizes, slots, 0)

    def gather(self, slots: Int64s) -> tuple[Int64s, Int64s]:
        """The sizes of these slots' runs, and the runs one after the other."""
        sizes = self._sizes[slots]
        return sizes, self._arena[ranges(self._starts[slots], sizes)]

    def replace(self, slots: Int64s, sizes: Int64s, values: Int64s) -> None:
        """New runs for these slots, distinct."""
        self._live += len(values) - int(self._sizes[slots].sum())
        self._arena = fill_to(self._arena, self._used + len(values), 0)
        self._arena[self._used : self._used + len(values)] = values
        self._starts[slots] = self._used + np.cumsum(sizes) - sizes
        self._sizes[slots] = sizes
        self._used += len(values)
        if self._used > 2 * self._live + _SPARE:
            self._pack()

    def live(self) -> Int64s:
        """The slots whose runs are not empty."""
        return np.flatnonzero(self._sizes[: self._slots])

    def keep(self, slots: Int64s) -> None:
        """Only these slots, ascending, stay and are numbered from 0; the others have empty runs."""
        starts, sizes = self._starts[slots], self._sizes[slots]
        self._starts, self._sizes = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        self.grow(len(slots))
        self._starts[: len(slots)], self._sizes[: len(slots)] = starts, sizes

    def _pack(self) -> None:
        sizes, values = self.gather(np.arange(self._slots))
        self._arena = values
        self._starts[: self._slots] = np.cumsum(sizes) - sizes
        self._used = self._live = len(values)
