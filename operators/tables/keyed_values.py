"""The values of each group where they may lie elsewhere than in memory: what `GroupValues` and
`DistinctValues` do, over values that are found by their keys (`KeyedValuesFace`).

A group's extremes are held in state beside its counts. One that has gone is looked for among all
values of the group, once for each batch that takes it away.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ...core.taking import null_array
from ...state.column_face import SlotTable
from ...state.hash_columns import validity_of
from ...state.key_index import as_declared
from ...state.stores import KeyedValuesFace
from ..order_words import value_words
from .grown import fill_to
from .stored_values import StoredValues


class KeyedGroupValues(StoredValues):
    """`extremes`: (view, largest). `lasting`: values only come, and are counted once."""

    def __init__(
        self, stored: KeyedValuesFace, extremes: Sequence[tuple[int, bool]], lasting: bool
    ) -> None:
        self._stored = stored
        self._extremes = list(extremes)
        self._lasting = lasting
        self._heads: Int64s = np.empty(0, dtype=np.int64)
        """Of the groups of this batch, by group."""
        self._recalled: list[Int64s] = []

    def own(self, table: SlotTable) -> None:
        self._table = table

    def keep(self, groups: Int64s) -> None:
        """Values are found by keys."""

    def grow(self, groups: int) -> None:
        self._heads = fill_to(self._heads, groups, -1)

    def recall(self, groups: Int64s) -> None:
        self._heads[groups] = heads = self._stored.heads(self._keys(groups))
        self._recalled.append(heads)
        self.settle(groups)  # restored groups do not know their extremes

    def fold(self, groups: Int64s, array: pa.Array, masks: Sequence[Bools], sign: int) -> bool:
        if array.null_count:
            rows = np.flatnonzero(validity_of(array))
            groups, array = groups[rows], take_column(array, pa.array(rows))
            masks = [mask[rows] if len(mask) else mask for mask in masks]
        if not len(groups):
            return False
        heads = self._heads[groups]
        pairs = self._stored.pairs(heads, array)
        if self._lasting:
            self._see(heads, pairs, masks)
            return False
        return self._count(heads, pairs, masks, sign)

    def settle(self, groups: Int64s) -> None:
        heads = self._heads[groups]
        for index, (view, largest) in enumerate(self._extremes):
            some = self._stored.counts(view)[heads] > 0
            lost = some & ~self._stored.holds(index, heads)
            if lost.any():
                self._find(index, view, largest, heads[lost])

    def distinct(self, view: int, groups: Int64s) -> pa.Array:
        return pa.array(self._stored.counts(view)[self._heads[groups]])

    def extreme(self, index: int, groups: Int64s) -> pa.Array:
        return as_declared(self._stored.held(index, self._heads[groups]), self._stored.kind)

    def forget(self, groups: Int64s) -> None:
        if len(groups):
            self.forget_keys(self._keys(groups))

    def forget_keys(self, keys: pa.RecordBatch) -> None:
        heads = self._stored.find_heads(keys)
        heads = heads[heads >= 0]
        if len(heads):
            here = [self._here(heads, view) for view in range(self._stored.views)]
            self._stored.release(heads, np.unique(np.concatenate(here)))

    def tidy(self) -> None:
        heads, self._recalled = self._recalled, []
        if heads:
            self._stored.tidy(np.unique(np.concatenate(heads)))

    def _keys(self, groups: Int64s) -> pa.RecordBatch:
        keys = self._table.take_keys(groups)
        return pa.RecordBatch.from_arrays(keys, names=[str(at) for at in range(len(keys))])

    def _see(self, heads: Int64s, pairs: Int64s, masks: Sequence[Bools]) -> None:
        """Each view counts pairs that are new to it once; what is known is not written."""
        stored = self._stored
        distinct = np.unique(pairs)
        before = stored.there(distinct)
        for view, mask in enumerate(masks):
            counts = stored.counts(view)
            unseen = counts[pairs] == 0
            rows = np.flatnonzero(unseen & mask if len(mask) else unseen)
            seen, first = np.unique(pairs[rows], return_index=True)
            owners = heads[rows[first]]
            stored.touch(seen)
            stored.touch(owners)
            counts[seen] = 1
            np.add.at(counts, owners, 1)
        stored.settle(distinct, before)

    def _count(self, heads: Int64s, pairs: Int64s, masks: Sequence[Bools], sign: int) -> bool:
        from ..kernels import values

        stored = self._stored
        distinct = np.unique(pairs)
        before = stored.there(distinct)
        stored.touch(distinct)
        stored.touch(heads)
        # A group of which some value is known, and no extreme, is to be searched: see `settle`.
        known = [
            stored.holds(index, heads) | (stored.counts(view)[heads] == 0)
            for index, (view, _) in enumerate(self._extremes)
        ]
        below = False
        for view, mask in enumerate(masks):
            counts = stored.counts(view)
            below |= values.count_values(heads, pairs, mask, sign, counts, counts)
        for index, (view, largest) in enumerate(self._extremes):
            rows = known[index]
            if len(masks[view]):
                rows = rows & masks[view]
            if sign > 0:
                self._raise(index, largest, heads[rows], pairs[rows])
            else:
                self._lower(index, view, heads[rows], pairs[rows])
        stored.settle(distinct, before)
        return below

    def _raise(self, index: int, largest: bool, heads: Int64s, pairs: Int64s) -> None:
        """These pairs were added; their heads' extremes are known."""
        if not len(pairs):
            return
        stored = self._stored
        pairs, first = np.unique(pairs, return_index=True)
        owners = np.unique(heads)
        held = stored.held(index, owners)
        there = np.flatnonzero(validity_of(held))
        whose = np.concatenate([owners[there], heads[first]])
        held = held.take(pa.array(there))
        offered = pa.concat_arrays([held, stored.values_of(pairs)])
        best = _best(whose, offered, largest)
        new = best[best >= len(there)]
        if len(new):
            stored.hold(index, whose[new], offered.take(pa.array(new)))

    def _lower(self, index: int, view: int, heads: Int64s, pairs: Int64s) -> None:
        """These pairs were taken back: the extremes among those that are no more are unknown."""
        stored = self._stored
        gone = stored.counts(view)[pairs] == 0
        pairs, first = np.unique(pairs[gone], return_index=True)
        if not len(pairs):
            return
        owners = heads[gone][first]
        both = pa.concat_arrays([stored.held(index, owners), stored.values_of(pairs)])
        words = value_words(both)
        lost = np.unique(owners[words[: len(owners)] == words[len(owners) :]])
        stored.hold(index, lost, null_array(len(lost), both.type))

    def _find(self, index: int, view: int, largest: bool, heads: Int64s) -> None:
        """The extremes of these groups, among all of their values."""
        stored = self._stored
        pairs = self._here(heads, view)
        whose, values = stored.heads_of(pairs), stored.values_of(pairs)
        best = _best(whose, values, largest)
        for owners, more, counts in stored.elsewhere(heads):
            rows = np.flatnonzero(counts[view])
            whose = np.concatenate([whose[best], owners[rows]])
            values = pa.concat_arrays(
                [take_column(values, pa.array(best)), more.take(pa.array(rows))]
            )
            best = _best(whose, values, largest)
        whose, values = whose[best], values.take(pa.array(best))
        stored.touch(whose)
        stored.hold(index, whose, values)

    def _here(self, heads: Int64s, view: int) -> Int64s:
        """The pairs of these heads that have slots, and count something for a view."""
        from ..kernels import values

        links, counts = self._stored.links, self._stored.counts(view)
        out = np.empty(max(1024, 2 * len(heads)), dtype=np.int64)
        total = values.collect_pairs(heads, links, links, counts, out)
        if total > len(out):
            out = np.empty(total, dtype=np.int64)
            values.collect_pairs(heads, links, links, counts, out)
        return out[:total]


def _best(whose: Int64s, values: pa.Array, largest: bool) -> Int64s:
    """The row of the extreme of each owner; of equal ones the first."""
    words = value_words(values)
    order = np.lexsort((-np.arange(len(words)), words if largest else ~words, whose))
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = np.diff(whose[order]) != 0
    return order[last]
