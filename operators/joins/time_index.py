"""Where to find the rows of a key in an interval of time: see `kernels.intervals`.

Rows are numbered as they come. To forget the oldest is to count up `first`; the ring grows, and the
chains are made anew, only when it is full.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

FIRST_CAPACITY = 1024


class TimeIndex:
    """`next`: the next row's number; rows in first..next - 1 are held.

    Invariants: next - first <= capacity, a power of two; heads has twice as many cells."""

    def __init__(self, width: int) -> None:
        self._width = max(1, width)
        self.first = 0
        self.next = 0
        self._allocate(FIRST_CAPACITY)

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def capacity(self) -> int:
        return len(self._words)

    def insert(self, words: Int64s, stamps: Int64s) -> None:
        """Rows `next`, `next + 1`, ..."""
        from ..kernels.intervals import insert_rows

        if len(self) + len(words) > self.capacity:
            self._grow(len(self) + len(words))
        insert_rows(words, stamps, self.next, self._width, self._shift, *self._arrays())
        self.next += len(words)

    def probe(
        self, words: Int64s, stamps: Int64s, lower: int, upper: int, limit: int
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """All (probing row, row number) of one key with lower <= its time - the probing one's <=
        upper, about `limit` pairs at a time. Do not insert meanwhile."""
        from ..kernels.intervals import FOUND, ROW, probe_rows

        if not len(self):
            return
        progress = np.zeros(2, dtype=np.int64)
        size = limit
        while progress[ROW] < len(words):
            probing, found = np.empty(size, np.int64), np.empty(size, np.int64)
            probe_rows(
                words, stamps, lower, upper, self.first, self._width, self._shift,
                *self._arrays(), progress, probing, found,
            )  # fmt: skip
            count = int(progress[FOUND])
            if count:
                yield probing[:count], found[:count]
            elif progress[ROW] < len(words):
                size *= 2  # One row has more partners than that.

    def _arrays(self) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        return self._heads, self._words, self._stamps, self._links

    def _allocate(self, capacity: int) -> None:
        self._words = np.empty(capacity, dtype=np.int64)
        self._stamps = np.empty(capacity, dtype=np.int64)
        self._links = np.empty(capacity, dtype=np.int64)
        self._heads = np.full(2 * capacity, -1, dtype=np.int64)
        self._shift = 65 - len(self._heads).bit_length()

    def _grow(self, rows: int) -> None:
        at = np.arange(self.first, self.next) & (self.capacity - 1)
        words, stamps = self._words[at], self._stamps[at]
        self._allocate(1 << (2 * rows - 1).bit_length())
        self.next = self.first
        self.insert(words, stamps)
