"""`Row`: a tuple with named fields. Created in bulk from columns, so construction is the hot path.

Each distinct set of field names (and kind of row) gets one generated subclass of `Row`, like a
named tuple, cached for the life of the process; rows pickle by their field names, so no class has
to be shipped.

PyFlink's rows can be changed: `row["a"] = 1`. A list would allow that, but reading its fields by
name takes twice as long as a tuple's, and that is what programs do most. So rows are tuples, and
the few that are changed are written in place (`_store`). What an interpreter may do because tuples
do not change, CPython 3.11 to 3.14, the only ones that strom is installed for, do to plain tuples
alone, and a row is none (tests/core/test_row_changes.py):

    hash            computed anew each time; 3.14 keeps it, and what is written makes it forget
    collector       stops tracking tuples of numbers, which could be in no cycle; rows stay tracked
    sharing         `tuple(t)`, `t[:]`, `t + ()`, `f(*t)` may be `t` itself; of rows they are copies
    reuse           free lists, and the one tuple that `zip` gives again and again, hold no rows
    constants       compiled code holds no rows
    threads         one lock for all writers, so that two never let go of one value; readers take a
                    value and hold it in one step under the interpreter's lock

What holds a row as a key or as a value that cannot change copies it: `core.keys`, `state.copies`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from itertools import repeat
from typing import Any, ClassVar

ROW_KIND = "__row_kind"
"""Last column of a changelog batch: int8, without nulls."""


class RowKind(IntEnum):
    """What a record does to the table that its stream describes, as Flink numbers it: `+I -U +U
    -D`. An UPDATE_BEFORE comes directly before its UPDATE_AFTER, if it comes at all: an upsert
    changelog has keys and leaves it out."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def symbol(self) -> str:
        return ("+I", "-U", "+U", "-D")[self]


class Row(tuple[Any, ...]):
    """A record with named fields: `row.price`, `row["price"]` and `row[0]` are the same.

    `Row(1, 2)` has fields f0 and f1; `Row(b=2, a=1)` has fields a and b, sorted by name as PyFlink
    sorts them. Rows made from columns have these in their order. A row equals the plain
    tuple of its values, and another row if names, values and kinds are equal. A row of names is a
    maker of rows: `Row("name", "age")("Ann", 7)`.

    >>> row = Row(auction=7, price=3)
    >>> row.price, row["price"], row[1]
    (3, 3, 3)
    >>> Row(price=3, auction=7) == row, row == (7, 3), row.replace(price=4), "price" in row
    (True, True, Row(auction=7, price=4), True)
    >>> row["price"] = 5
    >>> row, Row("name", "age")("Ann", 7)
    (Row(auction=7, price=5), Row(name='Ann', age=7))
    """

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()
    _kind: ClassVar[RowKind] = RowKind.INSERT

    def __new__(cls, *args: Any, **kwargs: Any) -> Row:
        if args and kwargs:
            raise ValueError("give a Row either positional or named values, not both")
        if not kwargs:
            return tuple.__new__(row_class(positional_names(len(args))), args)
        names = tuple(sorted(kwargs, key=_place_of))
        return tuple.__new__(row_class(names), [kwargs[name] for name in names])

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A row that does this to its table; `Row(...)` inserts."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def __call__(self, *values: Any) -> Row:
        """A row whose field names are this row's values."""
        if len(values) != len(self):
            raise ValueError(f"the fields {tuple(self)} cannot have the values {values}")
        return tuple.__new__(_class_of(_texts(self), self._kind), values)

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return tuple.__getitem__(self, self._position(item))
        return tuple.__getitem__(self, item)

    def __setitem__(self, item: Any, value: Any) -> None:
        if isinstance(item, slice):
            given = list(value)
            places = range(*item.indices(len(self)))
            if len(given) != len(places):
                raise ValueError(f"{len(places)} fields of a row cannot take {len(given)} values")
            for place, one in zip(places, given, strict=True):
                _store(self, place, one)
            return
        place = self._position(item) if isinstance(item, str) else range(len(self))[item]
        _store(self, place, value)

    def _position(self, name: str) -> int:
        try:
            return self._fields.index(name)
        except ValueError:
            raise KeyError(f"no field '{name}' in {self._fields}") from None

    def __contains__(self, item: object) -> bool:
        """Whether there is a field of this name; of a row without names, whether it is a value."""
        if isinstance(item, str) and item in self._fields:
            return True
        return is_positional(self._fields) and tuple.__contains__(self, item)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row) and type(other) is not type(self):
            same = self._fields == other._fields and self._kind is other._kind
            return same and tuple.__eq__(self, other)
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        text = f"Row({', '.join(f'{n}={v!r}' for n, v in self._items())})"
        return text if self._kind is RowKind.INSERT else f"{self._kind.symbol} {text}"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._kind is RowKind.INSERT:
            return make_row, (self._fields, tuple(self))
        return make_row, (self._fields, tuple(self), int(self._kind))

    def __copy__(self) -> Row:
        return tuple.__new__(type(self), self)

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Field name to value. recursive: rows within it, also in lists and dicts, are dicts too.

        >>> Row(key=1, value=Row(a=2)).as_dict(recursive=True)
        {'key': 1, 'value': {'a': 2}}
        """
        if not recursive:
            return dict(self._items())
        return {name: _plain(value) for name, value in self._items()}

    def replace(self, **changes: Any) -> Row:
        """A copy with some fields changed."""
        unknown = set(changes) - set(self._fields)
        if unknown:
            raise KeyError(f"no field {sorted(unknown)} in {self._fields}")
        return tuple.__new__(type(self), [changes.get(n, v) for n, v in self._items()])

    def get_row_kind(self) -> RowKind:
        """What the row does to the table that its stream describes."""
        return self._kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        self.__class__ = _class_of(self._fields, RowKind(row_kind))

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Give the values, in their order, these names."""
        names = _texts(field_names)
        if len(names) != len(self):
            raise ValueError(f"{len(self)} values cannot have the {len(names)} names {names}")
        self.__class__ = _class_of(names, self._kind)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """The values of these fields. KeyError names those that there are not."""
        missing = [name for name in names if name not in self._fields]
        if missing:
            raise KeyError(f"no field {missing} in {self._fields}")
        return [tuple.__getitem__(self, self._fields.index(name)) for name in names]

    def _items(self) -> Iterator[tuple[str, Any]]:
        return zip(self._fields, self, strict=True)


