"""Arrow columns as Python values: what `to_pylist` gives, faster where that makes each value by way
of a scalar (up to 3 us). Numbers, booleans, text and bytes need no help. Structs are `Row`s, or
tuples where they are declared so, at any depth; values that Arrow has no type for are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of
from .errors import TypeMismatchError
from .row import row_factory
from .taking import fields_of
from .value_types import ValueType, holds, is_tuple, is_value_type

_DATES = (np.datetime64("0001-01-02", "D"), np.datetime64("9999-12-30", "D"))
"""What dates and datetimes can be, in any time zone."""

_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""Units that datetimes can hold; nanoseconds they cannot."""


def python_values(column: pa.Array) -> list[Any]:
    """The column's values as `column.to_pylist()` gives them; at any depth maps are dicts, structs
    `Row`s or tuples.

    Values are shared between records only where they cannot be changed."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _decoded(column)
    if isinstance(kind, ValueType):
        return kind.values(column)
    if pa.types.is_nested(kind):
        return _nested(column)
    if pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]
    convert = _times_of(kind)
    values = None if convert is None or not len(column) else _without_nulls(column, convert)
    return column.to_pylist() if values is None else values


Convert = Callable[[pa.Array], list[Any] | None]
"""Values of a column without nulls; None if some are beyond what Python has."""


def _without_nulls(column: pa.Array, convert: Convert) -> list[Any] | None:
    if not column.null_count:
        return convert(column)
    if column.null_count == len(column):
        return [None] * len(column)
    values = convert(column.drop_null())
    if values is None:
        return None
    given = iter(values)
    return [next(given) if valid else None for valid in column.is_valid().to_pylist()]


def _times_of(kind: pa.DataType) -> Convert | None:
    """For types of time that numpy makes Python values of, thirty times as fast as Arrow."""
    if pa.types.is_date32(kind):
        return _dates
    if getattr(kind, "unit", "ns") == "ns":
        return None
    if pa.types.is_timestamp(kind):
        return _datetimes if kind.tz is None else _zoned
    if pa.types.is_duration(kind):
        return _timedeltas
    return _times if pa.types.is_time(kind) else None


def _dates(column: pa.Array) -> list[Any] | None:
    return _in_range(numpy_of(column.cast(pa.int32())).astype("M8[D]"))


def _datetimes(column: pa.Array) -> list[Any] | None:
    return _in_range(_words(column).view(f"M8[{column.type.unit}]"))


def _in_range(times: npt.NDArray[Any]) -> list[Any] | None:
    if not (_DATES[0] <= times.min() and times.max() < _DATES[1]):
        return None
    finest = times if times.dtype == np.dtype("M8[D]") else times.astype("M8[us]")
    return finest.tolist()  # type: ignore[no-any-return]


def _zoned(column: pa.Array) -> list[Any] | None:
    plain = _datetimes(column.cast(pa.timestamp(column.type.unit)))
    if plain is None:
        return None
    zone = pa.lib.string_to_tzinfo(column.type.tz)
    return [zone.fromutc(moment.replace(tzinfo=zone)) for moment in plain]


def _timedeltas(column: pa.Array) -> list[Any] | None:
    words, unit = _words(column), column.type.unit
    most = (2**63 - 1) // (1_000_000 // _PER_SECOND[unit])
    if words.min() < -most or words.max() > most:
        return None
    return words.view(f"m8[{unit}]").astype("m8[us]").tolist()  # type: ignore[no-any-return]


def _times(column: pa.Array) -> list[Any] | None:
    unit = column.type.unit
    words = numpy_of(
        column.cast(pa.int32()).cast(pa.int64()) if unit != "us" else column.cast(pa.int64())
    )
    if words.min() < 0 or words.max() >= _DAY * _PER_SECOND[unit]:
        return None
    moments = words.view(f"M8[{unit}]").astype("M8[us]").tolist()
    return list(map(datetime.time, moments))


def _words(column: pa.Array) -> npt.NDArray[np.int64]:
    return numpy_of(column.cast(pa.int64()))


def _decoded(column: pa.DictionaryArray) -> list[Any]:
    """Each distinct value is made once, and shared."""
    kind, words = column.type.value_type, column.dictionary
    if pa.types.is_nested(kind) or len(words) > 2 * len(column):
        return python_values(column.dictionary_decode())
    values = [*python_values(words), None]
    indices = column.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(words))
    return list(map(values.__getitem__, indices.to_pylist()))


# --- values within values ----------------------------------------------------------------------


def _nested(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_struct(kind):
        return _structs(column)
    if holds(kind, _is_read_here):
        if pa.types.is_map(kind):
            return _maps(column)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return _lists(column, column.offsets, column.values)
        if pa.types.is_fixed_size_list(kind):
            size = kind.list_size
            values = column.values.slice(column.offset * size, len(column) * size)
            return _cut(column, range(0, (len(column) + 1) * size, size), python_values(values))
    return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


def _is_read_here(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) or is_value_type(kind)


def _structs(column: pa.StructArray) -> list[Any]:
    kind = column.type
    parts = list(map(python_values, fields_of(column)))
    if parts and is_tuple(kind):
        values: list[Any] = list(zip(*parts, strict=True))
    else:
        names = tuple([kind.field(at).name for at in range(kind.num_fields)])
        values = row_factory(names)(parts, len(column))
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [value if given else None for value, given in zip(values, valid, strict=True)]


def _lists(column: pa.Array, offsets: pa.Array, inner: pa.Array) -> list[Any]:
    ends = offsets.to_pylist()
    if not len(column):
        return []
    first = ends[0]
    values = python_values(inner.slice(first, ends[-1] - first))
    return _cut(column, [end - first for end in ends], values)


def _cut(column: pa.Array, ends: Sequence[int], values: list[Any]) -> list[Any]:
    lists: list[Any] = [values[start:end] for start, end in pairwise(ends)]
    if not column.null_count:
        return lists
    valid = column.is_valid().to_pylist()
    return [one if given else None for one, given in zip(lists, valid, strict=True)]


def _maps(column: pa.MapArray) -> list[Any]:
    keys = _lists(column, column.offsets, column.keys)
    items = _lists(column, column.offsets, column.items)
    return [
        None if key is None else _dict(key, item) for key, item in zip(keys, items, strict=True)
    ]


def _dict(keys: list[Any], items: list[Any]) -> dict[Any, Any]:
    made = dict(zip(keys, items, strict=True))
    if len(made) < len(keys):
        raise TypeMismatchError(f"a map has a key twice: {keys}")
    return made
