"""Python values as Arrow columns of a type: exactly, or with an error that quotes the value.

Arrow by itself cuts 1.5 down to the integer 1, takes bytes for text and text for bytes, drops the
time of a date and the zone of a time, and makes infinity of what a float32 cannot hold. So what
types there are among the values is looked at first, all at once: if they are the ones that Arrow
takes as they are, which is nearly always, that is all; else each value must pass.

Rows, dicts and objects become structs by their fields' names, tuples by place; see `records`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from .errors import TypeMismatchError
from .records import transposed
from .value_checks import check_of, fitted, misfit
from .value_types import ValueType, as_type, holds, is_tuple, is_value_type

ARROW_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What a value raises that a column cannot take."""


def to_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values, or None, as a column of `kind`.

    TypeMismatchError quotes the first value that does not fit, and names the field within it."""
    if isinstance(kind, ValueType):
        return _coded(values, kind)
    if pa.types.is_nested(kind):
        return _nested(values, kind)
    check = check_of(kind)
    if check is not None:
        plain, fits = check
        odd = set(map(type, values)) - plain
        if odd:
            values = [fitted(value, kind, plain, fits) for value in values]
    try:
        if pa.types.is_dictionary(kind):
            return _words(values, kind)
        return pa.array(values, type=kind)
    except ARROW_ERRORS as error:
        bad = next((one for one in values if not _taken(one, kind)), None)
        raise misfit(bad, kind, error) from error


def _words(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow makes dictionaries of some types from values, and of all others by another way."""
    try:
        return pa.array(values, type=kind)
    except pa.ArrowNotImplementedError:
        return to_array(values, kind.value_type).dictionary_encode().cast(kind)


def _coded(values: list[Any], kind: ValueType) -> pa.Array:
    try:
        return kind.array(values)
    except TypeMismatchError:
        for value in values:
            try:
                kind.array([value])
            except TypeMismatchError as error:
                raise misfit(value, kind, error) from error
        raise


def _taken(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], type=kind.value_type if pa.types.is_dictionary(kind) else kind)
    except ARROW_ERRORS:
        return False
    return True


# --- values within values ----------------------------------------------------------------------


def _nested(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    if pa.types.is_map(kind):
        return _maps(values, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(values, kind)
    if pa.types.is_fixed_size_list(kind):
        return _fixed_lists(values, kind)
    return pa.array(values, type=kind)


def _structs(values: list[Any], kind: pa.DataType) -> pa.Array:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    names = tuple([field.name for field in fields])
    missing = [value is None for value in values]
    given = [value for value in values if value is not None] if any(missing) else values
    by_place = is_tuple(kind)
    try:
        columns = transposed(given, names, by_place=by_place, nested=True)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"{error} (type {kind})") from error
    arrays = [
        named(field.name, to_array, _spread(column, missing, len(given)), field.type)
        for field, column in zip(fields, columns, strict=True)
    ]
    mask = pa.array(missing, pa.bool_()) if len(given) < len(values) else None
    if not fields:
        return pa.array([None if gone else {} for gone in missing], type=kind)
    return as_type(pa.StructArray.from_arrays(arrays, fields=fields, mask=mask), kind)


def named(name: str, make: Callable[..., pa.Array], *arguments: Any) -> pa.Array:
    """What `make` gives; its error says which field it is about."""
    try:
        return make(*arguments)
    except TypeMismatchError as error:
        raise TypeMismatchError(f"field '{name}': {error}") from error


def _spread(column: list[Any], missing: list[bool], given: int) -> list[Any]:
    """The column with a None where a record is missing."""
    if given == len(missing):
        return column
    rest = iter(column)
    return [None if gone else next(rest) for gone in missing]


def _lists(values: list[Any], kind: pa.DataType) -> pa.Array:
    lists = [None if value is None else _elements(value, kind) for value in values]
    offsets, mask = _offsets(lists, kind)
    inner = to_array(list(chain.from_iterable(one for one in lists if one)), kind.value_type)
    make = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return as_type(make.from_arrays(offsets, inner, type=kind, mask=mask), kind)


def _fixed_lists(values: list[Any], kind: pa.DataType) -> pa.Array:
    size = kind.list_size
    lists = [None if value is None else _elements(value, kind) for value in values]
    for one in lists:
        if one is not None and len(one) != size:
            raise misfit(one, kind, f"it has {len(one)} items")
    items = chain.from_iterable([None] * size if one is None else one for one in lists)
    inner = to_array(list(items), kind.value_type)
    missing = pa.array([one is None for one in lists], pa.bool_())
    mask = missing if None in lists else None
    return as_type(pa.FixedSizeListArray.from_arrays(inner, type=kind, mask=mask), kind)


def _elements(value: Any, kind: pa.DataType) -> list[Any]:
    if isinstance(value, np.ndarray):
        return value.tolist()  # type: ignore[no-any-return]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, Iterable):
        raise misfit(value, kind, f"a {type(value).__name__} is no list")
    return list(value)


def _offsets(lists: list[Any], kind: pa.DataType) -> tuple[pa.Array, pa.Array | None]:
    ends = list(accumulate((0 if one is None else len(one) for one in lists), initial=0))
    missing = [one is None for one in lists]
    word = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
    return pa.array(ends, word), pa.array(missing, pa.bool_()) if any(missing) else None


def _maps(values: list[Any], kind: pa.DataType) -> pa.Array:
    entries = [None if value is None else _entries(value, kind) for value in values]
    offsets, mask = _offsets(entries, kind)
    pairs = list(chain.from_iterable(one for one in entries if one))
    keys = named("key", to_array, [key for key, _ in pairs], kind.key_type)
    if keys.null_count:
        bad = next(one for one in entries if one and any(key is None for key, _ in one))
        raise misfit(dict(bad), kind, "a key of a map cannot be None")
    items = named("value", to_array, [item for _, item in pairs], kind.item_type)
    return as_type(pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=mask), kind)


def _entries(value: Any, kind: pa.DataType) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)) and all(
        isinstance(one, (list, tuple)) and len(one) == 2 for one in value
    ):
        return list(value)
    raise misfit(value, kind, f"a {type(value).__name__} is no dict")


# --- inferred types ----------------------------------------------------------------------------


def inferred(values: list[Any]) -> pa.Array:
    """The values as a column of the type that they have. Rows are structs, at any depth; what Arrow
    has no type for raises what Arrow raises."""
    first = type(next((value for value in values if value is not None), None))
    if not issubclass(first, (tuple, list)):
        return pa.array(values)
    kinds = set(map(type, values))
    if any(map(_has_fields, kinds)):
        return _inferred_structs(values)
    if list in kinds:
        inner = [one for value in values if type(value) is list for one in value]
        if any(map(_has_fields, set(map(type, inner)))):
            return to_array(values, pa.list_(inferred(inner).type))
    return pa.array(values)


def _has_fields(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _inferred_structs(values: list[Any]) -> pa.Array:
    given = [value for value in values if value is not None]
    names = tuple(given[0]._fields) if _has_fields(type(given[0])) else ()
    columns = transposed(given, names)
    kinds = [inferred(column).type for column in columns]
    kind = pa.struct([pa.field(name, one) for name, one in zip(names, kinds, strict=True)])
    return to_array(values, kind)


__all__ = ["ARROW_ERRORS", "holds", "inferred", "is_value_type", "misfit", "named", "to_array"]
