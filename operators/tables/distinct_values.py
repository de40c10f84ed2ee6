"""The values of each group, where they only come: distinct counts of a stream that only inserts.

What `GroupValues` does for streams that take values back, in a fifth of the memory: that a view has
seen a value is one bit, and nothing has to be found again by its group. Values are numbered
(codes); a set holds the pairs of group and code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ...core.growing import Growing
from ...state.hash_columns import validity_of
from ...state.key_index import make_column_index
from .group_values import CODE_BITS

_FIRST = 1024
_LARGE = 1 << 17
"""So many cells or more grow by a quarter, not by as many: moving is cheap, in order of cells."""


class DistinctValues:
    """`views` conditions see the values, each with counts of its own.

    Invariants: `_count` of `_cells` are taken, three quarters at most; `_seen` has `_width` bytes
    a cell, a bit a view; `_distinct[view].array[group]` is the number of pairs with that bit."""

    def __init__(self, kind: pa.DataType, views: int) -> None:
        self.kind = kind
        self._views = views
        self._width = (views + 7) // 8
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._index = make_column_index(self.kind)
        self._cells: Int64s = np.zeros(_FIRST, dtype=np.int64)
        self._seen: npt.NDArray[np.uint8] = np.zeros(_FIRST * self._width, dtype=np.uint8)
        self._count = 0
        self._distinct = [Growing(np.int64, 0) for _ in range(self._views)]

    def __len__(self) -> int:
        """Pairs."""
        return self._count

    def grow(self, groups: int) -> None:
        for counts in self._distinct:
            counts.reserve(groups)

    def fold(self, groups: Int64s, array: pa.Array, masks: Sequence[Bools], sign: int) -> bool:
        """As `GroupValues.fold`; values are never taken back."""
        from ..kernels import seen_pairs

        assert sign > 0
        if array.null_count:
            rows = np.flatnonzero(validity_of(array))
            groups, array = groups[rows], take_column(array, pa.array(rows))
            masks = [mask[rows] if len(mask) else mask for mask in masks]
        words = (self._index.upsert(array) + 1) << CODE_BITS
        words |= groups
        self._reserve(self._count + len(words))
        at = np.empty(len(words), dtype=np.int64)
        self._count += seen_pairs.find_pairs(words, self._cells, at)
        for view, mask in enumerate(masks):
            counts = self._distinct[view].array
            seen_pairs.see_pairs(groups, at, mask, view, self._width, self._seen, counts)
        return False

    def settle(self, groups: Int64s) -> None:
        """There are no extremes to find."""

    def distinct(self, view: int, groups: Int64s) -> pa.Array:
        return pa.array(self._distinct[view].array[groups])

    def forget(self, groups: Int64s) -> None:
        """Groups of a stream that only inserts, without a ttl, stay for ever."""
        assert not len(groups)

    def save(self) -> tuple[Int64s, pa.Array, list[Int64s]]:
        """Group, value, and per view 1 where it has seen it, of each pair that any has seen."""
        live = np.flatnonzero(self._cells)
        bits = self._seen.reshape(-1, self._width)[live]
        shown = bits.any(axis=1)
        words, bits = self._cells[live[shown]], bits[shown]
        values = take_column(self._index.freeze()(), pa.array((words >> CODE_BITS) - 1))
        counts = [(bits[:, v >> 3] >> (v & 7) & 1).astype(np.int64) for v in range(self._views)]
        return words & ((1 << CODE_BITS) - 1), values, counts

    def restore(self, groups: Int64s, array: pa.Array, counts: Sequence[Int64s]) -> None:
        """Into a cleared instance, grown to these groups: what `save` gave."""
        self.fold(groups, array, [stored != 0 for stored in counts], 1)

    def _reserve(self, pairs: int) -> None:
        """Have room for so many."""
        from ..kernels import seen_pairs

        size = len(self._cells)
        if pairs > size // 4 * 3:
            cells, seen = self._cells, self._seen
            size = max(size + size // (1 if size < _LARGE else 4), pairs // 3 * 4 + 4)
            self._cells = np.zeros(size, dtype=np.int64)
            self._seen = np.zeros(size * self._width, dtype=np.uint8)
            seen_pairs.move_pairs(cells, seen, self._width, self._cells, self._seen)
