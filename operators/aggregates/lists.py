"""Aggregates that give lists: collect, largest, smallest. Their rows are kept as Arrow rows.

collect keeps every value. largest and smallest keep the n best of each batch and key, and now and
then thin out what has gathered to the n best in all: a sort per batch, for values of any type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...state.backend import ColumnTable, KeyedStateBackend
from ..columns import ranks
from .base import Part
from .entries import KeptRows, KeyNumbers, numbers_of, present, values_of


class Listing(Part):
    """The rows of a key that `_order` picks, in its order. State: buffer `<prefix>_rows`."""

    def __init__(
        self,
        aggregate: Aggregate,
        prefix: str,
        kind: pa.DataType,
        keys: pa.Schema,
        state: KeyedStateBackend,
    ) -> None:
        self.aggregate = aggregate
        self._kind = kind
        self._numbers = KeyNumbers(state, keys)
        self._rows = KeptRows(f"{prefix}_rows", keys, [kind], state, self._choose)

    def fold(
        self,
        namespace: int,
        table: ColumnTable,
        keys: pa.RecordBatch,
        slots: Slots,
        array: pa.Array,
        numbers: Int64s,
    ) -> None:
        if array.null_count:
            numbers = numbers[numpy_of(array.is_valid())]
        keys, slots, array = present(keys, slots, array)
        self._keep(namespace, keys, slots, array, numbers)

    def _keep(
        self, namespace: int, keys: pa.RecordBatch, slots: Slots, array: pa.Array, numbers: Int64s
    ) -> None:
        """Store what may still be in a result."""
        self._rows.append(namespace, keys, [array], numbers)

    def _order(self, slots: Slots, values: pa.Array, numbers: Int64s) -> Int64s:
        """The rows of the results, by slot and then in their order there."""
        return np.lexsort((numbers, slots))

    def _choose(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        return np.arange(rows.num_rows)

    def result(
        self, table: ColumnTable, namespaces: Sequence[int], at: Slots | None = None
    ) -> pa.Array:
        rows = self._rows.of(namespaces)
        slots, size = self._numbers.of(table, self._rows.keys_of(rows)), len(table)
        if at is not None:
            place = np.full(max(size, int(slots.max(initial=-1)) + 1), len(at), dtype=np.int64)
            place[at] = np.arange(len(at))
            slots, size = place[slots], len(at)
        values, numbers = values_of(rows), numbers_of(rows)
        held = np.flatnonzero(slots < size)
        if len(held) < len(slots):
            slots, numbers = slots[held], numbers[held]
            values = take_column(values, pa.array(held))
        order = self._order(slots, values, numbers)
        lengths = np.bincount(slots[order], minlength=size)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = take_column(values, pa.array(order))
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=pa.list_(self._kind))

    def drop(self, namespace: int) -> None:
        self._rows.drop(namespace)


class Collected(Listing):
    """collect: everything, in order of arrival."""


class Best(Listing):
    """largest and smallest: the n best."""

    def _keep(
        self, namespace: int, keys: pa.RecordBatch, slots: Slots, array: pa.Array, numbers: Int64s
    ) -> None:
        at = np.sort(self._order(slots, array, numbers))
        best = pa.array(at)
        kept = [take_column(column, best) for column in keys.columns]
        keys = pa.RecordBatch.from_arrays(kept, schema=keys.schema)
        super()._keep(namespace, keys, slots, take_column(array, best), numbers[at])

    def _order(self, slots: Slots, values: pa.Array, numbers: Int64s) -> Int64s:
        return best_in_order(self.aggregate, slots, values, numbers)

    def _choose(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        slots = self._numbers.of(None, self._rows.keys_of(rows))
        return np.sort(self._order(slots, values_of(rows), numbers_of(rows)))


def best_in_order(
    aggregate: Aggregate, slots: Slots, values: pa.Array, numbers: Int64s
) -> npt.NDArray[np.int64]:
    """The rows of the n best values of each slot, best first, equal ones by sequence number."""
    if not len(slots):
        return np.empty(0, dtype=np.int64)
    order = ranks(values)
    if aggregate.kind == "largest":
        order = -order
    by_slot = np.lexsort((numbers, order, slots))
    sorted_slots = slots[by_slot]
    begins = np.flatnonzero(np.diff(sorted_slots, prepend=sorted_slots[0] - 1))
    lengths = np.diff(begins, append=len(by_slot))
    place = np.arange(len(by_slot)) - np.repeat(begins, lengths)
    best: npt.NDArray[np.int64] = by_slot[place < aggregate.number]
    return best
