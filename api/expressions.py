"""Telling polars expressions, column names and functions apart without importing polars."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

from ..core.errors import ConfigurationError
from ..core.keys import ColumnKey, ExpressionKey, FunctionKey, KeySelector
from .functions import KeySelectorFunction
from .validation import require_function, stateless_method

if TYPE_CHECKING:
    import polars as pl


def is_expression(value: Any) -> TypeGuard[pl.Expr]:
    """Whether `value` is a polars expression. A program that never imported polars has none."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, polars.Expr)


def to_expressions(
    method: str, values: Iterable[Any], named: dict[str, Any] | None = None
) -> tuple[pl.Expr, ...]:
    """Column names and expressions as expressions; `named` ones take their keyword's name."""
    found = [_to_expression(method, value) for value in values]
    found += [_to_expression(method, v).alias(k) for k, v in (named or {}).items()]
    if not found:
        raise ConfigurationError(f"{method}: give at least one column name or polars expression")
    return tuple(found)


def _to_expression(method: str, value: Any) -> pl.Expr:
    if is_expression(value):
        return value
    if isinstance(value, str):
        import polars as pl

        return pl.col(value)
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
        return ExpressionKey(to_expressions(method, keys))
    if len(keys) > 1:
        raise ConfigurationError(
            f"{method}: several keys must all be column names or polars expressions, got {keys!r}; "
            "a function may return a tuple instead"
        )
    function = require_function(method, keys[0], KeySelectorFunction)
    if isinstance(function, KeySelectorFunction):
        return FunctionKey(stateless_method(method, function, "get_key"))
    return FunctionKey(function)
