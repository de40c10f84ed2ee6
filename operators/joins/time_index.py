"""Where to find the rows of a key in an interval of time: see `kernels.intervals`.

Rows are numbered as they come. To forget the oldest is to count up `first`. No step costs more than
its rows: with each row the table grows by some cells, and rows lie in pages, which are used again
when all of theirs are forgotten. A page behind rows that are still held is used again when a sweep,
of a few cells per row, has been through the whole table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...core.arrays import Int64s
from ...core.elements import MIN_TIMESTAMP
from ...core.growing import GrowingList

FIRST_CELLS = 2048
CELLS = 2
"""Cells per row held: at most half of them are taken."""
SWEPT = 16
"""Cells swept per row that comes, while there is a sweep."""


class TimeIndex:
    """`next`: the next row's number; rows in first..next - 1 are held. `until`: rows up to this
    time are not asked for any more.

    Invariants: `_latest` has the pages with rows that are held, ascending, and the greatest time of
    each; `_heads` has all cells, at least CELLS per row of these."""

    def __init__(self, width: int) -> None:
        self._width = max(1, width)
        self.first = 0
        self.next = 0
        self.until = MIN_TIMESTAMP
        self._heads = GrowingList(np.int64, fill=-1, huge=True)
        self._heads.extend(FIRST_CELLS)
        self._ring = GrowingList(np.int64, huge=True)
        self._pages = np.full(8, -1, dtype=np.int64)
        self._latest: dict[int, int] = {}
        self._claimed = 0
        """Pages that have been made, those that are used again included."""
        self._free: list[int] = []
        """Places in the ring of pages without rows."""
        self._sweep: tuple[int, int, int] | None = None
        """A sweep under way: the next cell; the time up to which rows go, from pages before."""

    def __len__(self) -> int:
        return self.next - self.first

    @property
    def pages(self) -> int:
        """Pages that hold rows or have held some."""
        return len(self._latest) + len(self._free)

    def insert(self, words: Int64s, stamps: Int64s) -> None:
        """Rows `next`, `next + 1`, ..."""
        from ..kernels.intervals import insert_rows

        claimed = self._claimed
        self._make_room(stamps)
        insert_rows(words, stamps, self.next, self._width, self._heads.length, *self._arrays())
        self.next += len(words)
        self._split()
        if self._sweep is None and self._claimed > claimed:
            self._begin_sweep()
        if self._sweep is not None:
            self._go_on(self._sweep, SWEPT * len(words))

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
                words, stamps, lower, upper, self.first, self._width, self._heads.length,
                *self._arrays(), progress, probing, found,
            )  # fmt: skip
            count = int(progress[FOUND])
            if count:
                yield probing[:count], found[:count]
            elif progress[ROW] < len(words):
                size *= 2  # One row has more partners than that.

    def _arrays(self) -> tuple[Int64s, Int64s, Int64s]:
        return self._pages, self._heads.array, self._ring.array

    def _make_room(self, stamps: Int64s) -> None:
        """Give up the pages of forgotten rows; have some for rows of these times."""
        from ..kernels.intervals import BITS, PAGE

        while self._latest and (oldest := next(iter(self._latest))) + 1 <= self.first >> BITS:
            self._give_up(oldest)
        end = self.next + len(stamps)
        while self._claimed << BITS < end:
            self._claim()
        begin = self.next
        while begin < end:
            page = begin >> BITS
            stop = min(end, (page + 1) * PAGE)
            latest = int(stamps[begin - self.next : stop - self.next].max())
            self._latest[page] = max(self._latest[page], latest)
            begin = stop

    def _claim(self) -> None:
        from ..kernels.intervals import PAGE

        page, size = self._claimed, len(self._pages)
        oldest = next(iter(self._latest), page)
        if page - oldest >= size:
            pages = np.full(2 * size, -1, dtype=np.int64)
            for held in self._latest:
                pages[held % (2 * size)] = self._pages[held % size]
            self._pages, size = pages, 2 * size
        if not self._free:
            self._free.append(self._ring.length // (3 * PAGE))
            self._ring.extend(3 * PAGE)
        self._pages[page % size] = self._free.pop()
        self._latest[page] = MIN_TIMESTAMP
        self._claimed += 1

    def _give_up(self, page: int) -> None:
        del self._latest[page]
        self._free.append(int(self._pages[page % len(self._pages)]))

    def _split(self) -> None:
        from ..kernels.intervals import PAGE, split_cells

        cells = self._heads.length
        more = CELLS * min(len(self), len(self._latest) * PAGE) - cells
        if more > 0:
            self._heads.extend(more)
            split_cells(cells, cells + more, self.first, self._width, *self._arrays())

    def _begin_sweep(self) -> None:
        """If half of the pages, not counting the one at hand, have nothing that is asked for."""
        over = [page for page, latest in self._latest.items() if latest <= self.until]
        if over and 2 * len(over) >= len(self._latest) - 1:
            self._sweep = (0, self.until, self._claimed - 1)

    def _go_on(self, sweep: tuple[int, int, int], cells: int) -> None:
        from ..kernels.intervals import sweep_cells

        begin, until, before = sweep
        end = min(self._heads.length, begin + cells)
        sweep_cells(begin, end, self.first, until, *self._arrays())
        self._sweep = (end, until, before)
        if end == self._heads.length:
            pages = [page for page, at in self._latest.items() if page < before and at <= until]
            for page in pages:
                self._give_up(page)
            self._sweep = None
