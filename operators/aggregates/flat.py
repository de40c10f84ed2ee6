"""count, sum, mean, min, max, first, last over numbers: accumulator columns, scatter kernels.

  count          n                      mean         sum float64, n (of floats)
  sum            sum, seen              min, max     extreme, seen
  first, last    value, at (sequence number of the record, -1 for none)

`seen` tells "no value" (null) from a value; sequence numbers make first and last independent of the
order in which slices are merged. Where values may be taken back, a sum has n instead of `seen`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Int64s, Slots, numpy_of
from ...state.backend import AccColumn
from ...state.column_face import SlotTable
from ..columns import NO_NULLS, Storage, from_numbers, to_numbers, validity
from ..kernels import moments, scatter
from ..sums import overflow
from .base import Accumulator, Source, chosen


class Count(Accumulator):
    retractable = True

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64")]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        scatter.count_into(slots, validity(array), table.column(self.value))

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        moments.count_out(slots, validity(array), table.column(self.value))

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        scatter.add_into(slots, source.column(self.value), target.column(self.value))

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        return pa.array(chosen(table, self.value, at))


class Sum(Accumulator):
    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "bool", False)]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        self._add(table, slots, *to_numbers(array, self._held()))

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        self._add(target, slots, source.column(self.value), source.column(self.mark))

    def _add(
        self, table: SlotTable, slots: Slots, values: npt.NDArray[Any], valid: npt.NDArray[Any]
    ) -> None:
        acc, seen = table.column(self.value), table.column(self.mark)
        if scatter.sum_into(slots, values, valid, acc, seen):
            raise overflow(self.aggregate)

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        return self._marked(table, at, pa.int64() if self._held() == "int64" else pa.float64())

    def _held(self) -> Storage:
        return "float64" if pa.types.is_floating(self.kind) else "int64"


class CountedSum(Sum):
    """A sum from which values may be taken back; float values are finite (see `Finite`)."""

    retractable = True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "int64")]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, self._held())
        acc, counts = table.column(self.value), table.column(self.mark)
        if moments.counted_sum_into(slots, values, valid, acc, counts):
            raise overflow(self.aggregate)

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, self._held())
        acc, counts = table.column(self.value), table.column(self.mark)
        moments.counted_sum_out(slots, values, valid, acc, counts)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        sums = source.column(self.value)
        ignored = np.zeros(len(target), dtype=np.bool_)
        if scatter.sum_into(slots, sums, NO_NULLS, target.column(self.value), ignored):
            raise overflow(self.aggregate)
        scatter.add_into(slots, source.column(self.mark), target.column(self.mark))


class Mean(Accumulator):
    """Of floats; of whole numbers `WholeMean`."""

    retractable = True

    @classmethod
    def suits(cls, aggregate: Aggregate, kind: pa.DataType) -> bool:
        return True

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "float64", 0.0), AccColumn(self.mark, "int64")]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, "float64")
        scatter.mean_into(slots, values, valid, table.column(self.value), table.column(self.mark))

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, "float64")
        sums, counts = table.column(self.value), table.column(self.mark)
        moments.counted_sum_out(slots, values, valid, sums, counts)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        scatter.add_into(slots, source.column(self.value), target.column(self.value))
        scatter.add_into(slots, source.column(self.mark), target.column(self.mark))

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        n = chosen(table, self.mark, at)
        means = chosen(table, self.value, at) / np.maximum(n, 1)
        return from_numbers(means, n > 0, pa.float64())


class Extreme(Accumulator):
    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "bool", False)]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        self._take(table, slots, *to_numbers(array, self._held()))

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        self._take(target, slots, source.column(self.value), source.column(self.mark))

    def _take(
        self, table: SlotTable, slots: Slots, values: npt.NDArray[Any], valid: npt.NDArray[Any]
    ) -> None:
        acc, seen = table.column(self.value), table.column(self.mark)
        scatter.extreme_into(slots, values, valid, acc, seen, self.aggregate.kind == "max")

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        return self._marked(table, at, self.kind)


class Arrival(Accumulator):
    """first and last."""

    combinable: ClassVar[bool] = False

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "int64", -1)]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, self._held())
        self._take(table, slots, values, valid, numbers)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        numbers = source.column(self.mark)
        self._take(target, slots, source.column(self.value), numbers >= 0, numbers)

    def _take(
        self,
        table: SlotTable,
        slots: Slots,
        values: npt.NDArray[Any],
        valid: npt.NDArray[np.bool_],
        numbers: npt.NDArray[np.int64],
    ) -> None:
        acc, best = table.column(self.value), table.column(self.mark)
        latest = self.aggregate.kind == "last"
        scatter.earliest_into(slots, values, valid, numbers, acc, best, latest)

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        present = chosen(table, self.mark, at) >= 0
        return from_numbers(chosen(table, self.value, at), present, self.kind)


@dataclass(frozen=True)
class Finite(Accumulator):
    """Sums, means and variances of floats from which values may be taken back.

    A NaN or infinity in a sum could never be taken out again, so they are counted apart and the
    `inner` accumulator sees the finite values only."""

    inner: Accumulator

    retractable = True

    def columns(self) -> list[AccColumn]:
        return [*self.inner.columns(), *(AccColumn(name, "int64") for name in self._names())]

    def fold(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        finite = self._count(table, slots, array, scatter.count_into)
        self.inner.fold(table, slots, finite, numbers)

    def retract(self, table: SlotTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        finite = self._count(table, slots, array, moments.count_out)
        self.inner.retract(table, slots, finite, numbers)

    def merge(self, target: SlotTable, slots: Slots, source: Source) -> None:
        self.inner.merge(target, slots, source)
        for name in self._names():
            scatter.add_into(slots, source.column(name), target.column(name))

    def result(self, table: SlotTable, at: Slots | None = None) -> pa.Array:
        inner = self.inner.result(table, at)
        nan, high, low = (chosen(table, name, at) for name in self._names())
        odd = nan + high + low
        if not odd.any():
            return inner
        moment = self.aggregate.kind in ("variance", "stddev")
        values = numpy_of(inner.fill_null(0.0)).copy()
        values[odd > 0] = np.nan
        if not moment:
            values[(high > 0) & (odd == high)] = np.inf
            values[(low > 0) & (odd == low)] = -np.inf
        least = self.aggregate.number if moment else 0
        n = chosen(table, self.inner.mark, at) + odd
        return from_numbers(values, n > least, pa.float64())

    def _names(self) -> list[str]:
        return [f"{self.prefix}_{odd}" for odd in ("nan", "high", "low")]

    def _count(self, table: SlotTable, slots: Slots, array: pa.Array, count: Any) -> pa.Array:
        """The values with the odd ones as nulls, having counted those."""
        values, valid = to_numbers(array, "float64")
        finite = np.isfinite(values)
        if finite.all():
            return array
        odd = ~finite & valid if len(valid) else ~finite
        kinds = (np.isnan(values), values == np.inf, values == -np.inf)
        for name, mask in zip(self._names(), kinds, strict=True):
            count(slots, mask & odd, table.column(name))
        return pa.array(values, mask=odd | ~valid if len(valid) else odd)
