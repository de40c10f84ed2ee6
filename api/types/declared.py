"""What records are declared as: columns (rows, tuples), or one value each of a type (`Scalars`).

A declared value is checked as a column of its type takes it, and comes out as that column would
give it back: an int in a DOUBLE is a float behind it, a FLOAT has the precision of float32, and
what does not fit is an error that quotes it. Values that need nothing of that stay the objects they
are, which is seen from their classes, all at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa

from ...core.arrow_values import ARROW_ERRORS, to_array
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.column_values import python_values
from ...core.errors import TypeMismatchError
from ...core.value_types import BigDecimal, BigInteger
from .annotations import arrow_type_of
from .durations import Instant
from .type_classes import InstantTypeInfo, TypeInformation, type_of
from .type_info import schema_of

_NONE = type(None)
_INSTANTS = frozenset({Instant, _NONE})

_SAME: dict[pa.DataType, type] = {
    **dict.fromkeys((pa.int8(), pa.int16(), pa.int32(), pa.int64()), int),
    **dict.fromkeys((pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()), int),
    pa.float64(): float,
    **dict.fromkeys((pa.string(), pa.large_string()), str),
    **dict.fromkeys((pa.binary(), pa.large_binary()), bytes),
    pa.bool_(): bool,
    pa.date32(): dt.date,
    BigDecimal(): Decimal,
    BigInteger(): int,
}
"""Values of this class a column gives back as they were; those of other types may change."""


def _stay(values: list[Any], kind: pa.DataType) -> bool:
    """Whether a column of this type takes the values and gives them back as they are, as far as
    their classes tell. No: it may, and how is to be found out."""
    same = _SAME.get(kind)
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    if same is not None:
        return kinds <= {same} and (not pa.types.is_integer(kind) or _in_range(values, kind))
    if pa.types.is_list(kind):
        if not kinds <= {list}:
            return False
        return _stay(list(chain.from_iterable(one for one in values if one)), kind.value_type)
    if pa.types.is_map(kind):
        if not kinds <= {dict}:
            return False
        maps = [one for one in values if one]
        keys = list(chain.from_iterable(maps))
        items = list(chain.from_iterable(one.values() for one in maps))
        return None not in keys and _stay(keys, kind.key_type) and _stay(items, kind.item_type)
    if pa.types.is_timestamp(kind) and kind.tz is None and kind.unit == "us":
        return kinds <= {dt.datetime} and all(
            one is None or (one.tzinfo is None and not one.fold) for one in values
        )
    return False


def _in_range(values: list[Any], kind: pa.DataType) -> bool:
    try:
        pa.array(values, kind)
    except ARROW_ERRORS:
        return False
    return True


class Scalars:
    """Records that are one value each, or None, of the type `info`."""

    __slots__ = ("_instants", "_kind", "_same", "info")

    def __init__(self, info: TypeInformation) -> None:
        kind = info.arrow
        assert kind is not None, f"{info} declares nothing"
        self.info = info
        self._kind = kind
        same = _SAME.get(kind)
        self._same = frozenset() if same is None else frozenset({same, _NONE})
        self._instants = isinstance(info, InstantTypeInfo)
        """Whether an `Instant` stays one, to the nanosecond, as no column could keep it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Scalars, (self.info,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalars) and self.info == other.info

    def __hash__(self) -> int:
        return hash(self.info)

    def __repr__(self) -> str:
        return f"Scalars({self.info})"

    def fitted(self, values: list[Any]) -> list[Any]:
        """The values as ones of the type; the same list if none changes. TypeMismatchError names
        the type and the first value that is none of it."""
        if _stay(values, self._kind) or (self._instants and set(map(type, values)) <= _INSTANTS):
            return values
        try:
            column = to_array(values, self._kind)
        except TypeMismatchError as error:
            raise TypeMismatchError(f"a record declared as {self.info}: {error}") from error
        return python_values(column)

    def of(self, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """The function with its results as values of the type. (Integers beyond its range are left
        to `fitted`, which sees them before anybody else does.)"""
        same, fitted = self._same, self.fitted

        def call(first: Any, second: Any) -> Any:
            result = function(first, second)
            return result if type(result) in same else fitted([result])[0]

        return call


Declared: TypeAlias = pa.Schema | Scalars
"""Columns of these names and types, or values of one type."""


def declared_records(declared: Any) -> Declared | None:
    """What `schema_of` takes, as the type of a stream's records; None where it says nothing, as
    does a PICKLED_BYTE_ARRAY. Raises what `schema_of` raises.

    >>> from strom import Types
    >>> declared_records(Types.ROW_NAMED(["a"], [Types.INT()])).names
    ['a']
    >>> declared_records(Types.INT()), declared_records(int)
    (Scalars(INT), Scalars(LONG))
    """
    schema = schema_of(declared)
    if schema is not None or declared is None:
        return schema
    if isinstance(declared, TypeInformation):
        return None if declared.arrow is None else Scalars(declared)
    kind = arrow_type_of(declared)
    assert kind is not None
    return Scalars(type_of(kind))


def check_no_more(found: pa.Schema, declared: pa.Schema) -> None:
    """TypeMismatchError if there are columns, or fields within them, that are not declared: they
    would be lost."""
    if found.equals(declared):
        return
    more = _more(list(found), list(declared), "")
    if more:
        raise TypeMismatchError(
            f"the columns {more} are not declared, and would be lost: the declared ones are "
            f"{declared.names}; declare them, too, or leave them out"
        )


def _more(found: list[pa.Field], declared: list[pa.Field], path: str) -> list[str]:
    """Paths of the fields that are found and not declared."""
    known = {field.name: field.type for field in declared}
    more = []
    for field in found:
        kind = known.get(field.name)
        if kind is None:
            more.append(path + field.name)
        else:
            more += _more_within(field.type, kind, f"{path}{field.name}.")
    return more


def _more_within(found: pa.DataType, declared: pa.DataType, path: str) -> list[str]:
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        return _more(list(found), list(declared), path)
    if pa.types.is_map(found) and pa.types.is_map(declared):
        return _more_within(found.item_type, declared.item_type, path)
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if any(is_kind(found) for is_kind in lists) and any(is_kind(declared) for is_kind in lists):
        return _more_within(found.value_type, declared.value_type, path)
    return []


def as_declared(batch: Batch, declared: Declared) -> Batch:
    """The batch as records of this type. TypeMismatchError names what does not fit."""
    if isinstance(declared, pa.Schema):
        if isinstance(batch, ColumnBatch):
            check_no_more(batch.data.schema, declared)
        return to_columns(batch, declared)
    if isinstance(batch, ColumnBatch):
        raise TypeMismatchError(
            f"records declared as {declared.info}, which is one value each, are columns "
            f"{batch.data.schema.names}: declare a row type, or give a list of values"
        )
    values = declared.fitted(batch.values)
    return batch if values is batch.values else ObjectBatch(values, batch.timestamps)
