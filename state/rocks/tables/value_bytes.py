"""Values of Arrow types as bytes of rows, and back, whole columns at once.

A column has in each row a number of items: one, or those of the row's list. Of each column a row
has, one behind the other:

    flag (1 byte): whether items are null; if so, a byte per item, 1 for those that are not
    numbers, times, decimals, truth values: the items, of one width
    texts and bytes:                        the length of each item (4 bytes), the items
    lists:                                  the length of each item (4 bytes), their items
    structs:                                their fields

All is little-endian. Incremental checkpoints hold these bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Int64s, numpy_of
from ....core.errors import StateError
from ...hash_columns import slices_of, validity_of
from ...rows.texts import is_text, wide_text

Bytes = npt.NDArray[np.uint8]


def has_bytes(kind: pa.DataType) -> bool:
    """Whether values of the type have bytes here: all but objects, maps, unions, and what is
    encoded or a view within lists."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_struct(kind):
        return all(has_bytes(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return has_bytes(kind.value_type)
    return _is_plain_text(kind) or pa.types.is_boolean(kind) or _width(kind) > 0


def _is_plain_text(kind: pa.DataType) -> bool:
    """Or bytes."""
    views = pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    return is_text(kind) and not views and not pa.types.is_fixed_size_binary(kind)


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; 0 where they differ."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width)
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return int(kind.bit_width) // 8
    return 0


@dataclass(frozen=True)
class Segment:
    """A part of each row: `sizes[i]` bytes of `data` from `begins[i]` on."""

    data: Bytes
    begins: Int64s
    sizes: Int64s


def fixed_segment(rows: npt.NDArray[Any]) -> Segment:
    """Of as many bytes in each row."""
    count, width = len(rows), rows.dtype.itemsize
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(-1)
    return Segment(data, np.arange(count) * width, np.full(count, width, np.int64))


def counted_segment(items: npt.NDArray[Any], counts: Int64s) -> Segment:
    """Of so many of these items in each row, as bytes."""
    width = items.dtype.itemsize
    data = np.ascontiguousarray(items).view(np.uint8).reshape(-1)
    return Segment(data, _bounds(counts)[:-1] * width, counts * width)


def segments_of(array: pa.Array, counts: Int64s | None = None) -> list[Segment]:
    """Of a column with so many values in each row; None: one."""
    return _segments(array, np.arange(len(array) + 1) if counts is None else _bounds(counts))


def _bounds(counts: Int64s) -> Int64s:
    """Where so many items of each row begin, and where the last ones end."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])


def joined(segments: Sequence[Segment], count: int) -> list[bytes]:
    """So many rows, made of these parts."""
    from ... import block_kernels as blocks

    ends = np.zeros(count + 1, np.int64)
    for segment in segments:
        ends[1:] += segment.sizes
    np.cumsum(ends, out=ends)
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends[:-1].copy()
    for segment in segments:
        blocks.put_bytes(at, segment.sizes, segment.data, segment.begins, out)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(out)]
    rows: list[bytes] = pa.Array.from_buffers(pa.large_binary(), count, buffers).to_pylist()
    return rows


def _segments(array: pa.Array, bounds: Int64s) -> list[Segment]:
    """`bounds`: where the items of each row begin, and where the last ones end."""
    kind, begins, sizes = array.type, bounds[:-1], np.diff(bounds)
    parts = [_flags(array, bounds)]
    if array.null_count:
        valid = validity_of(array).view(np.uint8)
        flagged = parts[0].data.astype(np.bool_)
        parts.append(Segment(valid, begins, np.where(flagged, sizes, 0)))
    if pa.types.is_struct(kind):
        for at in range(kind.num_fields):
            parts += _segments(array.field(at), bounds)
        return parts
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        offsets = numpy_of(array.offsets).astype(np.int64)
        items = array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        inner = (offsets - offsets[0])[bounds]
        return [*parts, _lengths(offsets, begins, sizes), *_segments(items, inner)]
    if _is_plain_text(kind):
        data, offsets = slices_of(array if array.type == wide_text(kind) else _wide(array))
        heads = offsets[bounds]
        return [*parts, _lengths(offsets, begins, sizes), Segment(data, heads[:-1], np.diff(heads))]
    width = _width(kind)
    data = _fixed_bytes(array, width)
    return [*parts, Segment(data, begins * width, sizes * width)]


def _flags(array: pa.Array, bounds: Int64s) -> Segment:
    """In which rows items are null."""
    flags = np.zeros(len(bounds) - 1, np.uint8)
    if array.null_count:
        nulls = np.zeros(len(array) + 1, np.int64)
        np.cumsum(~validity_of(array), out=nulls[1:])
        flags[:] = np.diff(nulls[bounds]) > 0
    return fixed_segment(flags)


def _lengths(offsets: Int64s, begins: Int64s, sizes: Int64s) -> Segment:
    data = np.diff(offsets).astype("<u4").view(np.uint8)
    return Segment(data, begins * 4, sizes * 4)


def _wide(array: pa.Array) -> pa.Array:
    return array.cast(wide_text(array.type))


def _fixed_bytes(array: pa.Array, width: int) -> Bytes:
    if not len(array):
        return np.empty(0, np.uint8)
    if pa.types.is_boolean(array.type):
        return numpy_of(array.fill_null(False)).view(np.uint8)
    data = np.frombuffer(array.buffers()[1], np.uint8)
    data = data[array.offset * width : (array.offset + len(array)) * width]
    if array.null_count:  # nobody knows what is there
        data = data.copy()
        data.reshape(-1, width)[~validity_of(array)] = 0
    return data


class RowReader:
    """Rows, from their beginnings on. StateError for bytes that are no row."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._data = np.frombuffer(b"".join(rows), np.uint8)
        lengths = np.fromiter([len(row) for row in rows], np.int64, len(rows))
        self._ends = np.cumsum(lengths)
        self._at = self._ends - lengths

    def fixed(self, row: np.dtype[Any], counts: Int64s | None = None) -> npt.NDArray[Any]:
        """The next so many items of each row, of this type; None: one."""
        counts = np.ones(len(self._at), np.int64) if counts is None else counts
        if not row.itemsize:
            return np.empty(int(counts.sum()), dtype=row)
        return self._taken(counts * row.itemsize).view(row)

    def values(self, kind: pa.DataType, counts: Int64s | None = None) -> pa.Array:
        """The next so many values of each row; None: one."""
        return self._items(
            kind, np.arange(len(self._at) + 1) if counts is None else _bounds(counts)
        )

    def end(self) -> None:
        """All was read."""
        if (self._at != self._ends).any():
            raise _damaged()

    def _items(self, kind: pa.DataType, bounds: Int64s) -> pa.Array:
        """The next items of each row: how many is said by `bounds`, as of `_segments`."""
        total, mask = int(bounds[-1]), self._mask(bounds)
        if pa.types.is_struct(kind):
            fields = [self._items(field.type, bounds) for field in kind]
            return pa.Array.from_buffers(kind, total, [mask], children=fields)
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            offsets = self._offsets(bounds)
            items = self._items(kind.value_type, offsets[bounds])
            held = offsets if pa.types.is_large_list(kind) else offsets.astype(np.int32)
            return pa.Array.from_buffers(kind, total, [mask, pa.py_buffer(held)], children=[items])
        if _is_plain_text(kind):
            offsets = self._offsets(bounds)
            data = self._taken(np.diff(offsets[bounds]))
            buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(data)]
            wide = pa.Array.from_buffers(wide_text(kind), total, buffers)
            return wide if wide.type == kind else wide.cast(kind)
        data = self._taken(np.diff(bounds) * _width(kind))
        if pa.types.is_boolean(kind):
            data = np.packbits(data, bitorder="little")
        return pa.Array.from_buffers(kind, total, [mask, pa.py_buffer(data)])

    def _mask(self, bounds: Int64s) -> pa.Buffer | None:
        """Which items are not null; None if none is."""
        from ... import block_kernels as blocks

        flagged = self._taken(np.ones(len(self._at), np.int64)) != 0
        if not flagged.any():
            return None
        sizes = np.where(flagged, np.diff(bounds), 0)
        self._check(sizes)
        valid = np.ones(int(bounds[-1]), np.uint8)
        blocks.put_bytes(bounds[:-1].copy(), sizes, self._data, self._at, valid)
        self._at += sizes
        return pa.py_buffer(np.packbits(valid, bitorder="little"))

    def _offsets(self, bounds: Int64s) -> Int64s:
        """Where each item begins whose lengths come next, and where the last one ends."""
        lengths = self._taken(np.diff(bounds) * 4).view("<u4")
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return offsets

    def _taken(self, sizes: Int64s) -> Bytes:
        """So many bytes of each row, joined."""
        from ... import block_kernels as blocks

        self._check(sizes)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        blocks.get_bytes(self._at, self._data, offsets, out)
        self._at += sizes
        return out

    def _check(self, sizes: Int64s) -> None:
        if (self._at + sizes > self._ends).any():
            raise _damaged()


def _damaged() -> StateError:
    return StateError(
        "a row with values in the local RocksDB has not the length that it says: the task's local "
        "files were changed by somebody else; restart the job from its last checkpoint"
    )
