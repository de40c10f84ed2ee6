"""Which rows of two sides belong together, in pieces of bounded size.

Rows are given by slots: equal numbers are equal keys, NO_ROW is a key that equals none (null). A
key that is frequent on both sides gives a product, which is never held as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...core.arrays import Int64s
from ...core.joined_columns import NO_ROW

Pairs = tuple[Int64s, Int64s]
"""(rows of the left side, rows of the right side), NO_ROW where a side is missing."""


def join_rows(how: str, left: Int64s, right: Int64s, slots: int, limit: int) -> Iterator[Pairs]:
    """The pairs that a join of kind `how` consists of, at most `limit` at a time; `slots` is
    greater than every slot. Semi and anti joins give left rows with NO_ROW."""
    grouped = _Grouped(right, slots)
    counts = grouped.counts(left)
    if how in ("semi", "anti"):
        yield from _alone(np.flatnonzero((counts > 0) == (how == "semi")), True, limit)
        return
    yield from grouped.pairs(left, counts, limit)
    if how in ("left", "full"):
        yield from _alone(np.flatnonzero(counts == 0), True, limit)
    if how in ("right", "full"):
        met = np.zeros(slots + 1, dtype=np.bool_)  # The last is for NO_ROW.
        met[left] = True
        met[NO_ROW] = False
        yield from _alone(np.flatnonzero(~met[right]), False, limit)


class _Grouped:
    """The rows of one side by slot."""

    def __init__(self, rows: Int64s, slots: int) -> None:
        from ..kernels.pairs import group_rows

        placed = np.where(rows == NO_ROW, slots, rows)
        self.starts = np.zeros(slots + 2, dtype=np.int64)
        self.order = np.empty(len(rows), dtype=np.int64)
        group_rows(placed, self.starts, self.order)

    def counts(self, probing: Int64s) -> Int64s:
        """How many partners each probing row has."""
        sizes = np.diff(self.starts)
        sizes[NO_ROW] = 0
        counts: Int64s = sizes[probing]
        return counts

    def pairs(self, probing: Int64s, counts: Int64s, limit: int) -> Iterator[Pairs]:
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, limit):
            last = min(first + limit, total)
            low, high = np.searchsorted(ends, [first, last - 1], side="right").tolist()
            rows = np.arange(low, high + 1)
            begins = ends[rows] - counts[rows]
            taken = np.minimum(ends[rows], last) - np.maximum(begins, first)
            left = np.repeat(rows, taken)
            into = np.arange(first, last) - np.repeat(begins, taken)
            yield left, self.order[self.starts[probing[left]] + into]


def _alone(rows: Int64s, left: bool, limit: int) -> Iterator[Pairs]:
    for first in range(0, len(rows), limit):
        some = rows[first : first + limit]
        none = np.full(len(some), NO_ROW, dtype=np.int64)
        yield (some, none) if left else (none, some)
