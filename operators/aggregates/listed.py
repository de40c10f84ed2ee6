"""collect, largest and smallest, and where slots are merged and emptied also count_distinct and
approx_count_distinct: the values themselves, as a list.

A batch's values are thinned out before they are added, and all values when they have doubled, to
those that a result may still need: one of each distinct value or register, the n best. So state is
at most about twice what the results are made of.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...core.taking import valid_rows
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ...state.column_index import storage_type
from ...state.hash_columns import hash_column
from ...state.key_index import CompositeIndex, as_declared
from ...state.value_lists import ValueLists
from ...state.value_rows import ValueRows
from ...state.value_store import MakeStores
from ..columns import ranks
from .base import Accumulator, Source, Use, chosen
from .registers import Registers

AT_ONCE = 1 << 14
"""So many lists are estimated together: their registers are laid open for it."""


class ListedValues(Accumulator):
    """One column: the list's code, -1 when empty. As it is, for collect: nothing is thinned out."""

    combinable = False
    uses: ClassVar[frozenset[Use]] = frozenset((Use.SLICES, Use.SLOTS))

    keeps_all: ClassVar[bool] = True
    """Whether `_choose` chooses all there is."""

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64", -1)]

    def values(self) -> MakeStores:
        made = ValueRows if self.use is Use.SLICES else ValueLists
        choose = None if self.keeps_all else self._choose
        return {self.value: lambda: made(self._held_kind(), choose)}

    def lists(self, table: SlotTable) -> ValueLists | ValueRows:
        """The table's store of this column."""
        found = table.stores[self.value]
        assert isinstance(found, ValueLists | ValueRows)
        return found

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        valid = valid_rows(array)
        if valid is not None:
            rows = np.flatnonzero(valid)
            array, slots, numbers = take_column(array, pa.array(rows)), slots[rows], numbers[rows]
        values = self._kept_as(array)
        if not self.keeps_all:
            rows = self._choose(slots, values, numbers)
            values = take_column(values, pa.array(rows))
            slots, numbers = slots[rows], numbers[rows]
        self.lists(table).extend(table.column(self.value), slots, values, numbers)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        lists, last, start = self.lists(target), target.column(self.value), 0
        for store, codes in source.coded(self.value):
            into = slots[start : start + len(codes)]
            start += len(codes)
            assert isinstance(store, ValueLists | ValueRows)
            if store is lists and isinstance(lists, ValueLists):
                lists.join(last, into, codes)
                continue
            owners, values, numbers = store.unordered(codes)
            lists.extend(last, into[owners], values, numbers)

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        lists = chosen(table, self.value, at)
        if self.keeps_all:
            owners, values, _ = self.lists(table).read(lists)
        else:
            owners, values, numbers = self.lists(table).unordered(lists)
            rows = self._ordered(owners, values, numbers)
            owners, values = owners[rows], take_column(values, pa.array(rows))
        lengths = np.bincount(owners, minlength=len(lists))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        items = as_declared(values, self.kind)
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
        """The rows of the results, by list and then in their order there; of rows in any order."""
        return np.arange(len(owners))


class ListedBest(ListedValues):
    """largest and smallest."""

    keeps_all = False

    def _choose(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        return np.sort(self._ordered(owners, values, numbers))

    def _ordered(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        """The n best of each list, best first, equal ones by sequence number."""
        if not len(owners):
            return np.empty(0, dtype=np.int64)
        order = ranks(values)
        if self.aggregate.kind == "largest":
            order = -order
        by_slot = np.lexsort((numbers, order, owners))
        sorted_owners = owners[by_slot]
        begins = np.flatnonzero(np.diff(sorted_owners, prepend=sorted_owners[0] - 1))
        lengths = np.diff(begins, append=len(by_slot))
        place = np.arange(len(by_slot)) - np.repeat(begins, lengths)
        best: npt.NDArray[np.int64] = by_slot[place < self.aggregate.number]
        return best


class ListedDistinct(ListedValues):
    """count_distinct: one of each value."""

    uses = frozenset((Use.SLOTS,))
    keeps_all = False

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        lists = chosen(table, self.value, at)
        owners, values, numbers = self.lists(table).read(lists)
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

    uses = frozenset((Use.SLOTS,))
    keeps_all = False

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        lists, store = chosen(table, self.value, at), self.lists(table)
        counts = []
        for start in range(0, len(lists), AT_ONCE):
            some = lists[start : start + AT_ONCE]
            owners, hashes, _ = store.read(some)
            registers = Registers(self.aggregate.number)
            sketches = registers.make(len(some))
            registers.add_hashes(owners, numpy_of(hashes).view(np.uint64))
            counts.append(registers.sizes(sketches))
        return pa.array(np.concatenate(counts) if counts else np.empty(0, dtype=np.int64))

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
