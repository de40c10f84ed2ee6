"""Columns, keys and orders as users write them, and as data. Polars expressions, column names and
functions are told apart without importing polars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigurationError
from ...core.keys import ColumnKey, ExpressionKey, FunctionKey, KeySelector
from ...core.row_kind import ROW_KIND
from ..functions.user_functions import KeySelectorFunction
from ..functions.validation import is_expression, require_function, stateless_method

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class NamedColumn:
    """Column `source` under the name `name`: what needs no polars to compute."""

    name: str
    source: str

    def __str__(self) -> str:
        return f'col("{self.source}")' + ("" if self.name == self.source else f" as {self.name}")

    def expression(self) -> pl.Expr:
        """The same as an expression."""
        import polars as pl

        return pl.col(self.source).alias(self.name)


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


def polars_expressions(columns: Iterable[pl.Expr | NamedColumn]) -> tuple[pl.Expr, ...]:
    """All of them as polars expressions."""
    return tuple(c.expression() if isinstance(c, NamedColumn) else c for c in columns)


def tells_kinds(columns: Iterable[pl.Expr | NamedColumn]) -> bool:
    """Whether a select says itself what becomes of a changelog's row kinds, by naming their column;
    one that does not keeps them: without them a deleted row would count as one more."""
    return any(
        ROW_KIND in (one.name, one.source)
        if isinstance(one, NamedColumn)
        else ROW_KIND in one.meta.root_names() or ROW_KIND in str(one)
        for one in columns
    )


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
        return ExpressionKey(polars_expressions(columns))
    if len(keys) > 1:
        raise ConfigurationError(
            f"{method}: several keys must all be column names or polars expressions, got {keys!r}; "
            "a function may return a tuple instead"
        )
    function = require_function(method, keys[0], KeySelectorFunction)
    if isinstance(function, KeySelectorFunction):
        return FunctionKey(stateless_method(method, function, "get_key"))
    return FunctionKey(function)


@dataclass(frozen=True)
class OrderColumn:
    """One column of an order. Nulls come last in either direction; NaN is the greatest number."""

    name: str
    descending: bool = False


Order = tuple[OrderColumn, ...]


def direction_hint(missing: Sequence[str]) -> str:
    """What to say behind columns of an order that do not exist: they may be meant as directions."""
    names = " or ".join(map(repr, missing))
    return f' ({names} is no direction either: these are "asc" and "desc")'


def to_order(method: str, order_by: Any) -> Order:
    """A column name, a pair of name and "asc" or "desc", or a list or tuple of these.

    ConfigurationError naming `method` for anything else.

    >>> to_order("top_n", ("price", "desc"))
    (OrderColumn(name='price', descending=True),)
    """
    parts = order_by if isinstance(order_by, list) else [order_by]
    if isinstance(order_by, tuple) and not _is_pair(order_by):
        parts = list(order_by)
    order = tuple(_order_column(method, part) for part in parts)
    names = [column.name for column in order]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError(f"{method}: order_by needs distinct column names, is {order_by!r}")
    return order


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and value[1] in ("asc", "desc")
    )


def _order_column(method: str, part: Any) -> OrderColumn:
    if isinstance(part, str) and part:
        return OrderColumn(part)
    if _is_pair(part):
        return OrderColumn(part[0], part[1] == "desc")
    raise ConfigurationError(
        f'{method}: order_by is a column name, a pair such as ("price", "desc") or a list of '
        f"these; {part!r} is none of them"
    )
