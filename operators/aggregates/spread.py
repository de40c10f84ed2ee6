"""variance and stddev: n, mean, and the sum of squared differences from the mean (m2).

Updated by Welford's recurrence and merged by Chan's formula, which lose no digits where the naive
sum of squares does (values large against their spread).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ..columns import from_numbers, to_numbers
from ..kernels import moments
from .base import Accumulator, Source, chosen


class Variance(Accumulator):
    retractable = True

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    @property
    def squares(self) -> str:
        return f"{self.prefix}_squares"

    def columns(self) -> list[AccColumn]:
        return [
            AccColumn(self.mark, "int64"),
            AccColumn(self.value, "float64", 0.0),
            AccColumn(self.squares, "float64", 0.0),
        ]

    def _names(self) -> tuple[str, str, str]:
        return self.mark, self.value, self.squares

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, "float64")
        moments.moments_into(slots, values, valid, *map(table.column, self._names()))

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, "float64")
        moments.moments_out(slots, values, valid, *map(table.column, self._names()))

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        names = self._names()
        held = [source.column(name) for name in names]
        moments.merge_moments(slots, *held, *map(target.column, names))

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        freedom = chosen(table, self.mark, at) - self.aggregate.number
        spread = chosen(table, self.squares, at) / np.maximum(freedom, 1)
        if self.aggregate.kind == "stddev":
            spread = np.sqrt(spread)
        return from_numbers(spread, freedom > 0, pa.float64())