_METHODS = {name for name in vars(Row) if not name.startswith("__")} - {"_fields", "_kind"}

_RESERVED = frozenset({*_METHODS, *dir(object), "__getitem__", "__slots__", "_fields", "_kind"})
"""Field names that are reached as `row["name"]` only; `count` and `index` are fields if present."""


def has_attribute(name: str) -> bool:
    """Whether a field of this name is reached as `row.name`."""
    return name.isidentifier() and name not in _RESERVED


@cache
def row_class(fields: tuple[str, ...], kind: RowKind = RowKind.INSERT) -> type[Row]:
    """The `Row` subclass for these field names and this kind."""
    members: dict[str, Any] = {"__slots__": (), "_fields": fields, "_kind": kind}
    for index, name in enumerate(fields):
        if has_attribute(name):
            members[name] = _tuplegetter(index, f"Field {index}")
    return type("Row", (Row,), members)


def _class_of(fields: tuple[str, ...], kind: RowKind) -> type[Row]:
    """`row_class`, which to the cache is another call with a kind than without: there is one class
    for rows that are inserted."""
    return row_class(fields) if kind is RowKind.INSERT else row_class(fields, kind)


def make_row(fields: tuple[str, ...], values: Iterable[Any], kind: int = 0) -> Row:
    """One row with these field names and values."""
    return tuple.__new__(_class_of(fields, RowKind(kind)), values)


def row_factory(fields: tuple[str, ...]) -> Callable[[list[list[Any]], int], list[Any]]:
    """A function from equally long columns (and the row count) to rows."""
    cls = row_class(fields)
    new = tuple.__new__

    def build(columns: list[list[Any]], count: int) -> list[Any]:
        if not columns:
            return [new(cls, ()) for _ in range(count)]
        return list(map(new, repeat(cls), zip(*columns, strict=True)))

    return build


@cache
def positional_names(count: int) -> tuple[str, ...]:
    """f0, f1, ...: the names of fields that have only places."""
    return tuple(f"f{index}" for index in range(count))


def is_positional(names: tuple[str, ...]) -> bool:
    """Whether the names say no more than places do."""
    return names == positional_names(len(names))


def _place_of(name: str) -> tuple[bool, str]:
    """Named values are sorted by name; the kind of a changelog's row is its last one."""
    return name == ROW_KIND, name


def _texts(names: Iterable[Any]) -> tuple[str, ...]:
    texts = tuple(names)
    wrong = [name for name in texts if not isinstance(name, str)]
    if wrong or len(set(texts)) != len(texts):
        raise ValueError(f"field names must be distinct texts, are {texts}")
    return texts


def _plain(value: Any) -> Any:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value


_ITEMS = tuple.__basicsize__
"""Where the values of a tuple begin, in bytes from its address."""

_HASH = _ITEMS - ctypes.sizeof(ctypes.c_ssize_t) if sys.version_info >= (3, 14) else None
"""Where a tuple keeps its hash, -1 for not yet computed."""

_WRITING = threading.Lock()
"""Of two writers of one place each must see what the other has put there."""

_take = ctypes.pythonapi.Py_IncRef
_take.argtypes, _take.restype = [ctypes.py_object], None
_release = ctypes.pythonapi.Py_DecRef
_release.argtypes, _release.restype = [ctypes.c_void_p], None


def _store(row: Row, place: int, value: Any) -> None:
    """Write a value of a row in place: what PyTuple_SetItem does, which takes only tuples that
    nobody else knows. The row holds the new value and lets go of the old one."""
    slot = ctypes.c_void_p.from_address(id(row) + _ITEMS + place * ctypes.sizeof(ctypes.c_void_p))
    _take(value)
    with _WRITING:
        old, slot.value = slot.value, id(value)
        if _HASH is not None:
            ctypes.c_ssize_t.from_address(id(row) + _HASH).value = -1
    _release(old)
