"""largest and smallest of few numbers: one accumulator column for each place of the list.

A batch passes the places one after the other. At each the better value stays and the other is
carried on, until none is left; most values fall out at once, the list being full of better ones.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ..columns import from_numbers, to_numbers
from ..kernels import moments
from .base import Accumulator, Source, chosen

GREATEST_FLAT = 16
"""Longer lists are kept as lists (`ListedBest`): a pass per place would cost more."""


class FlatBest(Accumulator):
    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return super().suits(aggregate, kind) and aggregate.number <= GREATEST_FLAT

    def columns(self) -> list[AccColumn]:
        return [column for place in range(self.aggregate.number) for column in self._place(place)]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, self._held())
        alive = np.ones(len(values), dtype=np.bool_) if not len(valid) else valid.copy()
        self._carry(table, slots, values.copy(), alive)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        for place in range(self.aggregate.number):
            value, seen = (column.name for column in self._place(place))
            self._carry(target, slots, source.column(value).copy(), source.column(seen).copy())

    def _carry(
        self,
        table: SlotTable,
        slots: Slots,
        values: npt.NDArray[np.generic],
        alive: npt.NDArray[np.bool_],
    ) -> None:
        largest = self.aggregate.kind == "largest"
        for place in range(self.aggregate.number):
            acc, seen = (table.column(column.name) for column in self._place(place))
            if not moments.carry_into(slots, values, alive, acc, seen, largest):
                return

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        size = len(table) if at is None else len(at)
        values = np.empty((size, self.aggregate.number), dtype=self._held())
        seen = np.empty((size, self.aggregate.number), dtype=np.bool_)
        for place in range(self.aggregate.number):
            value, mark = (column.name for column in self._place(place))
            values[:, place] = chosen(table, value, at)
            seen[:, place] = chosen(table, mark, at)
        offsets = np.zeros(size + 1, dtype=np.int32)
        np.cumsum(seen.sum(axis=1), out=offsets[1:])
        items = from_numbers(values[seen], None, self.kind)
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=pa.list_(self.kind))

    def _place(self, place: int) -> tuple[AccColumn, AccColumn]:
        return (
            AccColumn(f"{self.prefix}_value{place}", self._held()),
            AccColumn(f"{self.prefix}_mark{place}", "bool", False),
        )
