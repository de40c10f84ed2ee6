"""Sets of Arrow values under integer codes, which only grow: for distinct counts.

It is to sets what `ValueLists` is to lists. How many values a set has is always known. A set may
take in those of other stores, which stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ..core.arrays import Int64s, Slots
from ..core.growing import GrowingList
from .column_index import storage_type
from .rows.texts import is_text, wide_text
from .seen_kernels import see_pairs
from .seen_pairs import SeenPairs
from .value_store import Codes, Values, codes_by, lists_by

_ALL = np.empty(0, dtype=np.bool_)


class ValueSets:
    """Invariant: `_sizes` has the number of pairs of each set in `_pairs`. No set is forgotten but
    by who says which ones stay (`compact`), and that pays for looking at all of them."""

    crowded = False

    def __init__(self, kind: pa.DataType) -> None:
        plain = storage_type(kind)
        item = wide_text(plain) if is_text(plain) else plain
        self.wide = pa.large_list(item)
        """The type of whole sets as `freeze` gives them."""
        self._kind = kind
        self._pairs = SeenPairs(kind, 1)
        self._sizes = GrowingList(np.int64, 0)

    def __len__(self) -> int:
        """Sets."""
        return self._sizes.length

    def sizes(self, sets: Codes) -> Int64s:
        """How many values each has; 0 for -1."""
        sizes: Int64s = np.append(self._sizes.used, 0)[sets]
        return sizes

    def make(self, count: int) -> Codes:
        """New sets, empty."""
        first = len(self)
        self._sizes.extend(count)
        return np.arange(first, len(self))

    def add(self, sets: Codes, values: pa.Array) -> None:
        """Put a value, not null, into each of these sets."""
        self._add(sets, self._pairs.codes(values))

    def unite(self, sets: Codes, other: Values) -> None:
        """Put the values of another store's set i into sets[i]; -1: leave them out."""
        assert isinstance(other, ValueSets)
        owners, codes = other._pairs.pairs()
        into = sets[owners]
        if (into < 0).any():
            codes, into = codes[into >= 0], into[into >= 0]
        if len(codes):
            mine = self._pairs.codes(other._pairs.values())
            self._add(into, mine[codes])

    def freeze(self) -> Callable[[Codes], pa.Array]:
        """What gives whole sets, null for -1, as they are now, on any thread."""
        count, frozen = len(self), self._pairs.freeze(self.wide.value_type)

        def sets_of(sets: Codes) -> pa.Array:
            owners, values, _ = frozen()
            items = values.take(pa.array(np.argsort(owners, kind="stable")))
            return lists_by(owners, items, count, sets)

        return sets_of

    def append(self, sets: pa.Array) -> Codes:
        """Whole sets as `freeze` gave them; -1 for null."""
        codes, owners = codes_by(sets, self.make)
        self.add(owners, sets.flatten())
        return codes

    def stored(self, sets: Codes) -> pa.Array:
        """As of `freeze`, now. Looks at all sets, however few are asked for."""
        place = np.full(len(self) + 1, -1, dtype=np.int64)
        place[sets] = np.arange(len(sets))
        place[-1] = -1
        owners, codes = self._pairs.pairs()
        mine = np.flatnonzero(place[owners] >= 0)
        owners, codes = place[owners[mine]], codes[mine]
        by_owner = np.argsort(owners, kind="stable")
        items = self._pairs.values_of(codes[by_owner]).cast(self.wide.value_type)
        there = np.where(sets < 0, -1, np.arange(len(sets)))
        return lists_by(owners, items, len(sets), there)

    def compact(self, codes: Codes) -> None:
        """Forget all but these sets, which are rewritten in place."""
        live = np.flatnonzero(codes >= 0)
        if len(live) == len(self):
            return
        kept = self.stored(codes[live])
        self._pairs = SeenPairs(self._kind, 1)
        self._sizes = GrowingList(np.int64, 0)
        codes[live] = self.append(kept)

    @property
    def nbytes(self) -> int:
        return self._pairs.nbytes + self._pairs.nbytes_of_values + self._sizes.array.nbytes

    def _add(self, sets: Slots, codes: Slots) -> None:
        at = self._pairs.find(sets, codes)
        seen, bit = self._pairs.bits(0)
        see_pairs(sets, at, _ALL, bit, seen, self._sizes.array)
