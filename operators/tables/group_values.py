"""The values of each group with how often they occur: distinct counts, and extremes that may go.

One instance per expression, however many aggregates look at it through different conditions: the
values are looked up once. State (`CountedValues`) is every distinct value of every group, as pairs;
those that are no more go when the groups are renumbered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ...core.errors import StateError
from ...state.column_face import SlotTable
from ...state.hash_columns import validity_of
from ...state.stores import CountedFace
from ..columns import storage
from ..order_words import value_words
from .grown import fill_to
from .stored_values import StoredValues

PART = 1 << 20
"""Values whose order words are made at a time."""


class GroupValues(StoredValues):
    """`views` conditions see the values each with counts of its own; `extremes`: (view, largest).

    Made from the stored pairs: per pair `_words` (order words, for types that have lasting ones)
    and `_links`; per group `_distinct[view]`, `_best[extreme]` (a pair, -1 for none), `_heads`."""

    def __init__(self, stored: CountedFace, extremes: Sequence[tuple[int, bool]]) -> None:
        self._stored = stored
        self._extremes = list(extremes)
        self._lasting = storage(stored.kind) is not None
        self._forget_found()

    def _forget_found(self) -> None:
        self._words: Int64s = np.empty(0, dtype=np.int64)
        self._links: Int64s = np.empty(0, dtype=np.int64)
        self._heads: Int64s = np.empty(0, dtype=np.int64)
        self._distinct: list[Int64s] = [
            np.empty(0, dtype=np.int64) for _ in range(self._stored.views)
        ]
        self._best: list[Int64s] = [np.empty(0, dtype=np.int64) for _ in self._extremes]

    def __len__(self) -> int:
        """Pairs, those that are no more included."""
        return len(self._stored)

    def own(self, table: SlotTable) -> None:
        self._stored.own(table)
        self._find(len(table))

    def keep(self, groups: Int64s) -> None:
        self._stored.keep(groups)
        self._forget_found()
        self._find(len(groups))

    def grow(self, groups: int) -> None:
        self._heads = fill_to(self._heads, groups, -1)
        self._distinct = [fill_to(array, groups, 0) for array in self._distinct]
        self._best = [fill_to(array, groups, -1) for array in self._best]

    def fold(self, groups: Int64s, array: pa.Array, masks: Sequence[Bools], sign: int) -> bool:
        from ..kernels import values

        if array.null_count:
            present = validity_of(array)
            rows = np.flatnonzero(present)
            groups, array = groups[rows], take_column(array, pa.array(rows))
            masks = [mask[rows] if len(mask) else mask for mask in masks]
        pairs = self._pairs_of(groups, array)
        below = False
        for view, mask in enumerate(masks):
            counts, distinct = self._stored.counts(view), self._distinct[view]
            below |= values.count_values(groups, pairs, mask, sign, counts, distinct)
        if sign > 0 and self._lasting:
            for (view, largest), best in zip(self._extremes, self._best, strict=True):
                values.raise_extremes(groups, pairs, masks[view], self._words, largest, best)
        return below

    def settle(self, groups: Int64s) -> None:
        from ..kernels import values

        for (view, largest), best in zip(self._extremes, self._best, strict=True):
            counts = self._stored.counts(view)
            if self._lasting:
                args = (groups, self._heads, self._links, counts, self._words, largest, best)
                values.find_extremes(*args)
            else:
                self._rank(groups, counts, largest, best)

    def distinct(self, view: int, groups: Int64s) -> pa.Array:
        return pa.array(self._distinct[view][groups])

    def extreme(self, index: int, groups: Int64s) -> pa.Array:
        pairs = self._best[index][groups]
        known = pairs >= 0
        if known.all():
            return self._stored.values_of(pairs)
        at = np.cumsum(known) - 1
        return take_column(self._stored.values_of(pairs[known]), pa.array(at, mask=~known))

    def forget(self, groups: Int64s) -> None:
        from ..kernels import values

        for view, distinct in enumerate(self._distinct):
            counts = self._stored.counts(view)
            gone = self._collect(values.collect_pairs, groups, counts)
            self._stored.touch(gone)
            counts[gone] = 0
            distinct[groups] = 0
        for best in self._best:
            best[groups] = -1

    def _find(self, groups: int) -> None:
        """Make what is not stored, for so many groups."""
        from ..kernels import values

        self.grow(groups)
        total = len(self._stored)
        if not total:
            return
        self._chain(0)
        owners, pairs = self._stored.slots_of(slice(total)), np.arange(total)
        for view, distinct in enumerate(self._distinct):
            present = self._stored.counts(view)[:total] != 0
            distinct += np.bincount(owners[present], minlength=len(distinct))
        for (view, largest), best in zip(self._extremes, self._best, strict=True):
            if self._lasting:
                present = self._stored.counts(view)[:total] != 0
                values.raise_extremes(owners, pairs, present, self._words, largest, best)
        if not self._lasting:
            self.settle(np.unique(owners))

    def _pairs_of(self, groups: Int64s, array: pa.Array) -> Int64s:
        """The pair of each row; values are not null."""
        first = len(self._stored)
        pairs = self._stored.pairs(groups, array)
        if len(self._stored) > first:
            self._chain(first)
        return pairs

    def _chain(self, first: int) -> None:
        """Chain the pairs from `first` on to their groups."""
        from ..kernels import values

        total = len(self._stored)
        self._links = fill_to(self._links, total, -1)
        values.chain_pairs(
            self._stored.slots_of(slice(first, total)), first, self._heads, self._links
        )
        if self._extremes and self._lasting:
            self._words = fill_to(self._words, total, 0)
            for start in range(first, total, PART):
                some = slice(start, min(start + PART, total))
                self._words[some] = value_words(self._stored.values_of(some))

    def _rank(self, groups: Int64s, counts: Int64s, largest: bool, best: Int64s) -> None:
        """Extremes of values without lasting words, by ranking all values of these groups."""
        from ..kernels import values

        pairs = self._collect(values.collect_pairs, groups, counts)
        best[groups] = -1
        words = value_words(self._stored.values_of(pairs))
        order = np.argsort(words if largest else -words, kind="stable")
        pairs = pairs[order]
        best[self._stored.slots_of(pairs)] = pairs

    def _collect(self, collect: object, groups: Int64s, counts: Int64s) -> Int64s:
        assert callable(collect)
        out = np.empty(max(1024, 2 * len(groups)), dtype=np.int64)
        total = collect(groups, self._heads, self._links, counts, out)
        if total > len(out):
            out = np.empty(total, dtype=np.int64)
            collect(groups, self._heads, self._links, counts, out)
        return out[:total]


def too_much_taken(operator: str, subtask: int, what: str) -> StateError:
    """More was retracted than was ever there."""
    return StateError(
        f"operator '{operator}', subtask {subtask}: {what} was retracted more often than it was "
        "added: the input is no complete changelog (an upsert changelog lacks -U)"
    )
