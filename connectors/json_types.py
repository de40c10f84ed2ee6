"""Columns that are written as JSON, and read from it: which types have a form there, and what has
to be done to them.

    date, time   text: 2024-01-31, 12:00:00.5; Arrow's parser would take numbers only
    BIG_DEC      text or number, of any length; so is BIG_INT
    dictionary   its values
    UNION        an object of one field, named as the kind: {"bid": {"price": 3}}
    bytes        read from text, never written; so are decimals of more than 38 digits
    not at all   durations, maps, intervals, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core.errors import TypeMismatchError
from ..core.union_type import UnionType, are_within
from ..core.value_types import as_stored
from .json_numbers import big_column, is_big

_types = pa.types


def read_as(kind: pa.DataType) -> pa.DataType | None:
    """What Arrow's JSON parser reads for a column of this type; None: JSON has no form for it."""
    if _types.is_date(kind) or _types.is_time(kind) or is_big(kind):
        return pa.string()
    if _types.is_float16(kind):
        return pa.float32()
    if isinstance(kind, UnionType):
        return read_as(kind.spread_type)
    if _types.is_dictionary(kind):
        return read_as(kind.value_type)
    if _types.is_struct(kind):
        fields = [(field.name, read_as(field.type)) for field in kind]
        return None if any(inner is None for _, inner in fields) else pa.struct(fields)
    if _is_list(kind):
        inner = read_as(kind.value_type)
        return None if inner is None else pa.list_(inner)
    return kind if _is_plain(kind) else None


def unread(schema: pa.Schema) -> pa.Field | None:
    """The first column that cannot be read from JSON."""
    return next((field for field in schema if read_as(field.type) is None), None)


def without_form(schema: pa.Schema) -> pa.Field | None:
    """The first column that cannot be written as JSON."""
    for field in schema:
        if are_within(field.type) or not _has_form(field.type):
            return field
    return None


def explained(field: pa.Field) -> str:
    """Why a sink refuses a column."""
    return (
        f"column '{field.name}' of type {field.type} has no form in JSON: leave it out, make text "
        "or numbers of it first, or write Parquet"
    )


def for_json(data: pa.RecordBatch, who: str) -> pa.RecordBatch:
    """The columns as they can be written. Raises TypeMismatchError, naming `who` writes, for types
    and numbers that JSON has no form for (NaN, infinities)."""
    field = without_form(data.schema)
    if field is not None:
        raise TypeMismatchError(f"{who}: {explained(field)}")
    data = as_stored(data)
    columns = []
    for name, column in zip(data.schema.names, data.columns, strict=True):
        if not _all_finite(column):
            raise TypeMismatchError(
                f"{who}: column '{name}' holds NaN or an infinity, which JSON has no form for: "
                "make null of them first, as with pl.col(...).fill_nan(None)"
            )
        kind = _written_as(column.type)
        columns.append(column if kind == column.type else column.cast(kind))
    return pa.RecordBatch.from_arrays(columns, names=data.schema.names)


def from_json(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """What was read as the types that `read_as` says, as those of the schema, by the columns'
    names. Raises ArrowInvalid for text that is no such date or time."""
    if data.schema.equals(schema):
        return data
    columns = [_from_json(data.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_form(kind: pa.DataType) -> bool:
    if _types.is_dictionary(kind) or _is_list(kind):
        return _has_form(kind.value_type)
    if isinstance(kind, UnionType):
        return _has_form(kind.spread_type)
    if _types.is_struct(kind):
        return all(_has_form(field.type) for field in kind)
    if _is_bytes(kind) or _types.is_decimal256(kind):
        return False
    return read_as(kind) is not None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(_types.is_binary(kind) or _types.is_large_binary(kind) or kind == pa.binary_view())


def _is_plain(kind: pa.DataType) -> bool:
    return bool(
        _types.is_boolean(kind)
        or _types.is_integer(kind)
        or _types.is_floating(kind)
        or _types.is_string(kind)
        or _types.is_large_string(kind)
        or kind == pa.string_view()
        or _types.is_null(kind)
        or _types.is_timestamp(kind)
        or _types.is_decimal(kind)
        or _is_bytes(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        _types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind)
    )


def _written_as(kind: pa.DataType) -> pa.DataType:
    """What the writer has the wanted text for."""
    if _types.is_date64(kind):
        return pa.date32()
    if _types.is_decimal32(kind) or _types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if _types.is_dictionary(kind):
        inner = _written_as(kind.value_type)
        return kind if inner == kind.value_type else inner
    if _types.is_struct(kind):
        fields = [pa.field(field.name, _written_as(field.type)) for field in kind]
        return kind if [f.type for f in fields] == [f.type for f in kind] else pa.struct(fields)
    if _is_list(kind):
        inner = _written_as(kind.value_type)
        return kind if inner == kind.value_type else pa.list_(inner)
    return kind


def _all_finite(column: pa.Array) -> bool:
    kind = column.type
    if _types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    if _types.is_dictionary(kind):
        return _all_finite(column.dictionary)
    if _types.is_struct(kind):
        return all(_all_finite(inner) for inner in column.flatten())
    return _all_finite(column.flatten()) if _is_list(kind) else True


def _from_json(column: Any, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    if is_big(kind):
        return big_column(column, kind)
    if isinstance(kind, UnionType):
        return _gathered(_from_json(column, kind.spread_type), kind)
    if _types.is_time(kind):
        day = pc.binary_join_element_wise(pa.scalar("1970-01-01"), column, pa.scalar(" "))
        return day.cast(pa.timestamp(kind.unit)).cast(kind)
    if _types.is_dictionary(kind):
        values = _from_json(column, kind.value_type).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            values.indices.cast(kind.index_type), values.dictionary, ordered=kind.ordered
        )
    if _types.is_struct(kind):
        inner = [_from_json(c, f.type) for c, f in zip(column.flatten(), kind, strict=True)]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=column.is_null())
    if _is_list(kind):
        return _list_from_json(column, kind)
    return column.cast(kind)


def _gathered(column: Any, kind: UnionType) -> pa.Array:
    try:
        return kind.gathered(column)
    except TypeMismatchError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _list_from_json(column: Any, kind: pa.DataType) -> pa.Array:
    values = _from_json(column.flatten(), kind.value_type)
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    ends = np.cumsum(np.asarray(lengths, dtype=np.int32), dtype=np.int32)
    offsets: Sequence[int] = np.concatenate((np.zeros(1, np.int32), ends))  # type: ignore[assignment]
    made = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values, pa.list_(kind.value_type), mask=column.is_null()
    )
    return made if made.type == kind else made.cast(kind)
