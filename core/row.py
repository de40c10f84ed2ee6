"""`Row`: a tuple with named fields. Created in bulk from columns, so construction is the hot path.

Each distinct set of field names gets one generated subclass of `Row` (like a named tuple), cached
for the life of the process; rows pickle by their field names, so no class has to be shipped.
"""

from __future__ import annotations

from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from typing import Any, ClassVar


class Row(tuple[Any, ...]):
    """A record with named fields: `row.price`, `row["price"]` and `row[0]` are the same.

    `Row(1, 2)` has fields f0 and f1; `Row(a=1, b=2)` has fields a and b. A row equals the plain
    tuple of its values.

    >>> row = Row(auction=7, price=3)
    >>> row.price, row["price"], row[1]
    (3, 3, 3)
    >>> row == (7, 3), row.replace(price=4)
    (True, Row(auction=7, price=4))
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Row:
        if args and kwargs:
            raise ValueError("give a Row either positional or named values, not both")
        names = tuple(kwargs) if kwargs else tuple(f"f{i}" for i in range(len(args)))
        return tuple.__new__(row_class(names), tuple(kwargs.values()) if kwargs else args)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            try:
                return tuple.__getitem__(self, self._fields.index(item))
            except ValueError:
                raise KeyError(f"no field '{item}' in {self._fields}") from None
        return tuple.__getitem__(self, item)

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_row, (self._fields, tuple(self))

    def as_dict(self) -> dict[str, Any]:
        """Field name to value."""
        return dict(zip(self._fields, self, strict=True))

    def replace(self, **changes: Any) -> Row:
        """A copy with some fields changed."""
        unknown = set(changes) - set(self._fields)
        if unknown:
            raise KeyError(f"no field {sorted(unknown)} in {self._fields}")
        return make_row(self._fields, tuple(changes.get(n, v) for n, v in self._items()))

    def _items(self) -> Iterator[tuple[str, Any]]:
        return zip(self._fields, self, strict=True)


_RESERVED = frozenset({"as_dict", "replace", *dir(object), "__getitem__", "__slots__", "_fields"})
"""Field names that are reached as `row["name"]` only; `count` and `index` are fields if present."""


@cache
def row_class(fields: tuple[str, ...]) -> type[Row]:
    """The `Row` subclass for these field names."""
    members: dict[str, Any] = {"__slots__": (), "_fields": fields}
    for index, name in enumerate(fields):
        if name.isidentifier() and name not in _RESERVED:
            members[name] = _tuplegetter(index, f"Field {index}")
    return type("Row", (Row,), members)


def make_row(fields: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    """One row with these field names and values."""
    return tuple.__new__(row_class(fields), values)


def row_factory(fields: tuple[str, ...]) -> Callable[[list[list[Any]], int], list[Any]]:
    """A function from equally long columns (and the row count) to rows."""
    cls = row_class(fields)
    new = tuple.__new__

    def build(columns: list[list[Any]], count: int) -> list[Any]:
        if not columns:
            return [new(cls, ()) for _ in range(count)]
        return list(map(new, repeat(cls), zip(*columns, strict=True)))

    return build
