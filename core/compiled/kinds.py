"""What the values of a column are to a function, and the columns that operations work on."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..column_values import python_values
from ..value_types import holds


class Kind(Enum):
    """`NONE`: the constant None. `OTHER`: values that are only handed on or compared with None."""

    NONE = "None"
    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "str"
    OTHER = "other"


class Beyond(Exception):
    """What a batch asks for is not the same on columns: it goes by rows."""


NORMAL = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.TEXT: pa.string(),
}
"""The types that operations work on."""

_INTS = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()}
_TEXTS = {pa.string(), pa.large_string(), pa.string_view()}
_KINDS = {
    **dict.fromkeys(_INTS, Kind.INT),
    **dict.fromkeys(_TEXTS, Kind.TEXT),
    pa.float32(): Kind.FLOAT,
    pa.float64(): Kind.FLOAT,
    pa.bool_(): Kind.BOOL,
    pa.null(): Kind.NONE,
}


def kind_of(type_: pa.DataType) -> Kind:
    """What Python sees of a column of this type."""
    if pa.types.is_dictionary(type_) and type_.value_type in _TEXTS:
        return Kind.TEXT
    return _KINDS.get(type_, Kind.OTHER)


def cast_of(type_: pa.DataType) -> pa.DataType | None:
    """The type that operations take a column of this one as; None: as it is."""
    normal = NORMAL.get(kind_of(type_))
    return None if type_ == normal else normal


def tells_missing(type_: pa.DataType) -> bool:
    """Whether a column of the type, as operations take it, says itself where there is a None."""
    return cast_of(type_) is not None or not (
        pa.types.is_dictionary(type_)
        or pa.types.is_run_end_encoded(type_)
        or pa.types.is_union(type_)
        or isinstance(type_, pa.BaseExtensionType)
    )


def given(*columns: Any) -> None:
    """Beyond if one of them has a None."""
    for column in columns:
        if isinstance(column, pa.Array) and column.null_count:
            raise Beyond


def readable_check(type_: pa.DataType) -> Callable[[pa.Array], None] | None:
    """What raises Beyond if Python could not read a value of a column of this type; None: it always
    can. Rows are made of all columns, so that one that cannot be read fails the record, whether the
    function looks at it or not."""
    if _always_readable(type_):
        return _check_texts if holds(type_, _is_text) else None
    return _check_times if _is_plain_time(type_) else _check_values


def _check_texts(column: pa.Array) -> None:
    """Of sources that do not look at what they read: bytes that are no UTF-8."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Beyond from error


def _check_times(column: pa.Array) -> None:
    first, last, words = _FIRST_DAYS, _LAST_DAYS, pa.int32()
    if pa.types.is_timestamp(column.type):
        per_day = 86_400 * {"s": 1, "ms": 1_000, "us": 1_000_000}[column.type.unit]
        first, last, words = first * per_day, last * per_day, pa.int64()
    found = pc.min_max(column.cast(words))
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and not first <= low <= high < last:
        raise Beyond


def _check_values(column: pa.Array) -> None:
    try:
        python_values(column)
    except Exception as error:
        raise Beyond from error


def _is_text(type_: pa.DataType) -> bool:
    return type_ in _TEXTS


def comes_back(type_: pa.DataType) -> bool:
    """Whether a column's values, read by Python and put into a column of the type, make the same
    column again."""
    plain = kind_of(type_) not in (Kind.OTHER, Kind.NONE) and not pa.types.is_dictionary(type_)
    return plain or type_ in (pa.binary(), pa.large_binary()) or _is_plain_time(type_)


_FIRST_DAYS, _LAST_DAYS = -719_161, 2_932_895
"""From 0001-01-02 to before 9999-12-30, in days since the epoch."""


def _is_plain_time(type_: pa.DataType) -> bool:
    if pa.types.is_timestamp(type_):
        return type_.tz is None and type_.unit != "ns"
    return pa.types.is_date32(type_)  # type: ignore[no-any-return]


def _always_readable(type_: pa.DataType) -> bool:
    if kind_of(type_) is not Kind.OTHER:
        return True
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return True
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return True
    if pa.types.is_struct(type_):
        return all(_always_readable(type_.field(at).type) for at in range(type_.num_fields))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _always_readable(type_.value_type)
    return False
