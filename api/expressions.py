"""Telling polars expressions, column names and functions apart without importing polars."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from ..core.errors import ConfigurationError
from ..core.keys import ColumnKey, ExpressionKey, FunctionKey, KeySelector
from .functions import KeySelectorFunction
from .specs import ExpressionSpec, NamedColumn
from .validation import require_function, stateless_method

if TYPE_CHECKING:
    import polars as pl


def is_expression(value: Any) -> TypeGuard[pl.Expr]:
    """Whether `value` is a polars expression. A program that never imported polars has none."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, polars.Expr)


def to_columns(
    method: str, values: Iterable[Any], named: dict[str, Any] | None = None
) -> tuple[pl.Expr | NamedColumn, ...]:
    """Column names and expressions; `named` ones take their keyword's name."""
    found = [_to_column(method, value) for value in values]
    for name, value in (named or {}).items():
        column = _to_column(method, value)
        renamed = isinstance(column, NamedColumn)
        found.append(NamedColumn(name, column.source) if renamed else column.alias(name))
    if not found:
        raise ConfigurationError(f"{method}: give at least one column name or polars expression")
    return tuple(found)


def _to_column(method: str, value: Any) -> Any:
    if is_expression(value):
        return value
    if isinstance(value, str):
        return NamedColumn(value, value)
    raise ConfigurationError(
        f"{method}: expected a column name or a polars expression, got {value!r} "
        f"({type(value).__name__}); wrap constants in pl.lit(...)"
    )


def to_key_selector(method: str, keys: tuple[Any, ...]) -> KeySelector:
    """Column names, polars expressions (names and expressions may mix), or one function."""
    if not keys:
        raise ConfigurationError(f"{method}: give a column name, a polars expression or a function")
    if all(isinstance(key, str) for key in keys):
        if len(set(keys)) != len(keys):
            raise ConfigurationError(f"{method}: key columns {list(keys)} are not distinct")
        return ColumnKey(tuple(keys))
    if all(isinstance(key, str) or is_expression(key) for key in keys):
        columns = to_columns(method, keys)
        return ExpressionKey(ExpressionSpec("select", columns).polars_expressions())
    if len(keys) > 1:
        raise ConfigurationError(
            f"{method}: several keys must all be column names or polars expressions, got {keys!r}; "
            "a function may return a tuple instead"
        )
    function = require_function(method, keys[0], KeySelectorFunction)
    if isinstance(function, KeySelectorFunction):
        return FunctionKey(stateless_method(method, function, "get_key"))
    return FunctionKey(function)
