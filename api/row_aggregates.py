"""The built-in aggregates row by row, for windows that have no kernels (sessions, processing time).

An accumulator is a list, changed in place and returned by `add`:

  count       [n]
  sum         [sum or None]
  mean        [float sum, n]
  min, max    [extreme or None]
  first, last [sequence number or -1, value]

The sequence number makes first and last survive the merging of sessions. It counts `add` calls of
one function object and starts at `attempt << 40`, so that records that came before a failure stay
before those after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.errors import TypeMismatchError
from ..core.row import Row
from .functions import AggregateFunction, RuntimeContext

if TYPE_CHECKING:
    import polars as pl

    from .aggregates import Aggregate

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class RowAggregate(AggregateFunction):
    """Runs one `Aggregate` over rows."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self._kind = aggregate.kind
        self._value = value_getter(aggregate.expression)
        self._sequence = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sequence = runtime_context.get_attempt_number() << 40

    def create_accumulator(self) -> list[Any]:
        match self._kind:
            case "count":
                return [0]
            case "mean":
                return [0.0, 0]
            case "first" | "last":
                return [-1, None]
            case _:
                return [None]

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        item = self._value(value)
        if item is None:
            return accumulator
        match self._kind:
            case "count":
                accumulator[0] += 1
            case "sum":
                accumulator[0] = self._plus(accumulator[0], item)
            case "mean":
                accumulator[0] += float(item)
                accumulator[1] += 1
            case "min" | "max":
                if accumulator[0] is None or self._better(item, accumulator[0]):
                    accumulator[0] = item
            case "first" | "last":
                self._arrive(item, accumulator)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> Any:
        match self._kind:
            case "mean":
                return accumulator[0] / accumulator[1] if accumulator[1] else None
            case "first" | "last":
                return accumulator[1]
            case _:
                return accumulator[0]

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        match self._kind:
            case "count":
                return [acc_a[0] + acc_b[0]]
            case "mean":
                return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]
            case "sum":
                if acc_a[0] is None or acc_b[0] is None:
                    return [acc_b[0] if acc_a[0] is None else acc_a[0]]
                return [self._plus(acc_a[0], acc_b[0])]
            case "min" | "max":
                if acc_a[0] is None:
                    return list(acc_b)
                worse = acc_b[0] is None or not self._better(acc_b[0], acc_a[0])
                return list(acc_a if worse else acc_b)
            case _:
                return self._earlier_or_later(acc_a, acc_b)

    def _plus(self, total: Any, item: Any) -> Any:
        if isinstance(item, bool):
            item = int(item)
        if total is None:
            return item
        total = total + item
        if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
            raise overflow(self.aggregate)
        return total

    def _better(self, item: Any, than: Any) -> bool:
        """Whether `item` replaces the extreme. NaN is the greatest value; equals keep the first."""
        if self._kind == "max":
            return bool(item > than or (item != item and than == than))
        return bool(item < than or (than != than and item == item))

    def _arrive(self, item: Any, accumulator: list[Any]) -> None:
        self._sequence = max(self._sequence, accumulator[0]) + 1
        if self._kind == "last" or accumulator[0] < 0:
            accumulator[:] = [self._sequence, item]

    def _earlier_or_later(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        if acc_a[0] < 0 or acc_b[0] < 0:
            return list(acc_b if acc_a[0] < 0 else acc_a)
        a_first = acc_a[0] <= acc_b[0]
        return list(acc_a if a_first == (self._kind == "first") else acc_b)


def overflow(aggregate: Aggregate) -> TypeMismatchError:
    """An integer sum left the range of int64."""
    return TypeMismatchError(
        f"{aggregate.describe()} exceeds the range of int64; sum a float64 column instead"
    )


def value_getter(expression: str | pl.Expr | None) -> Callable[[Any], Any]:
    """A function from a row to the aggregated value; constantly 1 without an expression."""
    if expression is None:
        return lambda row: 1
    if isinstance(expression, str):
        return lambda row: field_of(row, expression)
    return lambda row: _evaluate(expression, row)


def field_of(row: Any, name: str) -> Any:
    """A field by name; f0, f1, ... are the fields of a plain tuple or list."""
    if isinstance(row, (dict, Row)):
        return row[name]
    if type(row) in (tuple, list) and name[:1] == "f" and name[1:].isdigit():
        return row[int(name[1:])]
    return getattr(row, name)


def _evaluate(expression: pl.Expr, row: Any) -> Any:
    import polars as pl

    if isinstance(row, dict):
        fields = row
    elif dataclasses.is_dataclass(row) and not isinstance(row, type):
        fields = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    elif isinstance(row, (tuple, list)):
        names = getattr(row, "_fields", None) or [f"f{i}" for i in range(len(row))]
        fields = dict(zip(names, row, strict=True))
    else:
        fields = {"value": row}
    frame = pl.DataFrame({name: [value] for name, value in fields.items()})
    return frame.select(expression).to_series().item()
