"""Rows of columns by their places, for columns of every type. Arrow cannot take views yet, alone or
within other values, and is wrong about unions that are slices or lie within other values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .arrays import numpy_of

_VIEWS = (pa.string_view(), pa.binary_view())

Places = npt.NDArray[np.integer]


def take_rows(data: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    """`data.take(indices)`, for columns of every type."""
    if not any(map(is_taken_here, data.schema.types)):
        return data.take(indices)
    columns = [take_column(column, indices) for column in data.columns]
    return pa.RecordBatch.from_arrays(columns, schema=data.schema)


def take_table(data: pa.Table, indices: pa.Array) -> pa.Table:
    """`data.take(indices)`, for columns of every type. `indices` has no nulls."""
    if not any(map(is_taken_here, data.schema.types)):
        return data.take(indices)
    batches = data.combine_chunks().to_batches()
    if not batches:
        return data
    return pa.Table.from_batches([take_rows(pa.concat_batches(batches), indices)])


def take_column(column: pa.Array, indices: pa.Array) -> pa.Array:
    """`column.take(indices)`, for every type; null where an index is null."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, take_column(column.storage, indices))
    if pa.types.is_union(kind) and kind.mode == "dense":
        return _take_union(column, indices)
    if pa.types.is_struct(kind) and any(is_taken_here(field.type) for field in kind):
        parts = [take_column(column.field(at), indices) for at in range(kind.num_fields)]
        missing = column.is_null().take(indices).fill_null(True)
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=missing)
    if _is_list(kind) and is_taken_here(kind):
        return _take_lists(column, indices)
    if kind not in _VIEWS:
        return column.take(indices)
    return _take_views(column, indices)


def picked(column: pa.Array, places: Places) -> pa.Array:
    """The values at these places: a slice where they follow one another."""
    count = len(places)
    if not count:
        return column.slice(0, 0)
    first = int(places[0])
    if int(places[-1]) - first == count - 1 and (places[1:] - places[:-1] == 1).all():
        return column.slice(first, count)
    return take_column(column, pa.array(places))


def fields_of(column: pa.StructArray) -> list[pa.Array]:
    """`column.flatten()`, for fields of every type: null where the struct is. (Arrow ends the
    process where one is a union.)"""
    kind = column.type
    if not any(_is_union(field.type) for field in kind):
        return list(column.flatten())
    fields = [column.field(at) for at in range(kind.num_fields)]
    if not column.null_count:
        return fields
    missing = numpy_of(column.is_null())
    there = pa.array(np.arange(len(column)), mask=missing)
    return [take_column(field, there) for field in fields]


