"""The values of each group, where they only come: distinct counts of a stream that only inserts.

What `GroupValues` does for streams that take values back, in a fifth of the memory. State is which
views have seen each value of each group (`SeenValues`); the counts are made from it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ...core.growing import Growing
from ...state.column_face import SlotTable
from ...state.hash_columns import validity_of
from ...state.stores import SeenFace
from .stored_values import StoredValues


class DistinctValues(StoredValues):
    """`views` conditions see the values, each with counts of its own.

    `_distinct[view].array[group]` is the number of the group's values that the view has seen."""

    def __init__(self, stored: SeenFace) -> None:
        self._stored = stored
        self._distinct = [Growing(np.int64, 0) for _ in range(stored.views)]

    def __len__(self) -> int:
        """Pairs of group and value."""
        return len(self._stored)

    def own(self, table: SlotTable) -> None:
        self._stored.own(table)
        self.grow(len(table))
        if len(self._stored):
            for view, held in enumerate(self._distinct):
                slots = self._stored.slots_seen(view)
                held.array[:] = np.bincount(slots, minlength=len(held.array))

    def keep(self, groups: Int64s) -> None:
        """Groups of a stream that only inserts, without a ttl, all stay, with their numbers."""
        assert not len(groups) or int(groups[-1]) == len(groups) - 1

    def grow(self, groups: int) -> None:
        for counts in self._distinct:
            counts.reserve(groups)

    def fold(self, groups: Int64s, array: pa.Array, masks: Sequence[Bools], sign: int) -> bool:
        """Values are never taken back."""
        from ...state import seen_kernels

        assert sign > 0
        if array.null_count:
            rows = np.flatnonzero(validity_of(array))
            groups, array = groups[rows], take_column(array, pa.array(rows))
            masks = [mask[rows] if len(mask) else mask for mask in masks]
        at = self._stored.find(groups, array)
        for view, mask in enumerate(masks):
            seen, bit = self._stored.bits(view)
            seen_kernels.see_pairs(groups, at, mask, bit, seen, self._distinct[view].array)
        return False

    def settle(self, groups: Int64s) -> None:
        """There are no extremes to find."""

    def distinct(self, view: int, groups: Int64s) -> pa.Array:
        return pa.array(self._distinct[view].array[groups])

    def extreme(self, index: int, groups: Int64s) -> pa.Array:
        raise AssertionError("extremes are read from GroupValues")

    def forget(self, groups: Int64s) -> None:
        """Groups of a stream that only inserts, without a ttl, stay for ever."""
        assert not len(groups)
