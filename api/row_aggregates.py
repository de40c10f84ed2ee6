"""The built-in aggregates row by row, for windows that have no kernels (custom triggers, keys that
are Python functions, gaps that depend on the record). `row_folds` has the arithmetic; this reads
values out of rows.

Sequence numbers make the order of arrival survive the merging of sessions. They count the `add`
calls of one function object and start at `attempt << 40`, so that records that came before a
failure stay before those after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..core.row import Row
from .functions import AggregateFunction, RuntimeContext
from .row_folds import FOLDS, INT64_MAX, INT64_MIN, overflow

if TYPE_CHECKING:
    import polars as pl

    from .aggregates import Aggregate


class RowAggregate(AggregateFunction):
    """Runs one `Aggregate` over rows. Accumulators are lists, changed in place by `add`."""

    def __init__(self, aggregate: Aggregate) -> None:
        self.aggregate = aggregate
        self._fold = FOLDS[aggregate.kind](aggregate)
        self._value = value_getter(aggregate.expression)
        self._by = None if aggregate.by is None else value_getter(aggregate.by)
        condition = aggregate.condition
        self._condition = None if condition is None else value_getter(condition)
        self._sequence = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self._sequence = runtime_context.get_attempt_number() << 40

    def create_accumulator(self) -> list[Any]:
        return self._fold.create()

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        item = self._item(value)
        if item is not None:
            self._sequence = max(self._sequence, self._fold.latest(accumulator)) + 1
            self._fold.add(accumulator, item, self._sequence)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> Any:
        return self._fold.result(accumulator)

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return self._fold.merge(acc_a, acc_b)

    def _item(self, row: Any) -> Any:
        """What is folded of a row; None to skip it."""
        if self._condition is not None and not self._condition(row):
            return None
        if self._by is None:
            return self._value(row)
        by = self._by(row)
        return None if by is None else (self._value(row), by)


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


__all__ = ["INT64_MAX", "INT64_MIN", "RowAggregate", "field_of", "overflow", "value_getter"]