def _is_union(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _is_union(kind.storage_type)
    return bool(pa.types.is_union(kind))


def codes_of(union: pa.UnionArray) -> npt.NDArray[np.int8]:
    """Of each value of a dense union its kind's code. (Arrow's own forget that an array is a part
    of another one.)"""
    return np.frombuffer(union.buffers()[1], np.int8, len(union), union.offset)


def places_of(union: pa.UnionArray) -> npt.NDArray[np.int32]:
    """Of each value of a dense union which of its kind's values it is."""
    return np.frombuffer(union.buffers()[2], np.int32, len(union), 4 * union.offset)


def valid_rows(column: pa.Array) -> npt.NDArray[np.bool_] | None:
    """Where there is a value; None: everywhere. Of a column of several kinds Arrow itself knows no
    null: those among the kinds' rows are its."""
    union = column.storage if isinstance(column, pa.ExtensionArray) else column
    if not pa.types.is_union(union.type):
        return numpy_of(column.is_valid()) if column.null_count else None
    codes, places = codes_of(union), places_of(union)
    valid = np.ones(len(codes), dtype=np.bool_)
    for at, code in enumerate(union.type.type_codes):
        rows = union.field(at)
        if rows.null_count:
            mine = np.flatnonzero(codes == code)
            valid[mine] = numpy_of(rows.is_valid())[places[mine]]
    return None if valid.all() else valid


def null_array(count: int, kind: pa.DataType) -> pa.Array:
    """So many nulls: `pa.nulls`, for every type. (Arrow's are no arrays, and end the process, where
    a union is in them.)"""
    if not _holds_union(kind):
        return pa.nulls(count, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, null_array(count, kind.storage_type))
    if pa.types.is_union(kind):
        first, *others = [kind.field(at).type for at in range(kind.num_fields)]
        codes = np.full(count, kind.type_codes[0], dtype=np.int8)
        children = [null_array(count, first), *(null_array(0, other) for other in others)]
        return _dense(kind, codes, np.arange(count, dtype=np.int32), children)
    missing = pa.nulls(count, pa.bool_()).is_valid().buffers()[1]
    if pa.types.is_struct(kind):
        children = [null_array(count, field.type) for field in kind]
        return pa.Array.from_buffers(kind, count, [missing], children=children)
    if pa.types.is_fixed_size_list(kind):
        children = [null_array(count * kind.list_size, kind.value_type)]
        return pa.Array.from_buffers(kind, count, [missing], children=children)
    number = np.int64 if pa.types.is_large_list(kind) else np.int32
    ends = pa.py_buffer(np.zeros(count + 1, dtype=number))
    return pa.Array.from_buffers(
        kind, count, [missing, ends], children=[null_array(0, kind.field(0).type)]
    )


def _holds_union(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _holds_union(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _holds_union(kind.value_type)
    return pa.types.is_union(kind) or any(
        _holds_union(kind.field(at).type) for at in range(kind.num_fields)
    )


def _dense(
    kind: pa.DataType, codes: npt.NDArray[np.int8], places: Places, children: list[pa.Array]
) -> pa.Array:
    buffers = [None, pa.py_buffer(codes), pa.py_buffer(places)]
    return pa.Array.from_buffers(kind, len(codes), buffers, children=children)


def is_taken_here(kind: pa.DataType) -> bool:
    """Whether Arrow has no kernel that takes or filters such columns, or is not trusted to: unions
    are taken for whole where they are slices."""
    if isinstance(kind, pa.BaseExtensionType):
        return is_taken_here(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return is_taken_here(kind.value_type)
    if kind in _VIEWS or pa.types.is_union(kind):
        return True
    return any(is_taken_here(kind.field(i).type) for i in range(kind.num_fields))


def _take_views(column: pa.Array, indices: pa.Array) -> pa.Array:
    """They are 16 bytes each; the texts stay where they are."""
    nulls = None
    if column.null_count or indices.null_count:
        valid = column.is_valid().take(indices).fill_null(False)
        nulls = valid.buffers()[1]
        indices = indices.fill_null(0)
    _, views, *texts = column.buffers()
    rows = numpy_of(indices)
    held = np.frombuffer(views, dtype="V16", count=column.offset + len(column))[column.offset :]
    taken = held.take(rows) if len(held) else np.zeros(len(rows), dtype="V16")
    buffers = [nulls, pa.py_buffer(taken.view(np.uint8)), *texts]
    return pa.Array.from_buffers(column.type, len(rows), buffers)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_map(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def _take_lists(column: pa.Array, indices: pa.Array) -> pa.Array:
    """Their items are taken by themselves."""
    kind, count = column.type, len(indices)
    if not len(column):
        return null_array(count, kind)
    rows = numpy_of(indices.fill_null(0)).astype(np.int64)
    valid = column.is_valid().take(indices).fill_null(False)
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        at = (column.offset + rows).repeat(size) * size + np.tile(np.arange(size), count)
        ends: list[pa.Buffer] = []
    else:
        offsets = numpy_of(column.offsets)
        starts = offsets[rows].astype(np.int64)
        lengths = np.where(numpy_of(valid), offsets[rows + 1] - starts, 0)
        behind = lengths.cumsum()
        if count and behind[-1] > np.iinfo(offsets.dtype).max:
            raise pa.ArrowInvalid(f"{behind[-1]} items are too many for a column of type {kind}")
        at = np.arange(int(lengths.sum())) + (starts - behind + lengths).repeat(lengths)
        ends = [pa.py_buffer(np.concatenate([[0], behind]).astype(offsets.dtype))]
    items = take_column(column.values, pa.array(at))
    buffers = [pa.concat_arrays([valid]).buffers()[1], *ends]
    return pa.Array.from_buffers(kind, count, buffers, children=[items])


def _take_union(column: pa.UnionArray, indices: pa.Array) -> pa.Array:
    """Each kind's values are taken by themselves, without gaps. A null index gives a null of the
    first kind."""
    kind, count = column.type, len(indices)
    if not len(column):
        return null_array(count, kind)
    rows = numpy_of(indices.fill_null(0)) if indices.null_count else numpy_of(indices)
    codes, places = codes_of(column)[rows], places_of(column)[rows]
    missing = numpy_of(indices.is_null()) if indices.null_count else None
    if missing is not None:
        codes = np.where(missing, np.int8(kind.type_codes[0]), codes)
    fresh = np.zeros(count, dtype=np.int32)
    children = []
    for at, code in enumerate(kind.type_codes):
        mine = np.flatnonzero(codes == code)
        fresh[mine] = np.arange(len(mine), dtype=np.int32)
        mask = None if missing is None else missing[mine]
        children.append(take_column(column.field(at), pa.array(places[mine], mask=mask)))
    return _dense(kind, codes, fresh, children)


__all__ = [
    "codes_of",
    "fields_of",
    "is_taken_here",
    "null_array",
    "picked",
    "places_of",
    "take_column",
    "take_rows",
    "take_table",
]
