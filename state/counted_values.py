"""Values of slots that are counted up and down. See `slot_values`.

Values are numbered (codes), and so are pairs of slot and value, each for good: pairs that count
nothing any more go when the slots are renumbered (`keep`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from ..core.arrays import Int64s, Slots
from .backend import AccColumn
from .column_index import ALL_VALID, WordIndex, storage_type
from .key_index import make_column_index
from .rows.slab import RowTable
from .slot_columns import SlotColumns
from .slot_values import COUNT_PREFIX, SLOT_BITS, SLOT_MASK, Found, SlotValues
from .stores import CountedFace


class CountedValues(SlotValues, CountedFace):
    """Pair p is word p of `_pairs`. `_values` has the value of code c at position c."""

    def __init__(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> None:
        super().__init__(name, keys, kind, views)
        self._clear()

    def __len__(self) -> int:
        return len(self._pairs)

    def pairs(self, slots: Slots, values: pa.Array) -> Slots:
        known = len(self._index)
        codes = self._index.upsert(values)
        if len(self._index) > known:
            new = pa.RecordBatch.from_arrays([_first_of(codes, known, values)], ["v"])
            self._values.add(new)
        pairs = self._pairs.upsert_words((codes << SLOT_BITS) | slots, ALL_VALID)
        self._counts.reserve(len(self._pairs))
        self._counts.touch(pairs)
        return pairs

    def touch(self, pairs: Slots) -> None:
        self._counts.touch(pairs)

    def counts(self, view: int) -> Int64s:
        counts: Int64s = self._counts.array(f"{COUNT_PREFIX}{view}")
        return counts

    def slots_of(self, pairs: Slots | slice) -> Slots:
        slots: Slots = self._pairs.words()[pairs] & SLOT_MASK
        return slots

    def values_of(self, pairs: Slots | slice) -> pa.Array:
        return self._values.column(0, self._pairs.words()[pairs] >> SLOT_BITS)

    def keep(self, slots: Slots) -> None:
        total = len(self)
        counts = [self.counts(view)[:total] for view in range(self.views)]
        owners = self.slots_of(slice(total))
        place = np.minimum(np.searchsorted(slots, owners), max(len(slots) - 1, 0))
        live = np.logical_or.reduce([array != 0 for array in counts])
        live &= slots[place] == owners if len(slots) else False
        kept = np.flatnonzero(live)
        left = place[kept], self.values_of(kept), [array[kept] for array in counts]
        self._clear()
        if len(kept):
            self._fill(*left)

    @property
    def nbytes(self) -> int:
        words = self._pairs.words().nbytes
        return 4 * words + self._counts.nbytes + self._values.nbytes

    def _freeze(self) -> Callable[[], Found]:
        count = len(self)
        words, values = self._pairs.words(), self._values.freeze(self._name)
        frozen, names = self._counts.freeze(count), [c.name for c in self._counts.columns]

        def found() -> Found:
            arrays = frozen.arrays()
            counts = [arrays[name] for name in names]
            live = np.flatnonzero(np.logical_or.reduce([array != 0 for array in counts]))
            mine = words[live]
            known = values.column(0).combine_chunks()
            chosen = known.take(pa.array(mine >> SLOT_BITS))
            return mine & SLOT_MASK, chosen, [array[live] for array in counts]

        return found

    def _fill(self, slots: Slots, values: pa.Array, counts: Sequence[Int64s]) -> None:
        pairs = self.pairs(slots, values)
        for view, stored in enumerate(counts):
            self.counts(view)[pairs] = stored

    def _clear(self) -> None:
        self._index = make_column_index(self.kind)
        self._pairs = WordIndex(pa.int64())
        schema = pa.schema([pa.field("v", self.kind)])
        self._values = RowTable(self._name, schema, (), ordered=False)
        columns = [AccColumn(f"{COUNT_PREFIX}{view}", "int64") for view in range(self.views)]
        self._counts = SlotColumns(columns)


def _first_of(codes: Slots, known: int, array: pa.Array) -> pa.Array:
    """The values of the new codes known, known + 1, ..., which appear in this order."""
    before = np.empty(len(codes), dtype=np.int64)
    before[0] = known - 1
    np.maximum.accumulate(np.maximum(codes[:-1], known - 1), out=before[1:])
    plain = storage_type(array.type)
    wide = array if array.type == plain else array.cast(plain)
    return wide.take(pa.array(np.flatnonzero(codes > before)))
