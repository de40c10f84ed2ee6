"""`ExtremeWindow` with ties and `TopNWindow` over tables whose slots are given out by the operator:
per slot the records that may still be in the result, as a list of structs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow
from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...state.column_face import SlotTable
from ...state.value_lists import Choose
from ..aggregates.best_rows import best_rows
from ..aggregates.listed import ListedValues
from ..columns import ranks, storage, to_numbers
from ..kernels import scatter
from ..order_words import OrderWords
from .slot_extremes import WholeRecords


@dataclass(frozen=True)
class ListedRecords(ListedValues):
    """A list of the records that `pick` picks."""

    pick: Choose

    keeps_all = False

    def _choose(self, owners: Slots, values: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        return np.sort(self.pick(owners, values, numbers))


class SlotRecords(WholeRecords):
    """Any number of records per slot; `_rows` says which and in what order."""

    def __init__(self, prefix: str) -> None:
        super().__init__(BuiltinWindow(()), prefix)
        self._collect = Aggregate("collect", "record")

    def bind(self, fields: Sequence[pa.Field]) -> None:
        super().bind(fields)
        self._list = ListedRecords(
            self._collect, f"{self._prefix}a0", self._record, self._use, self._rows
        )
        self._kinds = [self._record]
        self._aggregates = [self._collect]
        self._parts = [self._list]
        self._name_columns()

    def fold(self, table: SlotTable, slots: Slots, inputs: list[pa.Array], numbers: Int64s) -> None:
        super().fold(table, slots, [self._structs(inputs)], numbers)

    def emitted(self, table: SlotTable, slots: Slots) -> tuple[Slots, list[pa.Array]]:
        lists = table.column(self._list.value)[slots]
        owners, records, numbers = self._list.lists(table).read(lists)
        rows = self._rows(owners, records, numbers)
        columns = self._declared(take_column(records, pa.array(rows)))
        return slots[owners[rows]], self._ranked(owners[rows], columns)

    @abstractmethod
    def _rows(self, owners: Slots, records: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        """The rows of results, by owner and then in their order; `numbers` are those of arrival,
        ascending for each owner. Owners are grouped when results are asked for."""

    def _ranked(self, owners: Slots, columns: list[pa.Array]) -> list[pa.Array]:
        return columns


class SlotTies(SlotRecords):
    """All records that hold the extreme, in order of arrival."""

    def __init__(self, spec: ExtremeWindow, prefix: str) -> None:
        super().__init__(prefix)
        self._spec = spec

    def bind(self, fields: Sequence[pa.Field]) -> None:
        super().bind(fields)
        self._at = self._column_at(self._spec.field)

    def _rows(self, owners: Slots, records: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        column = records.field(self._at)
        held = storage(column.type)
        values: npt.NDArray[Any]
        if held is not None:
            values, valid = to_numbers(column, held)
        else:
            values, valid = ranks(column), numpy_of(column.is_valid())
        size = int(owners.max(initial=-1)) + 1
        best, seen = np.zeros(size, dtype=values.dtype), np.zeros(size, dtype=np.bool_)
        chosen = np.empty(len(owners), dtype=np.bool_)
        largest = self._spec.kind == "max"
        scatter.candidates(owners, values, valid, best, seen, largest, True, chosen)
        return np.flatnonzero(chosen)


class SlotTopN(SlotRecords):
    """The first n records in an order, and their places."""

    def __init__(self, spec: TopNWindow, prefix: str) -> None:
        super().__init__(prefix)
        self._spec = spec

    def bind(self, fields: Sequence[pa.Field]) -> None:
        super().bind(fields)
        self._order = OrderWords(self._spec.order, self._output, "top_n")
        if self._spec.rank is not None:
            self.names = [*self.names, self._spec.rank]

    def _rows(self, owners: Slots, records: pa.Array, numbers: Int64s) -> npt.NDArray[np.int64]:
        words = self._order.of([records.field(i) for i in self._order.columns])
        size = int(owners.max(initial=-1)) + 1
        rows, _ = best_rows(owners, size, words, self._order.width, self._spec.n)
        return rows

    def _ranked(self, owners: Slots, columns: list[pa.Array]) -> list[pa.Array]:
        if self._spec.rank is None:
            return columns
        first = np.flatnonzero(np.diff(owners, prepend=-1))
        sizes = np.diff(first, append=len(owners))
        places = np.arange(1, len(owners) + 1) - np.repeat(first, sizes)
        return [*columns, pa.array(places)]
