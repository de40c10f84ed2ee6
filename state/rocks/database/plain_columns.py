"""Columns of any type as columns of the types that have bytes (`tables.value_bytes`), and back.

    type                                            plain
    extension types                                 what they are stored as
    dictionaries                                    their values
    texts and bytes as views, bytes of no width     texts and bytes with 64-bit offsets
    maps, lists of one size, views of lists         lists
    null                                            truth values, all null

Values come back as they were, those within nulls of lists or structs included. Dictionaries are
made anew, so they may have their values in another order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Bools, Int64s, numpy_of
from ...hash_columns import validity_of
from ...object_keys import ObjectKeyType


def has_plain(kind: pa.DataType) -> bool:
    """Whether columns of the type have a plain form: all but codes of objects, unions, and what is
    encoded by runs."""
    if isinstance(kind, pa.BaseExtensionType):
        return not isinstance(kind, ObjectKeyType) and has_plain(kind.storage_type)
    if pa.types.is_union(kind) or pa.types.is_run_end_encoded(kind):
        return False
    if pa.types.is_dictionary(kind):
        return has_plain(kind.value_type)
    return all(has_plain(kind.field(at).type) for at in range(kind.num_fields))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The plain type of one that has one."""
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_null(kind):
        return pa.bool_()
    if kind == pa.string_view():
        return pa.large_string()
    if kind in (pa.binary_view(), pa.binary(0)):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.list_(plain_type(kind.field(0).type))
    if pa.types.is_list(kind):
        return pa.list_(plain_type(kind.value_type))
    return pa.large_list(plain_type(kind.value_type)) if kind.num_fields else kind


def to_plain(array: pa.Array) -> pa.Array:
    """A column of a type that has a plain one."""
    kind = array.type
    plain = plain_type(kind)
    if isinstance(kind, pa.BaseExtensionType):
        return to_plain(array.storage)
    if pa.types.is_dictionary(kind):
        if not len(array.dictionary):  # within nulls there are indices all the same
            return pa.nulls(len(array), plain)
        return to_plain(array.dictionary).take(array.indices)
    if pa.types.is_null(kind):
        return pa.nulls(len(array), plain)
    if pa.types.is_struct(kind):
        fields = [to_plain(array.field(at)) for at in range(kind.num_fields)]
        return pa.Array.from_buffers(plain, len(array), [_mask(array)], children=fields)
    if pa.types.is_nested(kind):
        offsets, items = _items(array)
        held = offsets.astype(np.int32) if pa.types.is_list(plain) else offsets
        buffers = [_mask(array), pa.py_buffer(held)]
        return pa.Array.from_buffers(plain, len(array), buffers, children=[items])
    return array if kind == plain else array.cast(plain)


def from_plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column of that type, of its plain form."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, from_plain(array, kind.storage_type))
    if pa.types.is_dictionary(kind):
        return _encoded(array, kind)
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    if pa.types.is_struct(kind):
        fields = [from_plain(array.field(at), kind.field(at).type) for at in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), [_mask(array)], children=fields)
    if pa.types.is_nested(kind):
        return _listed(array, kind)
    return array if array.type == kind else array.cast(kind)


def _items(array: pa.Array) -> tuple[Int64s, pa.Array]:
    """Of lists of any kind, where the items of each begin and where the last ones end, and the
    items."""
    kind, count = array.type, len(array)
    if pa.types.is_fixed_size_list(kind):
        size, start = kind.list_size, array.offset
        items = to_plain(array.values.slice(start * size, count * size))
        return np.arange(count + 1) * size, items
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        starts, sizes = (numpy_of(one).astype(np.int64) for one in (array.offsets, array.sizes))
        sizes = np.where(validity_of(array), sizes, 0)
        ends = _ends(sizes)
        at = np.repeat(starts - ends[:-1], sizes) + np.arange(int(ends[-1]))
        return ends, to_plain(array.values).take(pa.array(at))
    offsets = numpy_of(array.offsets).astype(np.int64) if count else np.zeros(1, np.int64)
    first = int(offsets[0])
    return offsets - first, to_plain(array.values.slice(first, int(offsets[-1]) - first))


def _listed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists of any kind, of plain lists."""
    count = len(array)
    offsets = numpy_of(array.offsets).astype(np.int64) if count else np.zeros(1, np.int64)
    first = int(offsets[0])
    offsets = offsets - first
    items = array.values.slice(first, int(offsets[-1]))
    buffers = [_mask(array)]
    if pa.types.is_fixed_size_list(kind):
        items = _filled_up(items, offsets, kind.list_size)
    elif pa.types.is_list_view(kind):
        buffers += [pa.py_buffer(one.astype(np.int32)) for one in (offsets[:-1], np.diff(offsets))]
    elif pa.types.is_large_list_view(kind):
        buffers += [pa.py_buffer(one) for one in (offsets[:-1].copy(), np.diff(offsets))]
    else:
        wide = pa.types.is_large_list(kind)
        buffers.append(pa.py_buffer(offsets if wide else offsets.astype(np.int32)))
    children = [from_plain(items, kind.field(0).type)]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _filled_up(items: pa.Array, offsets: Int64s, size: int) -> pa.Array:
    """Items of lists of one size, where those of null may be missing."""
    sizes = np.diff(offsets)
    if (sizes == size).all():
        return items
    at: npt.NDArray[Any] = offsets[:-1, None] + np.arange(size)
    missing = np.repeat(sizes != size, size)
    return items.take(pa.array(at.reshape(-1), mask=missing))


def _encoded(array: pa.Array, kind: pa.DictionaryType) -> pa.Array:
    """A dictionary of the distinct values; of types of which Arrow cannot find these, of all."""
    try:
        encoded = array.dictionary_encode()
        indices, values = encoded.indices, encoded.dictionary
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        missing: Bools = ~validity_of(array)
        indices, values = pa.array(np.arange(len(array)), mask=missing), array
    return pa.DictionaryArray.from_arrays(
        indices.cast(kind.index_type), from_plain(values, kind.value_type), ordered=kind.ordered
    )


def _mask(array: pa.Array) -> pa.Buffer | None:
    """Which values are not null, from the first bit on; None if none is null."""
    if not array.null_count:
        return None
    return pa.py_buffer(np.packbits(validity_of(array), bitorder="little"))


def _ends(sizes: Int64s) -> Int64s:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends
