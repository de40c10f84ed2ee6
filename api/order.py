"""Orders as users write them: `"price"`, `("price", "desc")`, `[("price", "desc"), "dateTime"]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import ConfigurationError


@dataclass(frozen=True)
class OrderColumn:
    """One column of an order. Nulls come last in either direction; NaN is the greatest number."""

    name: str
    descending: bool = False


Order = tuple[OrderColumn, ...]


def to_order(method: str, order_by: Any) -> Order:
    """A column name, a pair of name and "asc" or "desc", or a list or tuple of these.

    ConfigurationError naming `method` for anything else.

    >>> to_order("top_n", ("price", "desc"))
    (OrderColumn(name='price', descending=True),)
    """
    parts = order_by if isinstance(order_by, list) else [order_by]
    if isinstance(order_by, tuple) and not _is_pair(order_by):
        parts = list(order_by)
    order = tuple(_to_column(method, part) for part in parts)
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


def _to_column(method: str, part: Any) -> OrderColumn:
    if isinstance(part, str) and part:
        return OrderColumn(part)
    if _is_pair(part):
        return OrderColumn(part[0], part[1] == "desc")
    raise ConfigurationError(
        f'{method}: order_by is a column name, a pair such as ("price", "desc") or a list of '
        f"these; {part!r} is none of them"
    )
