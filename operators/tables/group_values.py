"""The values of each group with how often they occur: distinct counts, and extremes that may go.

One instance per expression, however many aggregates look at it through different conditions: the
values are looked up once. Values are numbered (codes), and so are pairs of group and value. State
is every distinct value of every group; pairs that are no more go when the groups are renumbered.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.batch import take_column
from ...core.errors import StateError
from ...state.column_index import ALL_VALID, WordIndex, storage_type
from ...state.hash_columns import validity_of
from ...state.key_index import make_column_index
from ...state.rows.slab import RowTable
from ..columns import storage
from ..windows.slices import Int64s
from .base import Bools
from .grown import fill_to
from .order_words import value_words

CODE_BITS = 32


class GroupValues:
    """`views` conditions see the values each with counts of its own; `extremes`: (view, largest).

    Per pair: `_counts[view]`, `_words` (order words, for types that have lasting ones), `_links`.
    Per group: `_distinct[view]`, `_best[extreme]` (a pair, -1 for none), `_heads`."""

    def __init__(self, kind: pa.DataType, views: int, extremes: Sequence[tuple[int, bool]]) -> None:
        self.kind = kind
        self._views = views
        self._extremes = list(extremes)
        self._lasting = storage(kind) is not None
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._index = make_column_index(self.kind)
        self._pairs = WordIndex(pa.int64())
        self._values = RowTable(
            "values", pa.schema([pa.field("v", self.kind)]), _no_groups, ordered=False
        )
        empty = [np.empty(0, dtype=np.int64) for _ in range(3)]
        self._words, self._links, self._heads = empty
        self._counts = [np.empty(0, dtype=np.int64) for _ in range(self._views)]
        self._distinct = [np.empty(0, dtype=np.int64) for _ in range(self._views)]
        self._best = [np.empty(0, dtype=np.int64) for _ in self._extremes]

    def __len__(self) -> int:
        """Pairs, those that are no more included."""
        return len(self._pairs)

    def grow(self, groups: int) -> None:
        self._heads = fill_to(self._heads, groups, -1)
        self._distinct = [fill_to(array, groups, 0) for array in self._distinct]
        self._best = [fill_to(array, groups, -1) for array in self._best]

    def fold(self, groups: Int64s, array: pa.Array, masks: Sequence[Bools], sign: int) -> bool:
        """Add (or with sign -1 take back) each row's value to the views whose mask is true there
        (empty: everywhere); nulls are no values. Returns whether more was taken than there was."""
        from ..kernels import values

        if array.null_count:
            present = validity_of(array)
            rows = np.flatnonzero(present)
            groups, array = groups[rows], take_column(array, pa.array(rows))
            masks = [mask[rows] if len(mask) else mask for mask in masks]
        pairs = self._pairs_of(groups, array)
        below = False
        for view, mask in enumerate(masks):
            args = (groups, pairs, mask, sign, self._counts[view], self._distinct[view])
            below |= values.count_values(*args)
        if sign > 0 and self._lasting:
            for (view, largest), best in zip(self._extremes, self._best, strict=True):
                values.raise_extremes(groups, pairs, masks[view], self._words, largest, best)
        return below

    def settle(self, groups: Int64s) -> None:
        """Find the extremes of these groups, distinct, after a batch is folded."""
        from ..kernels import values

        for (view, largest), best in zip(self._extremes, self._best, strict=True):
            counts = self._counts[view]
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
            return self._read(pairs)
        at = np.cumsum(known) - 1
        return take_column(self._read(pairs[known]), pa.array(at, mask=~known))

    def forget(self, groups: Int64s) -> None:
        """These groups have no values any more."""
        from ..kernels import values

        for view, counts in enumerate(self._counts):
            counts[self._collect(values.collect_pairs, groups, counts)] = 0
            self._distinct[view][groups] = 0
        for best in self._best:
            best[groups] = -1

    def save(self) -> tuple[Int64s, pa.Array, list[Int64s]]:
        """Group, value and the views' counts of each pair that is."""
        total = len(self._pairs)
        counts = [array[:total] for array in self._counts]
        live = np.flatnonzero(np.logical_or.reduce([array != 0 for array in counts]))
        groups = self._pairs.words()[live] & ((1 << CODE_BITS) - 1)
        return groups, self._read(live), [array[live] for array in counts]

    def restore(self, groups: Int64s, array: pa.Array, counts: Sequence[Int64s]) -> None:
        """Into a cleared instance, grown to these groups: what `save` gave."""
        from ..kernels import values

        pairs = self._pairs_of(groups, array)
        for view, stored in enumerate(counts):
            self._counts[view][pairs] = stored
            self._distinct[view] += np.bincount(
                groups[stored != 0], minlength=len(self._distinct[view])
            )
        for (view, largest), best in zip(self._extremes, self._best, strict=True):
            if self._lasting:
                present = counts[view] != 0
                values.raise_extremes(groups, pairs, present, self._words, largest, best)
        if not self._lasting:
            self.settle(np.unique(groups))

    def _pairs_of(self, groups: Int64s, array: pa.Array) -> Int64s:
        """The pair of each row; values are not null."""
        from ..kernels import values

        known = len(self._index)
        codes = self._index.upsert(array)
        if len(self._index) > known:
            self._values.add(pa.RecordBatch.from_arrays([_first_of(codes, known, array)], ["v"]))
        first = len(self._pairs)
        pairs = self._pairs.upsert_words((codes << CODE_BITS) | groups, ALL_VALID)
        total = len(self._pairs)
        if total > first:
            self._grow_pairs(total)
            words = self._pairs.words()[first:total]
            new_groups = words & ((1 << CODE_BITS) - 1)
            values.chain_pairs(new_groups, first, self._heads, self._links)
            if self._lasting and self._extremes:
                self._words[first:total] = value_words(self._values.column(0, words >> CODE_BITS))
        return pairs

    def _grow_pairs(self, total: int) -> None:
        self._links = fill_to(self._links, total, -1)
        self._counts = [fill_to(array, total, 0) for array in self._counts]
        if self._extremes:
            self._words = fill_to(self._words, total, 0)

    def _read(self, pairs: Int64s) -> pa.Array:
        return self._values.column(0, self._pairs.words()[pairs] >> CODE_BITS)

    def _rank(self, groups: Int64s, counts: Int64s, largest: bool, best: Int64s) -> None:
        """Extremes of values without lasting words, by ranking all values of these groups."""
        from ..kernels import values

        pairs = self._collect(values.collect_pairs, groups, counts)
        best[groups] = -1
        words = value_words(self._read(pairs))
        order = np.argsort(words if largest else -words, kind="stable")
        pairs = pairs[order]
        best[self._pairs.words()[pairs] & ((1 << CODE_BITS) - 1)] = pairs

    def _collect(self, collect: object, groups: Int64s, counts: Int64s) -> Int64s:
        assert callable(collect)
        out = np.empty(max(1024, 2 * len(groups)), dtype=np.int64)
        total = collect(groups, self._heads, self._links, counts, out)
        if total > len(out):
            out = np.empty(total, dtype=np.int64)
            collect(groups, self._heads, self._links, counts, out)
        return out[:total]


def _first_of(codes: Int64s, known: int, array: pa.Array) -> pa.Array:
    """The values of the new codes known, known + 1, ..., which appear in this order."""
    before = np.empty(len(codes), dtype=np.int64)
    before[0] = known - 1
    np.maximum.accumulate(np.maximum(codes[:-1], known - 1), out=before[1:])
    plain = storage_type(array.type)
    wide = array if array.type == plain else array.cast(plain)
    return wide.take(pa.array(np.flatnonzero(codes > before)))


def _no_groups(rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
    return np.zeros(rows.num_rows, dtype=np.int32)


def too_much_taken(operator: str, subtask: int, what: str) -> StateError:
    """More was retracted than was ever there."""
    return StateError(
        f"operator '{operator}', subtask {subtask}: {what} was retracted more often than it was "
        "added: the input is no complete changelog (an upsert changelog lacks -U)"
    )
