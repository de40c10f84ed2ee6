"""Which key columns can be equal: the types that keys of two sides are brought to before comparing.

Two streams meet in one subtask only if equal keys have equal hashes. Hashes do not tell apart the
widths of a number (`docs/key-hash.md`), so each side's keys may be widened by itself:

    integers up to int64, bool excluded          int64
    uint64                                       as it is
    floats                                       float64
    string, large_string, string_view            large_string
    binary, large_binary, binary_view, fixed     large_binary
    date32, date64                               date32
    time                                         time64(us), time64(ns) as it is
    timestamp, duration                          us, ns as they are; with a time zone: UTC
    dictionaries                                 as their values
    others                                       as they are

Keys of two sides can be compared if these types are equal.
"""

from __future__ import annotations

import pyarrow as pa

from .errors import TypeMismatchError


def widened(kind: pa.DataType) -> pa.DataType:
    """The type that keys of this type are compared as."""
    if pa.types.is_dictionary(kind):
        return widened(kind.value_type)
    if pa.types.is_integer(kind):
        return kind if kind == pa.uint64() else pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return pa.large_string()
    if _is_bytes(kind):
        return pa.large_binary()
    return _widened_time(kind) if pa.types.is_temporal(kind) else kind


def widened_keys(keys: pa.RecordBatch) -> pa.RecordBatch:
    """The key columns as they are compared; what needs no cast is not copied."""
    arrays = [_cast(column, widened(column.type)) for column in keys.columns]
    return pa.RecordBatch.from_arrays(arrays, names=keys.schema.names)


def check_comparable(left: pa.Schema, right: pa.Schema, what: str) -> None:
    """TypeMismatchError, naming both columns, where keys of the two sides can never be equal."""
    for mine, other in zip(left, right, strict=True):
        if widened(mine.type) != widened(other.type):
            raise TypeMismatchError(
                f"{what}: key '{mine.name}' of the left side is {mine.type}, key '{other.name}' of "
                f"the right side is {other.type}: cast one of them before key_by, so that equal "
                "keys are of one type"
            )


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or kind == pa.binary_view()
        or pa.types.is_fixed_size_binary(kind)
    )


def _widened_time(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_interval(kind):
        return kind
    unit = "ns" if kind.unit == "ns" else "us"
    if pa.types.is_time(kind):
        return pa.time64(unit)
    if pa.types.is_duration(kind):
        return pa.duration(unit)
    return pa.timestamp(unit, tz=None if kind.tz is None else "UTC")
