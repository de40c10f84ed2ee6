"""count_distinct and approx_count_distinct in slices, whose slots stay what they are: a set of
values per slot, or a sketch, that grows in place and is read by any number of windows."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...core.batch import take_column
from ...core.taking import valid_rows
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ...state.value_sets import ValueSets
from ...state.value_store import Codes, MakeStores, Values
from .base import Accumulator, Source, Use, chosen
from .registers import Registers


class Sets(Values, Protocol):
    """What tells how many values each of its codes has seen."""

    def __len__(self) -> int: ...
    def make(self, count: int) -> Codes:
        """New codes, which have seen nothing."""
        ...

    def add(self, codes: Codes, values: pa.Array) -> None:
        """Each sees a value, not null."""
        ...

    def unite(self, codes: Codes, other: Values) -> None:
        """codes[i] sees what code i of another such store has seen; nobody does where it is -1."""
        ...

    def sizes(self, codes: Codes) -> Int64s:
        """How many values each has seen; 0 for -1."""
        ...


class DistinctCount(Accumulator):
    """One column: the code of what the slot has seen, -1 for nothing."""

    combinable: ClassVar[bool] = False
    uses: ClassVar[frozenset[Use]] = frozenset((Use.SLICES,))

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64", -1)]

    def values(self) -> MakeStores:
        return {self.value: self._store}

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        valid = valid_rows(array)
        if valid is not None:
            rows = np.flatnonzero(valid)
            slots, array = slots[rows], take_column(array, pa.array(rows))
        if len(slots):
            self._sets(table).add(self._codes(table, slots), array)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        start = 0
        for store, codes in source.coded(self.value):
            assert isinstance(store, ValueSets | Registers)
            held = np.flatnonzero(codes >= 0)
            into = np.full(len(store), -1, dtype=np.int64)
            into[codes[held]] = self._codes(target, slots[start + held])
            self._sets(target).unite(into, store)
            start += len(codes)

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        return pa.array(self._sets(table).sizes(chosen(table, self.value, at)))

    def _store(self) -> Sets:
        return ValueSets(self.kind)

    def _sets(self, table: SlotTable) -> Sets:
        found = table.stores[self.value]
        assert isinstance(found, ValueSets | Registers)
        return found

    def _codes(self, table: SlotTable, slots: Slots) -> Codes:
        """The codes of these slots, new ones where there are none."""
        column = table.column(self.value)
        new = np.unique(slots[column[slots] < 0])
        if len(new):
            column[new] = self._sets(table).make(len(new))
        codes: Codes = column[slots]
        return codes


class ApproximateCount(DistinctCount):
    """The same with HyperLogLog registers."""

    def _store(self) -> Sets:
        return Registers(self.aggregate.number)
