"""The built-in aggregates as accumulator columns of a `ColumnTable`, driven by scatter kernels.

Each accumulator owns one or two columns, named by its prefix. Three steps: `fold` a batch into a
slice's table, `merge` the tables of a window's slices into one, read the `result`.

  count          n                      mean         sum float64, n
  sum            sum, seen              min, max     extreme, seen
  first, last    value, at (sequence number of the record, -1 for none)

`seen` tells "no value" (null) from a value; sequence numbers make first and last independent of the
order in which slices are merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.aggregates import Aggregate
from ..api.row_aggregates import overflow
from ..core.errors import TypeMismatchError
from ..state.backend import AccColumn, ColumnTable, Slots
from .columns import NO_NULLS, Storage, from_numbers, storage, to_numbers
from .kernels import scatter
from .slices import Int64s

Read = Callable[[str], npt.NDArray[Any]]
"""A source table's accumulator column by name, one entry per entry of `slots`."""


@dataclass(frozen=True)
class Accumulator(ABC):
    """One aggregate over one column of Arrow type `kind`, in columns named `prefix...`."""

    aggregate: Aggregate
    prefix: str
    kind: pa.DataType

    @property
    def value(self) -> str:
        return f"{self.prefix}_value"

    @property
    def mark(self) -> str:
        """The second column: seen, n or sequence number."""
        return f"{self.prefix}_mark"

    @abstractmethod
    def columns(self) -> list[AccColumn]: ...

    @abstractmethod
    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        """Fold one value per entry of `slots`; `numbers` are the rows' sequence numbers."""

    @abstractmethod
    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        """Fold another table's accumulators into `target`."""

    @abstractmethod
    def result(self, table: ColumnTable) -> pa.Array:
        """The aggregate of every slot. Owns its memory."""

    def _held(self) -> Storage:
        held = storage(self.kind)
        assert held is not None
        return held


class Count(Accumulator):
    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "int64")]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else NO_NULLS
        scatter.count_into(slots, valid, table.column(self.value))

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        scatter.add_into(slots, read(self.value), target.column(self.value))

    def result(self, table: ColumnTable) -> pa.Array:
        return pa.array(table.column(self.value)[: len(table)].copy())


class Sum(Accumulator):
    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "bool", False)]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        self._add(table, slots, *to_numbers(array, self._held()))

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        self._add(target, slots, read(self.value), read(self.mark))

    def _add(
        self, table: ColumnTable, slots: Slots, values: npt.NDArray[Any], valid: npt.NDArray[Any]
    ) -> None:
        acc, seen = table.column(self.value), table.column(self.mark)
        if scatter.sum_into(slots, values, valid, acc, seen):
            raise overflow(self.aggregate)

    def result(self, table: ColumnTable) -> pa.Array:
        kind = pa.int64() if self._held() == "int64" else pa.float64()
        return _marked(table, self.value, self.mark, kind)

    def _held(self) -> Storage:
        return "float64" if pa.types.is_floating(self.kind) else "int64"


class Mean(Accumulator):
    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, "float64", 0.0), AccColumn(self.mark, "int64")]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, "float64")
        scatter.mean_into(slots, values, valid, table.column(self.value), table.column(self.mark))

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        scatter.add_into(slots, read(self.value), target.column(self.value))
        scatter.add_into(slots, read(self.mark), target.column(self.mark))

    def result(self, table: ColumnTable) -> pa.Array:
        n = table.column(self.mark)[: len(table)]
        means = table.column(self.value)[: len(table)] / np.maximum(n, 1)
        return from_numbers(means, n > 0, pa.float64())


class Extreme(Accumulator):
    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "bool", False)]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        self._take(table, slots, *to_numbers(array, self._held()))

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        self._take(target, slots, read(self.value), read(self.mark))

    def _take(
        self, table: ColumnTable, slots: Slots, values: npt.NDArray[Any], valid: npt.NDArray[Any]
    ) -> None:
        acc, seen = table.column(self.value), table.column(self.mark)
        scatter.extreme_into(slots, values, valid, acc, seen, self.aggregate.kind == "max")

    def result(self, table: ColumnTable) -> pa.Array:
        return _marked(table, self.value, self.mark, self.kind)


class Arrival(Accumulator):
    """first and last."""

    def columns(self) -> list[AccColumn]:
        return [AccColumn(self.value, self._held()), AccColumn(self.mark, "int64", -1)]

    def fold(self, table: ColumnTable, slots: Slots, array: pa.Array, numbers: Int64s) -> None:
        values, valid = to_numbers(array, self._held())
        self._take(table, slots, values, valid, numbers)

    def merge(self, target: ColumnTable, slots: Slots, read: Read) -> None:
        numbers = read(self.mark)
        self._take(target, slots, read(self.value), numbers >= 0, numbers)

    def _take(
        self,
        table: ColumnTable,
        slots: Slots,
        values: npt.NDArray[Any],
        valid: npt.NDArray[np.bool_],
        numbers: npt.NDArray[np.int64],
    ) -> None:
        acc, best = table.column(self.value), table.column(self.mark)
        latest = self.aggregate.kind == "last"
        scatter.earliest_into(slots, values, valid, numbers, acc, best, latest)

    def result(self, table: ColumnTable) -> pa.Array:
        size = len(table)
        values = table.column(self.value)[:size].copy()
        return from_numbers(values, table.column(self.mark)[:size] >= 0, self.kind)


_CLASSES: dict[str, type[Accumulator]] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "min": Extreme,
    "max": Extreme,
    "first": Arrival,
    "last": Arrival,
}


def make_accumulator(aggregate: Aggregate, prefix: str, kind: pa.DataType) -> Accumulator | None:
    """The accumulator of an aggregate over a column of this type; None if no number type holds it
    (`loose_values` keeps those). Raises TypeMismatchError when the aggregate makes no sense."""
    numeric = storage(kind) is not None and not pa.types.is_temporal(kind)
    if aggregate.kind in ("sum", "mean"):
        if not numeric and not kind.equals(pa.uint64()):
            raise TypeMismatchError(
                f"{aggregate.describe()}: values of type {kind} cannot be added; cast the column "
                "to int64 or float64"
            )
    elif aggregate.kind != "count":
        if pa.types.is_null(kind):
            raise TypeMismatchError(
                f"{aggregate.describe()}: the first batch has only nulls there, so the type is "
                "unknown; declare a schema upstream"
            )
        if storage(kind) is None:
            return None
    return _CLASSES[aggregate.kind](aggregate, prefix, kind)


def _marked(table: ColumnTable, value: str, mark: str, kind: pa.DataType) -> pa.Array:
    size = len(table)
    return from_numbers(table.column(value)[:size].copy(), table.column(mark)[:size], kind)
