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
    return _Evaluator(expression)


def field_of(row: Any, name: str) -> Any:
    """A field by name; f0, f1, ... are the fields of a plain tuple or list."""
    if isinstance(row, (dict, Row)):
        return row[name]
    if type(row) in (tuple, list) and name[:1] == "f" and name[1:].isdigit():
        return row[int(name[1:])]
    return getattr(row, name)


class _Evaluator:
    """A polars expression on one row at a time.

    A null says nothing of its column's type, which many expressions need. It takes the type of the
    values seen in its field before; until there is one, the first type that the expression takes:
    whatever that is, the value is null."""

    def __init__(self, expression: pl.Expr) -> None:
        self._expression = expression
        self._types: dict[str, Any] = {}
        """polars types by field, of those that had a value."""

    def __call__(self, row: Any) -> Any:
        import polars as pl

        fields = fields_of(row)
        unknown = [name for name, value in fields.items() if value is None]
        unknown = [name for name in unknown if name not in self._types]
        try:
            return self._on(fields, {})
        except pl.exceptions.PolarsError:
            for kind in (
                (pl.String, pl.Int64, pl.Float64, pl.Boolean, pl.Datetime) if unknown else ()
            ):
                try:
                    return self._on(fields, dict.fromkeys(unknown, kind))
                except pl.exceptions.PolarsError:
                    continue
            raise

    def _on(self, fields: dict[str, Any], guessed: dict[str, Any]) -> Any:
        import polars as pl

        nulls = [name for name, value in fields.items() if value is None]
        types = {name: self._types[name] for name in nulls if name in self._types} | guessed
        frame = pl.DataFrame({n: [v] for n, v in fields.items()}, schema_overrides=types)
        for name, value in fields.items():
            if value is not None:
                self._types[name] = frame.schema[name]
        return frame.select(self._expression).to_series().item()


def fields_of(row: Any) -> dict[str, Any]:
    """A row's values by name; those of a plain tuple are f0, f1, ..., a scalar is `value`."""
    if isinstance(row, dict):
        return row
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        return {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
    if isinstance(row, (tuple, list)):
        names = getattr(row, "_fields", None) or [f"f{i}" for i in range(len(row))]
        return dict(zip(names, row, strict=True))
    return {"value": row}


__all__ = ["INT64_MAX", "INT64_MIN", "RowAggregate", "field_of", "overflow", "value_getter"]
