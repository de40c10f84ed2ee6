"""What values a column of one type takes: what Arrow would cut, round or read as something else is
refused, each value by an error that quotes it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from .errors import TypeMismatchError
from .failure_text import shown


def misfit(value: object, kind: object, why: object) -> TypeMismatchError:
    """The error for a value that is not of a type, also if the value cannot say what it is."""
    return TypeMismatchError(f"value {shown(value)} does not fit type {kind}: {why}")


Check = tuple[frozenset[type], Callable[[Any], Any]]
"""Types of which Arrow takes every value as it is or says no; and what a value of another type
becomes. That raises TypeMismatchError, ValueError or OverflowError for what does not fit."""


def fitted(value: Any, kind: pa.DataType, plain: frozenset[type], fits: Callable[..., Any]) -> Any:
    if type(value) in plain:
        return value
    try:
        return fits(value)
    except (TypeMismatchError, ValueError, OverflowError) as error:
        raise misfit(value, kind, error) from error


def check_of(kind: pa.DataType) -> Check | None:
    """None for types that are left to Arrow."""
    found = _CHECKS.get(kind)
    if found is not None:
        return found
    for is_kind, classes, fits in _GENERAL:
        if is_kind(kind):
            return classes, fits
    if pa.types.is_timestamp(kind):
        return _instants(kind)
    if pa.types.is_time(kind):
        return frozenset({_NONE}), _time(_finest(kind))
    if pa.types.is_duration(kind):
        return frozenset({_NONE}), _duration(_finest(kind))
    return None


_NONE = type(None)


def _wrong(value: Any, what: str) -> TypeMismatchError:
    return TypeMismatchError(f"a {type(value).__name__} is no {what}")


def _whole(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        raise _wrong(value, "whole number")
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating, Decimal)):
        number = int(value)
        if number != value:
            raise TypeMismatchError("it would be truncated: it is no whole number")
        return number
    raise _wrong(value, "whole number")


def _number(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise _wrong(value, "number")
    return value.item() if isinstance(value, np.generic) else value


def _short_number(value: Any) -> Any:
    number = float(_number(value))
    if abs(number) > _FLOAT32 and abs(number) != float("inf"):
        raise TypeMismatchError("it is beyond the range of a float32")
    return number


_FLOAT32 = float(np.finfo(np.float32).max)


def _instance(what: str, *classes: type) -> Callable[[Any], Any]:
    def fits(value: Any) -> Any:
        if not isinstance(value, classes):
            raise _wrong(value, what)
        return value

    return fits


def _truth(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong(value, "boolean")
    return bool(value)


def _decimal(value: Any) -> Any:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    if not isinstance(value, Decimal):
        raise _wrong(value, "Decimal")
    return value


def _date(value: Any) -> Any:
    if isinstance(value, np.datetime64):
        value = value.item()
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None or value.time() != dt.time() or _nanos(value):
            raise TypeMismatchError("a date has no time of day, which would be lost")
        return value.date()
    if not isinstance(value, dt.date):
        raise _wrong(value, "date")
    return value


def _nanos(value: Any) -> int:
    return getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)


def _finest(kind: pa.DataType) -> int:
    """Microseconds that the type's unit has; 0 if it holds finer times than Python has."""
    return {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}[kind.unit]


def _check_finest(finest: int, microsecond: int, value: Any) -> None:
    if finest and (microsecond % finest or _nanos(value)):
        raise TypeMismatchError("it is finer than the type's unit, and would be truncated")


def _instants(kind: pa.DataType) -> Check:
    """Datetimes; with a zone exactly where the type has one."""
    finest, zoned = _finest(kind), kind.tz is not None

    def fits(value: Any) -> Any:
        if isinstance(value, np.datetime64):
            return value
        if zoned and hasattr(value, "to_datetime"):  # an Instant
            value = value.to_datetime()
        if not isinstance(value, dt.datetime):
            raise _wrong(value, "datetime")
        if not zoned and value.tzinfo is not None:
            raise TypeMismatchError(
                "the type has no time zone, and the value's would be lost: declare an INSTANT"
            )
        _check_finest(finest, value.microsecond, value)
        return value

    return frozenset({_NONE}), fits


def _time(finest: int) -> Callable[[Any], Any]:
    def fits(value: Any) -> Any:
        if not isinstance(value, dt.time):
            raise _wrong(value, "time of day")
        if value.tzinfo is not None:
            raise TypeMismatchError("a time of day has no time zone, which would be lost")
        _check_finest(finest, value.microsecond, value)
        return value

    return fits


def _duration(finest: int) -> Callable[[Any], Any]:
    def fits(value: Any) -> Any:
        if isinstance(value, np.timedelta64):
            return value
        if not isinstance(value, dt.timedelta):
            raise _wrong(value, "timedelta")
        _check_finest(finest, value.microseconds, value)
        return value

    return fits


def _are(*types: type) -> frozenset[type]:
    return frozenset({_NONE, *types})


_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_TEXT = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())

_CHECKS: dict[pa.DataType, Check] = {
    **dict.fromkeys((*_INTEGERS, *_UNSIGNED), (_are(int), _whole)),
    pa.float64(): (_are(float, int), _number),
    pa.float32(): (_are(), _short_number),
    **dict.fromkeys(_TEXT, (_are(str), _instance("text", str))),
    **dict.fromkeys(_BYTES, (_are(bytes), _instance("bytes", bytes, bytearray, memoryview))),
    pa.bool_(): (_are(bool), _truth),
    pa.date32(): (_are(dt.date), _date),
    pa.date64(): (_are(dt.date), _date),
}

_GENERAL: tuple[tuple[Callable[[pa.DataType], bool], frozenset[type], Callable[..., Any]], ...] = (
    (pa.types.is_decimal, _are(Decimal, int), _decimal),
    (pa.types.is_fixed_size_binary, _are(bytes), _instance("bytes", bytes, bytearray)),
)
