"""Descriptions of pickled values as Arrow columns, where all of them have one shape.

    None, bool, int, float, str, bytes, dates, times, Decimal     the Arrow type of the name
    times with a zone                                             UTC
    Decimals of several scales                                    the greatest: equal numbers
    UUID                                                          text
    list, set, frozenset                                          list
    tuple                                                         struct of f0, f1, ...
    dict                                                          map
    Row, an object whose pickle holds named fields                struct of its fields

A column whose values have several shapes, or are what only Python can read, has none of these
forms: its text is what a reader gets.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from .descriptions import Budget, Elements, Mapped, Thing, UnreadableError
from .pickles import described, text_of

VALUES_PER_BYTE: Final = 4
"""A pickle needs a byte for a value, and may say it again with two."""


def arrow_of(pickles: Sequence[bytes | None]) -> pa.Array | None:
    """The values of these pickles as one column; None if there is no such form."""
    size = sum(len(data) for data in pickles if data is not None)
    try:
        values = [None if data is None else described(data) for data in pickles]
        return _array(values, Budget(VALUES_PER_BYTE * size + 64), 0)
    except (UnreadableError, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError):
        return None


def texts_of(pickles: Sequence[bytes | None]) -> pa.Array:
    """The same as text for people."""
    known: dict[bytes, str] = {}
    found = []
    for data in pickles:
        if data is not None and data not in known:
            known[data] = text_of(data)
        found.append(None if data is None else known[data])
    return pa.array(found, pa.large_string())


def _array(values: list[Any], budget: Budget, depth: int) -> pa.Array:
    budget.take(len(values))
    if depth > 30:
        raise UnreadableError("too deep")
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return pa.nulls(len(values))
    if len(kinds) > 1:
        raise UnreadableError(f"values of {len(kinds)} types")
    kind = kinds.pop()
    if kind in _SCALARS:
        return _SCALARS[kind](values)
    if kind is Thing:
        return _structs(values, [_named(value) for value in values], budget, depth)
    if kind is tuple:
        fields = [None if v is None else [(f"f{i}", x) for i, x in enumerate(v)] for v in values]
        return _structs(values, fields, budget, depth)
    if kind is list or kind is Elements:
        if len({value.name for value in values if isinstance(value, Elements)}) > 1:
            raise UnreadableError("sets and frozensets")
        items = [value.items if isinstance(value, Elements) else value for value in values]
        flat = [one for part in items if part is not None for one in part]
        return pa.LargeListArray.from_arrays(
            _offsets(items, pa.int64()), _array(flat, budget, depth + 1)
        )
    if kind is Mapped:
        items = [None if value is None else value.items for value in values]
        pairs = [pair for part in items if part is not None for pair in part]
        keys = _array([key for key, _ in pairs], budget, depth + 1)
        if keys.null_count:
            raise UnreadableError("None as a key of a dict")
        shown = _array([value for _, value in pairs], budget, depth + 1)
        return pa.MapArray.from_arrays(_offsets(items, pa.int32()), keys, shown)
    raise UnreadableError(f"no column of {kind.__name__}")


def _offsets(parts: Sequence[Sequence[Any] | None], kind: pa.DataType) -> pa.Array:
    offsets: list[int | None] = []
    end = 0
    for part in parts:
        offsets.append(None if part is None else end)
        end += 0 if part is None else len(part)
    return pa.array([*offsets, end], kind)


def _named(value: Thing | None) -> list[tuple[str, Any]] | None:
    if value is None:
        return None
    if value.args or not value.fields:
        raise UnreadableError(f"{value.name} is made by a call")
    return value.fields


def _structs(
    values: Sequence[Any],
    fields: Sequence[list[tuple[str, Any]] | None],
    budget: Budget,
    depth: int,
) -> pa.Array:
    """Of one class, with one list of fields."""
    present = [pairs for pairs in fields if pairs is not None]
    names = [name for name, _ in present[0]]
    same = all([name for name, _ in pairs] == names for pairs in present)
    classes = {value.name for value in values if isinstance(value, Thing)}
    if not same or len(classes) > 1 or len(set(names)) < len(names) or not names:
        raise UnreadableError("objects of several shapes")
    columns = [
        _array([None if pairs is None else pairs[at][1] for pairs in fields], budget, depth + 1)
        for at in range(len(names))
    ]
    missing = pa.array([pairs is None for pairs in fields])
    return pa.StructArray.from_arrays(columns, names, mask=missing)


def _of(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda values: pa.array(values, kind)


def _datetimes(values: list[Any]) -> pa.Array:
    zones = {value.tzinfo is None for value in values if value is not None}
    if len(zones) > 1:
        raise UnreadableError("times with and without a zone")
    return pa.array(values, pa.timestamp("us", None if zones.pop() else "UTC"))


def _times(values: list[Any]) -> pa.Array:
    if any(value is not None and value.tzinfo is not None for value in values):
        raise UnreadableError("a time of day with a zone")
    return pa.array(values, pa.time64("us"))


def _decimals(values: list[Any]) -> pa.Array:
    if not all(value is None or value.is_finite() for value in values):
        raise UnreadableError("a decimal that is no number")
    return pa.array(values)


def _uuids(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values], pa.large_string())


_SCALARS: Final[dict[type, Callable[[list[Any]], pa.Array]]] = {
    bool: _of(pa.bool_()),
    int: _of(pa.int64()),
    float: _of(pa.float64()),
    str: _of(pa.large_string()),
    bytes: _of(pa.large_binary()),
    dt.date: _of(pa.date32()),
    dt.datetime: _datetimes,
    dt.time: _times,
    dt.timedelta: _of(pa.duration("us")),
    Decimal: _decimals,
    uuid.UUID: _uuids,
}
