"""How large a batch is on the wire, and how to keep foreign bytes off it.

A slice of most columns is cut by Arrow's writer. Two kinds are not: views (`string_view` and the
like) refer to data buffers that slices and `take` share with the whole parent, and dictionaries
travel whole. Both are rebuilt here when they carry much more than their own rows need.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import taking
from ...core.arrays import numpy_of
from ...core.batch import Batch, ColumnBatch
from ...core.taking import codes_of, fields_of, picked, places_of
from ...core.union_type import UnionType, rows_of_kind

INLINE: Final = 12
"""Bytes of the longest string that a view holds itself."""

Shape = Literal["plain", "views", "dictionaries"]


@lru_cache(maxsize=256)
def _layout(schema: pa.Schema) -> tuple[Shape, int]:
    """What the columns need, and the bits per row (-1 when rows differ in size)."""
    types = list(schema.types)
    bits = 0
    for kind in types:
        width = _bits(kind)
        if width < 0:
            bits = -1
            break
        bits += width
    if any(_contains(kind, pa.types.is_dictionary) for kind in types):
        return "dictionaries", -1
    if any(_contains(kind, _is_view) for kind in types):
        return "views", -1
    return "plain", bits


_latest: list[tuple[pa.Schema, tuple[Shape, int]]] = []
"""The schema asked for last and its layout: comparing schemas is much cheaper than hashing one."""


def _layout_of(schema: pa.Schema) -> tuple[Shape, int]:
    for known, layout in _latest:
        if schema.equals(known):
            return layout
    layout = _layout(schema)
    _latest[:] = [(schema, layout)]
    return layout


def shape_of(schema: pa.Schema) -> Shape:
    return _layout_of(schema)[0]


def wire_bytes(batch: Batch, object_bytes: float) -> int:
    """About how many payload bytes the batch takes, at least 1. `object_bytes`: per value."""
    if not isinstance(batch, ColumnBatch):
        stamp = 0 if batch.timestamps is None else 8
        return max(1, int(len(batch) * (object_bytes + stamp)))
    rows = len(batch)
    extra = 0 if batch.timestamps is None else 8 * rows
    shape, bits = _layout_of(batch.data.schema)
    if bits >= 0:
        return max(1, (bits * rows + 7) // 8 + extra)
    if shape == "views":
        return sum(map(_own_bytes, batch.data.columns)) + extra + 1
    return int(batch.data.nbytes) + extra + 1


def compacted(data: pa.RecordBatch) -> pa.RecordBatch:
    """The same batch, without what only its parents need."""
    if shape_of(data.schema) == "plain":
        return data
    return pa.RecordBatch.from_arrays([_compact(c) for c in data.columns], schema=data.schema)


def take_column(array: Any, indices: Any) -> Any:
    """`array.take(indices)`, also for views, for which Arrow has no such kernel."""
    kind = array.type
    if isinstance(kind, UnionType):
        return taking.take_column(array, indices)
    if not _contains(kind, _is_flat_view):
        return array.take(indices)
    return array.cast(_without_views(kind)).take(indices).cast(kind)


def _compact(array: Any) -> Any:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _compact_dictionary(array)
    if isinstance(kind, UnionType):
        return _compact_union(array)
    if not _contains(kind, _is_view):
        return array
    if _is_flat_view(kind) and array.get_total_buffer_size() <= 2 * _own_bytes(array) + 1024:
        return array
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        return _compact_list_view(array)
    try:
        plain = array.cast(_without_views(kind))
        if pa.types.is_nested(kind):  # the cast of a sliced list keeps what lies before the slice
            plain = plain.take(pa.array(np.arange(len(plain))))
        return plain.cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return array  # correct as it is, only larger than it need be


def _compact_dictionary(array: Any) -> Any:
    if len(array.dictionary) <= len(array):
        return array
    used = pc.unique(array.indices.drop_null())
    indices = pc.index_in(array.indices, used).cast(array.indices.type)
    values = array.dictionary.take(used)
    return pa.DictionaryArray.from_arrays(indices, values, ordered=array.type.ordered)


def _compact_union(array: Any) -> Any:
    """Arrow's writer cuts the rows of each kind; what they refer to is cut here."""
    kind = array.type
    codes, places, rows = codes_of(array.storage), places_of(array.storage), []
    places = places.copy()
    for code, name in enumerate(kind.kinds):
        mine = np.flatnonzero(codes == code)
        own = picked(array.storage.field(code), places[mine])
        places[mine] = np.arange(len(mine), dtype=np.int32)
        fields = [_compact(field) for field in fields_of(own)]
        missing = own.is_null() if own.null_count else None
        struct = list(kind.rows_type(name))
        rows.append(pa.StructArray.from_arrays(fields, fields=struct, mask=missing))
    return kind.assembled(codes, places, rows)


def _compact_list_view(array: Any) -> Any:
    lengths = numpy_of(pc.fill_null(pc.list_value_length(array), 0))
    large = pa.types.is_large_list_view(array.type)
    starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    number = np.int64 if large else np.int32
    make = pa.LargeListViewArray if large else pa.ListViewArray
    return make.from_arrays(
        pa.array(starts.astype(number)),
        pa.array(lengths.astype(number)),
        _compact(array.flatten()),
        type=array.type,
        mask=array.is_null(),
    )


def _own_bytes(array: Any) -> int:
    """Bytes of the array's own rows, also where it shares its data buffers."""
    if isinstance(array.type, UnionType):
        rows = (rows_of_kind(array, kind)[0] for kind in array.type.kinds)
        return 5 * len(array) + sum(_own_bytes(field) for own in rows for field in fields_of(own))
    if not _is_flat_view(array.type) or not len(array):
        return int(array.nbytes)
    views = np.frombuffer(array.buffers()[1], dtype="<i4", count=4 * (array.offset + len(array)))
    lengths = views[4 * array.offset :: 4]  # a view is (length, ...): up to 12 bytes lie within it
    if array.null_count:
        lengths = lengths[numpy_of(array.is_valid())]
    return 16 * len(array) + int(lengths[lengths > INLINE].sum(dtype=np.int64))


def _bits(kind: pa.DataType) -> int:
    try:
        return int(kind.bit_width) + 1 if not pa.types.is_nested(kind) else -1
    except ValueError:
        return 0 if pa.types.is_null(kind) else -1


def _is_flat_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_view(kind: pa.DataType) -> bool:
    nested = pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind)
    return _is_flat_view(kind) or bool(nested)


def _contains(kind: pa.DataType, test: Any) -> bool:
    if test(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _contains(kind.storage_type, test)
    if pa.types.is_dictionary(kind):
        return _contains(kind.value_type, test)
    return any(_contains(kind.field(i).type, test) for i in range(kind.num_fields))


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(i)) for i in range(kind.num_fields)])
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_without_views(field.type))
