"""Values of one row, by field name or polars expression."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .row import Row

if TYPE_CHECKING:
    import polars as pl


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
