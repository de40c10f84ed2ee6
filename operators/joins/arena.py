"""Rows in growing columns, gathered by number: what joins keep their sides in.

Arrow gathers in time proportional to what is gathered from one contiguous array only, and an array
cannot grow. Here numbers lie in arrays with room to spare; texts and bytes stay in the buffers of
the batches they came in, and each row knows the address of its own. So adding a row costs a few
words, and any rows are gathered in O(rows), from however many batches they came. Gathering texts
from 100 chunks by Arrow was measured: 30 times as long, because it joins them first, each time.
Copying texts into one growing buffer was, too: 2 to 3 times the cost of adding a Nexmark bid.

Rows are append-only, so a table made of the buffers (`stored`) stays as it is while the arena
grows; making one copies nothing. Columns are kept plain: texts and bytes with 64-bit offsets,
dictionaries as their values (`storage_type`); `gather` gives the declared types back.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.batch import take_column
from ...state.column_index import storage_type
from ...state.hash_columns import slices_of, validity_of
from .growing import Grower

Int64s = npt.NDArray[np.int64]

_SMALL = 8192
"""Texts of batches are joined up to so many rows: each batch by itself costs some hundred bytes."""


class _Column(Protocol):
    def append(self, column: pa.Array) -> None:
        """Values of the storage type."""
        ...

    def gather(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
        """Values of the storage type; `valid` is false where the row is -1, None if none is."""
        ...

    def stored(self) -> pa.Array | pa.ChunkedArray: ...


class _Validity:
    """Which values are not null. Kept only once there has been a null."""

    def __init__(self) -> None:
        self._bits: Grower | None = None

    def append(self, column: pa.Array, before: int) -> None:
        if self._bits is None and column.null_count:
            self._bits = Grower(np.bool_)
            self._bits.append(np.ones(before, dtype=np.bool_))
        if self._bits is not None:
            self._bits.append(validity_of(column))

    def of(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
        if self._bits is None:
            return valid
        found = self._bits.array[rows]
        return found if valid is None else found & valid

    def bitmap(self) -> pa.Buffer | None:
        return None if self._bits is None else bitmap(self._bits.used)


class _Fixed:
    """Values of a fixed number of bytes (1, 2, 4, 8 or 16)."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        width = kind.bit_width // 8
        self._width = width
        self._values = Grower(np.dtype(f"V{width}") if width > 8 else np.dtype(f"i{width}"))
        self._valid = _Validity()

    def append(self, column: pa.Array) -> None:
        self._valid.append(column, self._values.length)
        dtype = self._values.array.dtype
        start = column.offset * self._width
        values = np.frombuffer(column.buffers()[1], np.uint8)[
            start : start + len(column) * self._width
        ]
        self._values.append(values.view(dtype))

    def gather(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
        values = self._values.array.take(rows, mode="wrap")
        return self._made(len(rows), bitmap(self._valid.of(rows, valid)), values)

    def stored(self) -> pa.Array:
        values = self._values.used
        return self._made(len(values), self._valid.bitmap(), values)

    def _made(self, count: int, nulls: pa.Buffer | None, values: npt.NDArray[Any]) -> pa.Array:
        buffer = pa.py_buffer(values.view(np.uint8))
        return pa.Array.from_buffers(self._kind, count, [nulls, buffer])


class _Bytes:
    """Texts or bytes, left in the batches they came in; only where each begins is written down.
    Small batches are joined into larger ones."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[pa.Array] = []
        self._starts = Grower(np.int64)
        self._lengths = Grower(np.int64)
        self._valid = _Validity()

    def append(self, column: pa.Array) -> None:
        self._valid.append(column, self._starts.length)
        self._chunks.append(column)
        starts, lengths = _extents(column)
        self._starts.append(starts)
        self._lengths.append(lengths)
        joined = False
        while self._joinable():
            last = self._chunks.pop()
            self._chunks[-1] = pa.concat_arrays([self._chunks[-1], last])
            joined = True
        if joined:
            moved, _ = _extents(self._chunks[-1])
            self._starts.used[-len(moved) :] = moved

    def gather(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
        from ..kernels.gather import gather_bytes, gather_ends

        ends = np.empty(len(rows) + 1, dtype=np.int64)
        data = np.empty(gather_ends(self._lengths.array, rows, ends), dtype=np.uint8)
        gather_bytes(self._starts.array, rows, ends, data)
        nulls = bitmap(self._valid.of(rows, valid))
        buffers = [nulls, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(self._kind, len(rows), buffers)

    def stored(self) -> pa.ChunkedArray:
        return pa.chunked_array(self._chunks, type=self._kind)

    def _joinable(self) -> bool:
        if len(self._chunks) < 2:
            return False
        before, last = map(len, self._chunks[-2:])
        return before <= 2 * last and before + last <= _SMALL


class _Other:
    """Any other type (lists, structs, booleans, ...), as Arrow arrays, joined when gathered."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[pa.Array] = []

    def append(self, column: pa.Array) -> None:
        self._chunks.append(column)
        while len(self._chunks) > 1 and len(self._chunks[-2]) <= 2 * len(self._chunks[-1]):
            last = self._chunks.pop()
            self._chunks[-1] = pa.concat_arrays([self._chunks[-1], last])

    def gather(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
        indices = pa.array(rows, mask=None if valid is None else ~valid)
        starts = np.cumsum([0, *map(len, self._chunks)])
        chunk = np.searchsorted(starts, rows, side="right") - 1
        touched = np.unique(np.maximum(chunk, 0))
        if len(touched) <= 1:
            at = int(touched[0]) if len(touched) else 0
            local = pa.array(rows - starts[at], mask=None if valid is None else ~valid)
            return take_column(self._chunks[at], local)
        return take_column(self.stored(), indices)

    def stored(self) -> pa.Array:
        if len(self._chunks) > 1:
            self._chunks = [pa.concat_arrays(self._chunks)]
        return self._chunks[0] if self._chunks else pa.array([], type=self._kind)


class Arena:
    """Rows of one schema, numbered as they were appended."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.stored_schema = pa.schema([pa.field(f.name, _stored_type(f.type)) for f in schema])
        self._columns = [_column(kind) for kind in self.stored_schema.types]
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows of `schema`, or of `stored_schema`."""
        if not rows.num_rows:
            return
        kinds = self.stored_schema.types
        for column, array, kind in zip(self._columns, rows.columns, kinds, strict=True):
            column.append(array if array.type == kind else _plain(array, kind))
        self._length += rows.num_rows

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """These rows of these columns (None: of all), of the types of `schema`. Nulls for -1."""
        missing = rows < 0
        valid = ~missing if missing.any() else None
        chosen = range(len(self._columns)) if columns is None else columns
        if valid is not None and not self._length:
            return [pa.nulls(len(rows), self.schema.field(at).type) for at in chosen]
        return [
            _declared(self._columns[at].gather(rows, valid), self.schema.field(at).type)
            for at in chosen
        ]

    def stored(self) -> list[pa.Array | pa.ChunkedArray]:
        """All rows, of the types of `stored_schema`. They share the buffers and stay as they are
        while the arena grows."""
        return [column.stored() for column in self._columns]


def bitmap(valid: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    """Arrow's validity buffer; None where nothing is null."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The types that columns are kept in."""
    return pa.schema([pa.field(f.name, _stored_type(f.type)) for f in schema])


def to_stored(data: pa.RecordBatch) -> pa.RecordBatch:
    """The columns in the types they are kept in."""
    schema = stored_schema(data.schema)
    arrays = [_plain(a, kind) for a, kind in zip(data.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _extents(column: pa.Array) -> tuple[Int64s, Int64s]:
    """Where in memory each value of a large_string or large_binary column begins, and its
    length."""
    _, offsets = slices_of(column)
    data = column.buffers()[2]
    starts = offsets[:-1] + (0 if data is None else data.address)
    return starts, np.diff(offsets)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    plain = storage_type(kind)
    if pa.types.is_string(plain):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(plain) else plain


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == kind else array.cast(kind)


def _declared(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    return (array.dictionary_encode() if pa.types.is_dictionary(kind) else array).cast(kind)


def _column(kind: pa.DataType) -> _Column:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _Bytes(kind)
    fixed = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if fixed and kind.bit_width in (8, 16, 32, 64, 128):
        return _Fixed(kind)
    return _Other(kind)
