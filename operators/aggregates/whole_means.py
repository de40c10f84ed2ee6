"""mean of whole numbers: the sum of them without rounding, and n; see `kernels.whole_sums`.

Whatever the order of values, of slices and of what is taken back, the mean is the same.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ...state.widening import REST
from ..columns import from_numbers, is_whole, whole_numbers
from ..kernels import scatter, whole_sums
from .base import Accumulator, Source, chosen


class WholeMean(Accumulator):
    retractable = True

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return is_whole(kind)

    @property
    def rest(self) -> str:
        return self.prefix + REST

    def columns(self) -> list[AccColumn]:
        return [
            AccColumn(self.value, "float64", 0.0),
            AccColumn(self.rest, "float64", 0.0),
            AccColumn(self.mark, "int64"),
        ]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid, unsigned = whole_numbers(array)
        sums, rests, counts = (table.column(column.name) for column in self.columns())
        whole_sums.whole_sum_into(slots, values, unsigned, valid, sums, rests, counts)

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid, unsigned = whole_numbers(array)
        sums, rests, counts = (table.column(column.name) for column in self.columns())
        whole_sums.whole_sum_out(slots, values, unsigned, valid, sums, rests, counts)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        more, lacking = source.column(self.value), source.column(self.rest)
        sums, rests = target.column(self.value), target.column(self.rest)
        whole_sums.merge_whole_sums(slots, more, lacking, sums, rests)
        scatter.add_into(slots, source.column(self.mark), target.column(self.mark))

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        n = chosen(table, self.mark, at)
        means = chosen(table, self.value, at) / np.maximum(n, 1)
        return from_numbers(means, n > 0, pa.float64())
