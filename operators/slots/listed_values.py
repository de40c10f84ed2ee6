"""collect, count_distinct, approx_count_distinct, largest and smallest over slots that are merged,
emptied and used again (sessions, windows by count, panes): the values themselves, as a list.

A batch's values are thinned out before they are added, and all values when they have doubled, to
those that a result may still need: one of each distinct value or register, the n best. So state is
at most about twice what the results are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...state.backend import AccColumn, ColumnTable
from ...state.column_index import storage_type
from ...state.hash_columns import hash_column
from ...state.key_index import CompositeIndex, as_declared
from ...state.value_lists import Choose, ValueLists
from ..aggregates.base import Accumulator, Read, chosen
from ..aggregates.lists import best_in_order
from ..aggregates.sketches import REGISTERS, Blocks

AT_ONCE = 1 << 14
"""So many lists are estimated together: their registers are laid open for it."""


@dataclass(frozen=True)
class ListedValues(Accumulator):
    """One column: the list's code, -1 when empty. As it is, for collect: nothing is thinned out."""

    store: ValueLists = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", ValueLists(self._held_kind(), self._choose))

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64", -1)]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        rows: npt.NDArray[np.int64] | None = None
        if array.null_count:
            rows = np.flatnonzero(numpy_of(array.is_valid()))
            array, slots, numbers = take_column(array, pa.array(rows)), slots[rows], numbers[rows]
        values = self._kept_as(array)
        rows = self._choose(slots, values, numbers)
        if len(rows) < len(slots):
            values = take_column(values, pa.array(rows))
            slots, numbers = slots[rows], numbers[rows]
        self.store.extend(table.column(self.value), slots, values, numbers)

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        self.store.join(target.column(self.value), slots, read(self.value))

    def result(self, table: ColumnTable, at: Slots | None = None) -> pa.Array:
        lists = chosen(table, self.value, at)
        owners, values, numbers = self.store.read(lists)
        rows = self._ordered(owners, values, numbers)
        lengths = np.bincount(owners[rows], minlength=len(lists))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = as_declared(take_column(values, pa.array(rows)), self.kind)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=pa.list_(self.kind))

    def _held_kind(self) -> pa.DataType:
        """The type of the values that are listed."""
        return self.kind

    def _kept_as(self, array: pa.Array) -> pa.Array:
        return array

    def _choose(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        """The rows that a result may need, ascending; `owners` need not be."""
        return np.arange(len(owners))

    def _ordered(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        """The rows of the results, by list and then in their order there."""
        return np.arange(len(owners))


class ListedBest(ListedValues):
    """largest and smallest."""

    def _choose(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        return np.sort(self._ordered(owners, values, numbers))

    def _ordered(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        return best_in_order(self.aggregate, owners, values, numbers)


class ListedDistinct(ListedValues):
    """count_distinct: one of each value."""

    def result(self, table: ColumnTable, at: Slots | None = None) -> pa.Array:
        lists = chosen(table, self.value, at)
        owners, values, numbers = self.store.read(lists)
        rows = self._choose(owners, values, numbers)
        return pa.array(np.bincount(owners[rows], minlength=len(lists)))

    def _choose(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        kind = storage_type(values.type)
        index = CompositeIndex(pa.schema([("owner", pa.int64()), ("value", kind)]))
        pairs = index.upsert(
            [pa.array(owners), values if values.type == kind else values.cast(kind)]
        )
        known = np.maximum.accumulate(pairs)
        return np.flatnonzero(np.diff(known, prepend=-1) > 0)


class ListedRegisters(ListedValues):
    """approx_count_distinct: of each register the hash of the greatest rank."""

    def result(self, table: ColumnTable, at: Slots | None = None) -> pa.Array:
        lists = chosen(table, self.value, at)
        counts = [
            self._estimates(lists[start : start + AT_ONCE])
            for start in range(0, len(lists), AT_ONCE)
        ]
        return pa.array(np.concatenate(counts) if counts else np.empty(0, dtype=np.int64))

    def _estimates(self, lists: npt.NDArray[np.int64]) -> Int64s:
        owners, hashes, _ = self.store.read(lists)
        precision = self.aggregate.number
        blocks = Blocks(max(1, (1 << precision) // REGISTERS))
        blocks.reserve(len(lists), len(owners))
        blocks.add(numpy_of(hashes).view(np.uint64), owners, precision)
        return blocks.estimates(len(lists), precision)

    def _held_kind(self) -> pa.DataType:
        return pa.int64()

    def _kept_as(self, array: pa.Array) -> pa.Array:
        return pa.array(hash_column(array).view(np.int64))

    def _choose(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        hashes = numpy_of(values).view(np.uint64)
        precision = np.uint64(self.aggregate.number)
        registers = hashes >> (np.uint64(64) - precision)
        ranks = _ranks(hashes << precision)
        order = np.lexsort((-ranks, registers, owners))
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (np.diff(owners[order]) != 0) | (np.diff(registers[order]) != 0)
        return np.sort(order[first])


def _ranks(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The place of the first 1, from 1; 65 for none."""
    high, low = bits >> np.uint64(32), bits & np.uint64(0xFFFFFFFF)
    _, places = np.frexp(np.where(high > 0, high, low).astype(np.float64))
    found: npt.NDArray[np.int64] = 65 - places.astype(np.int64) - 32 * (high > 0)
    return found


_CLASSES: dict[str, Callable[[Aggregate, str, pa.DataType], ListedValues]] = {
    "collect": ListedValues,
    "largest": ListedBest,
    "smallest": ListedBest,
    "count_distinct": ListedDistinct,
    "approx_count_distinct": ListedRegisters,
}


def make_listed(aggregate: Aggregate, prefix: str, kind: pa.DataType) -> ListedValues | None:
    """The lists of an aggregate that keeps a varying number of values; None if it does not."""
    found = _CLASSES.get(aggregate.kind)
    return None if found is None else found(aggregate, prefix, kind)


__all__ = ["Choose", "ListedValues", "make_listed"]
