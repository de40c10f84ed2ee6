"""count_distinct: the set of (key, value) pairs, and per key how many there are.

The count is an accumulator column that follows the set, so that reading it costs nothing; only a
window of several slices has to build the union of their sets when it fires.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...state.backend import AccColumn, ColumnTable, KeyedStateBackend
from ..kernels import distinct, scatter
from .base import Part, Read, chosen
from .entries import KeyNumbers, Pairs, present, take_rows


class DistinctCount(Part):
    """State: table `<prefix>_pairs`."""

    def __init__(
        self,
        aggregate: Aggregate,
        prefix: str,
        kind: pa.DataType,
        keys: pa.Schema,
        state: KeyedStateBackend,
    ) -> None:
        self.aggregate = aggregate
        self._count = f"{prefix}_value"
        self._pairs = Pairs(f"{prefix}_pairs", keys, kind, [], state)
        self._numbers = KeyNumbers(state, keys)

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self._count, "int64")]

    def fold(
        self,
        namespace: int,
        table: ColumnTable,
        keys: pa.RecordBatch,
        slots: Slots,
        array: pa.Array,
        numbers: Int64s,
    ) -> None:
        keys, slots, array = present(keys, slots, array)
        pairs = self._pairs.state.table(namespace)
        known = len(pairs)
        at = pairs.slots(self._pairs.rows(keys, array))
        distinct.count_new(slots, at, known, table.column(self._count))

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        """Right for a single source; `result` counts anew where there are several."""
        scatter.add_into(slots, read(self._count), target.column(self._count))

    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        if len(namespaces) == 1:
            return pa.array(chosen(table, self._count, at))
        rows = self._pairs.all(namespaces)
        slots = self._numbers.of(table, self._pairs.keys_of(rows))
        held = slots < len(table)
        if not held.all():
            where = np.flatnonzero(held)
            rows, slots = take_rows(rows, where), slots[where]
        counts = np.zeros(len(table), dtype=np.int64)
        distinct.count_new(slots, self._pairs.union().slots(rows), 0, counts)
        self._pairs.end_union()
        return pa.array(counts if at is None else counts[at])

    def drop(self, namespace: int) -> None:
        self._pairs.state.drop(namespace)
