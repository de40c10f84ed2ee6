"""Arrow columns as Python values: what `to_pylist` gives, faster where that makes each value by way
of a scalar (up to 3 us). Numbers, booleans, text and bytes need no help.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of

_DATES = (np.datetime64("0001-01-02", "D"), np.datetime64("9999-12-30", "D"))
"""What dates and datetimes can be, in any time zone."""

_DAY = 86_400
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""Units that datetimes can hold; nanoseconds they cannot."""


def python_values(column: pa.Array) -> list[Any]:
    """The column's values as `column.to_pylist()` gives them; maps, at any depth, as dicts.

    Values are shared between records only where they cannot be changed."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _decoded(column)
    if pa.types.is_nested(kind):
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
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
