"""Records of all kinds as columns of Python values: which value belongs to which column.

    Row, named tuple    by name, in whatever order it has them; by place if its names are f0, f1,
                        ... or the record is declared a tuple; other names are an error
    dict, dataclass     by name; other names are an error
    tuple, list         by place

That a Row is a tuple too must not matter: Row(b=1, a=2) in columns a, b is 2, 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pyarrow as pa

from .errors import TypeMismatchError
from .failure_text import shown
from .row import Row, is_positional, row_class
from .row_kind import ROW_KIND, RowKind
from .value_types import has_tuple_records

Read = Callable[[Any], Any]
"""A record's values in the order of the columns."""

_SHOWN = 2_000
"""Characters of a record that a message quotes."""


def transposed(
    records: list[Any], names: tuple[str, ...], *, by_place: bool = False, nested: bool = False
) -> list[list[Any]]:
    """One list of values for each name. by_place: names do not count, as the records are declared
    tuples. nested: they are values within records, where one without fields is none of one column.

    TypeMismatchError names the first record that has other fields than these."""
    if not records:
        return [[] for _ in names]
    kinds = set(map(type, records))
    if len(kinds) == 1:
        return _alike(records, kinds.pop(), names, by_place, nested)
    readers = {kind: _reader(kind, names, by_place, nested) for kind in kinds}
    rows = [_read(readers[type(record)], record, names) for record in records]
    return [[row[at] for row in rows] for at in range(len(names))]


class RecordType:
    """What records of columns are in Python: of which class, and how others become such."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = tuple(schema.names)
        self._by_place = has_tuple_records(schema)
        self.kind: type = tuple if self._by_place else row_class(self._names)

    def fitted(self, record: Any) -> Any:
        """A record, given as anything that columns take. TypeMismatchError if it has other
        fields."""
        columns = transposed([record], self._names, by_place=self._by_place)
        return tuple.__new__(self.kind, [column[0] for column in columns])

    def of(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """The function with its results, but None, as such records."""
        kind, fitted = self.kind, self.fitted

        def call(first: Any, second: Any) -> Any:
            result = function(first, second)
            return result if type(result) is kind or result is None else fitted(result)

        return call


def _alike(
    records: list[Any], kind: type, names: tuple[str, ...], by_place: bool, nested: bool
) -> list[list[Any]]:
    """Of records of one class."""
    width = len(names)
    if kind is tuple:
        if set(map(len, records)) != {width}:
            raise _wrong_width(next(one for one in records if len(one) != width), names)
        return [list(map(itemgetter(index), records)) for index in range(width)]
    if issubclass(kind, Row) and set(map(len, records)) == {width}:
        order = order_of(kind, names, by_place)
        if order is not None and width:
            columns = list(map(list, zip(*records, strict=True)))
            return [columns[at] for at in order]
    reader = _reader(kind, names, by_place, nested)
    rows = [_read(reader, record, names) for record in records]
    return [[row[at] for row in rows] for at in range(width)]


def _reader(kind: type, names: tuple[str, ...], by_place: bool, nested: bool) -> Read:
    """How records of this class are read."""
    if issubclass(kind, (tuple, list)):
        return _by_fields(kind, names, by_place)
    if issubclass(kind, dict):
        return _by_keys(names)
    if dataclasses.is_dataclass(kind):
        more = [field.name for field in dataclasses.fields(kind) if field.name not in names]
        return _more_than(more, names) if more else _attributes(names)
    if len(names) == 1 and not nested:
        return lambda record: (record,)

    def refuse(record: Any) -> Any:
        raise _wrong_width(record, names)

    return refuse


def _by_keys(names: tuple[str, ...]) -> Read:
    width, known = len(names), frozenset(names)

    def read(record: Any) -> Any:
        values = [record[name] for name in names]
        if len(record) > width:
            raise _more_names(record, [key for key in record if key not in known], names)
        return values

    return read


def _attributes(names: tuple[str, ...]) -> Read:
    return lambda record: [getattr(record, name) for name in names]


def _more_than(more: list[str], names: tuple[str, ...]) -> Read:
    def refuse(record: Any) -> Any:
        raise _more_names(record, more, names)

    return refuse


def _by_fields(kind: type, names: tuple[str, ...], by_place: bool) -> Read:
    width, order = len(names), order_of(kind, names, by_place)

    def read(record: Any) -> Any:
        if order is None:
            raise _wrong_names(record, names)
        if len(record) != width:
            raise _wrong_width(record, names)
        return tuple(record) if order == range(width) else [record[at] for at in order]

    return read


def order_of(kind: type, names: tuple[str, ...], by_place: bool) -> range | list[int] | None:
    """Where the values of `names` are in a record of this class; None if it has other fields.
    TypeMismatchError if it is of a kind that the columns cannot tell."""
    if issubclass(kind, Row):
        _check_kind(kind, names)
    fields = getattr(kind, "_fields", None)
    if fields is None or by_place or fields == names or is_positional(fields):
        return range(len(names))
    if issubclass(kind, Row) or not is_positional(names):
        if sorted(fields) != sorted(names):
            return None
        return [fields.index(name) for name in names]
    return range(len(names))


def _check_kind(kind: type[Row], names: tuple[str, ...]) -> None:
    if kind._kind is not RowKind.INSERT and ROW_KIND not in names:
        raise TypeMismatchError(
            f"a row of kind {kind._kind.symbol} in the columns {list(names)}, which cannot tell it "
            f"from an inserted one: give the records a column {ROW_KIND}"
        )


def _read(reader: Read, record: Any, names: tuple[str, ...]) -> Any:
    try:
        return reader(record)
    except (KeyError, AttributeError) as error:
        raise TypeMismatchError(
            f"a record lacks one of the fields {list(names)}: {error} of {shown(record, _SHOWN)}"
        ) from error


def _wrong_width(record: object, names: tuple[str, ...]) -> TypeMismatchError:
    return TypeMismatchError(
        f"record {shown(record, _SHOWN)} does not have the {len(names)} fields {list(names)}"
    )


def _more_names(record: object, more: list[Any], names: tuple[str, ...]) -> TypeMismatchError:
    return TypeMismatchError(
        f"record {shown(record, _SHOWN)} has the fields {more} besides {list(names)}, and they "
        "would be lost: declare them, too, or leave them out"
    )


def _wrong_names(record: Any, names: tuple[str, ...]) -> TypeMismatchError:
    return TypeMismatchError(
        f"record {shown(record, _SHOWN)} has the fields {list(record._fields)}, and the declared "
        f"ones are {list(names)}: name them alike, or give the values as a plain tuple, by place"
    )
