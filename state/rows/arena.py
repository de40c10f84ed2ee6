"""Rows in growing columns, gathered by number.

Arrow gathers in time proportional to what is gathered from one contiguous array only, and an array
cannot grow. Here numbers lie in arrays with room to spare, texts and bytes in blocks of so many
rows; a block that is full is never touched again. So any rows are gathered in O(rows). Gathering
texts from 100 chunks by Arrow was measured: 30 times as long, because it joins them first, each
time. Leaving texts in the batches they came in was, too: it keeps each batch alive as it came over
the wire, numbers included, and took twice the memory.

Rows are append-only, so the buffers are frozen by looking at them: what comes later lies behind
what was there, and an array that has no more room is copied while somebody looks. Columns are kept
plain: texts and bytes with 64-bit offsets, dictionaries as their values (`storage_type`); `gather`
gives the declared types back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import take_column
from ...core.errors import StateError
from ...core.growing import GrowingList
from ...core.taking import null_array
from ...core.value_types import empty_array
from ..column_index import storage_type
from ..hash_columns import slices_of, validity_of

MAX_ROWS = 2**31 - 1
"""So that numbers of rows are int32."""

BLOCK_BITS = 14
BLOCK_ROWS = 1 << BLOCK_BITS
"""Rows whose texts lie in one piece: a multiple of 8, so that validity bits can be cut."""

Frozen = Callable[[], pa.Array]
"""Makes a column as it was when frozen, on any thread."""


class _Column(Protocol):
    def append(self, column: pa.Array) -> None:
        """Values of the storage type."""
        ...

    def gather(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
        """Values of the storage type; `valid` is false where the row is -1, None if none is."""
        ...

    def freeze(self) -> Frozen: ...

    @property
    def nbytes(self) -> int: ...


class _Validity:
    """Which values are not null. Kept only once there has been a null."""

    def __init__(self) -> None:
        self._bits: GrowingList | None = None

    def append(self, column: pa.Array, before: int) -> None:
        if self._bits is None and column.null_count:
            self._bits = GrowingList(np.bool_)
            self._bits.append(np.ones(before, dtype=np.bool_))
        if self._bits is not None:
            self._bits.append(validity_of(column))

    def of(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
        if self._bits is None:
            return valid
        found = self._bits.array[rows]
        return found if valid is None else found & valid

    def freeze(self) -> npt.NDArray[np.bool_] | None:
        """All of them as they are now; None if nothing is null."""
        return None if self._bits is None else self._bits.used

    @property
    def nbytes(self) -> int:
        return 0 if self._bits is None else self._bits.array.nbytes


class _Fixed:
    """Values of a fixed number of bytes (1, 2, 4, 8 or 16)."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        width = kind.bit_width // 8
        self._width = width
        self._values = GrowingList(np.dtype(f"V{width}") if width > 8 else np.dtype(f"i{width}"))
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

    def freeze(self) -> Frozen:
        values, valid = self._values.used, self._valid.freeze()
        return lambda: self._made(len(values), bitmap(valid), values)

    @property
    def nbytes(self) -> int:
        return self._values.array.nbytes + self._valid.nbytes

    def _made(self, count: int, nulls: pa.Buffer | None, values: npt.NDArray[Any]) -> pa.Array:
        buffer = pa.py_buffer(values.view(np.uint8))
        return pa.Array.from_buffers(self._kind, count, [nulls, buffer])


class _Bytes:
    """Texts or bytes, copied into blocks of BLOCK_ROWS rows. A block has one offset more than rows:
    row r begins at `_offsets[r + r // BLOCK_ROWS]` of its block."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._blocks: list[npt.NDArray[np.uint8]] = []
        """All but the last are complete and are never written again."""
        self._used = 0
        """Bytes of the last block."""
        self._shared = False
        """Whether a freeze may look at the last block: it is only written behind what is there."""
        self._starts = GrowingList(np.int64)
        """Where in memory each block begins."""
        self._offsets = GrowingList(np.int64)
        self._length = 0
        self._valid = _Validity()

    def append(self, column: pa.Array) -> None:
        self._valid.append(column, self._length)
        data, offsets = slices_of(column)
        first = 0
        while first < len(column):
            room = BLOCK_ROWS - self._length % BLOCK_ROWS
            if room == BLOCK_ROWS:
                self._begin()
            last = min(len(column), first + room)
            self._copy(data, offsets[first : last + 1])
            first = last

    def gather(self, rows: Int64s, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
        nulls = bitmap(self._valid.of(rows, valid))
        return gathered(
            self._kind, self._starts.array, self._offsets.array, BLOCK_BITS, rows, nulls
        )

    def freeze(self) -> Frozen:
        blocks, offsets, valid = list(self._blocks), self._offsets.used, self._valid.freeze()
        length, kind, self._shared = self._length, self._kind, True
        return lambda: _joined_blocks(kind, blocks, offsets, length, bitmap(valid))

    @property
    def nbytes(self) -> int:
        blocks = sum(block.nbytes for block in self._blocks)
        return blocks + self._offsets.array.nbytes + self._starts.array.nbytes + self._valid.nbytes

    def _begin(self) -> None:
        """A new block, with room for a little more than the one before has, which is complete."""
        if self._blocks:
            if self._shared:
                self._blocks[-1] = self._blocks[-1][: self._used].copy()
            else:
                self._blocks[-1].resize(self._used, refcheck=False)
            self._starts.used[-1] = self._blocks[-1].ctypes.data
        self._shared = False
        self._blocks.append(np.empty(self._used * 17 // 16, dtype=np.uint8))
        self._used = 0
        self._starts.extend(1)
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def _copy(self, data: npt.NDArray[np.uint8], offsets: Int64s) -> None:
        """Values data[offsets[0]:offsets[1]], ... into the last block, which has rows left."""
        block, begin = self._blocks[-1], self._used
        self._used += int(offsets[-1] - offsets[0])
        if self._used > len(block):
            block = np.empty(max(self._used, len(block) * 3 // 2), dtype=np.uint8)
            block[:begin] = self._blocks[-1][:begin]
            self._blocks[-1], self._shared = block, False
        block[begin : self._used] = data[offsets[0] : offsets[-1]]
        self._starts.used[-1] = block.ctypes.data
        self._offsets.append(offsets[1:] + (begin - offsets[0]))
        self._length += len(offsets) - 1


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
        if len(self._chunks) > 1:
            self._chunks = [pa.concat_arrays(self._chunks)]
        return take_column(self._chunks[0], indices)

    def freeze(self) -> Frozen:
        chunks, kind = list(self._chunks), self._kind
        return lambda: pa.concat_arrays([empty_array(kind), *chunks])

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self._chunks)


class LogArena(Protocol):
    """Rows of one schema, numbered as they were appended."""

    stored_schema: pa.Schema

    def __len__(self) -> int: ...

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows of `schema`, or of `stored_schema`."""
        ...

    def append_from(self, other: Any, rows: Int64s) -> None:
        """Add rows of another one of the same kind and schema."""
        ...

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        """These rows of these columns (None: of all), of the types of `schema`. Nulls for -1."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        ...


class Arena:
    """See `LogArena`. All of it in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.stored_schema = stored_schema(schema)
        self._columns = [_column(kind) for kind in self.stored_schema.types]
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        refuse_too_many(self._length + rows.num_rows, self.schema)
        kinds = self.stored_schema.types
        for column, array, kind in zip(self._columns, rows.columns, kinds, strict=True):
            column.append(array if array.type == kind else _plain(array, kind))
        self._length += rows.num_rows

    def append_from(self, other: Arena, rows: Int64s) -> None:
        self.append(pa.RecordBatch.from_arrays(other.gather(rows), schema=self.schema))

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        missing = rows < 0
        valid = ~missing if missing.any() else None
        chosen = range(len(self._columns)) if columns is None else columns
        if not self._length:
            return [null_array(len(rows), self.schema.field(at).type) for at in chosen]
        return [
            as_kind(self._columns[at].gather(rows, valid), self.schema.field(at).type)
            for at in chosen
        ]

    def freeze(self) -> Callable[[], pa.RecordBatch]:
        """Makes all rows that are here now, of `stored_schema`, later and on any thread. Nothing is
        copied; the arena may grow meanwhile."""
        columns, schema = [column.freeze() for column in self._columns], self.stored_schema
        return lambda: pa.RecordBatch.from_arrays([made() for made in columns], schema=schema)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns)


def refuse_too_many(count: int, schema: pa.Schema) -> None:
    """StateError if a log cannot have so many rows."""
    if count > MAX_ROWS:
        raise StateError(
            f"one subtask would keep {count} rows of columns {schema.names}; {MAX_ROWS} are "
            "possible: raise the parallelism, or let rows expire (ttl)"
        )


def gathered(
    kind: pa.DataType,
    starts: Int64s,
    offsets: Int64s,
    bits: int,
    rows: Int64s,
    nulls: pa.Buffer | None,
) -> pa.Array:
    """Texts or bytes of blocks (see `gather_kernels`), as `kind`: one with 64-bit offsets."""
    from ..gather_kernels import gather_bytes, gather_ends

    ends = np.empty(len(rows) + 1, dtype=np.int64)
    data = np.empty(gather_ends(offsets, bits, rows, ends), dtype=np.uint8)
    gather_bytes(starts, offsets, bits, rows, ends, data)
    buffers = [nulls, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(rows), buffers)


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


def from_stored(data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns in their declared types."""
    arrays = [as_kind(a, kind) for a, kind in zip(data.columns, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _joined_blocks(
    kind: pa.DataType,
    blocks: list[npt.NDArray[np.uint8]],
    offsets: Int64s,
    length: int,
    nulls: pa.Buffer | None,
) -> pa.Array:
    """The first `length` values of blocks, as they were frozen."""
    chunks = [empty_array(kind)]
    for number, block in enumerate(blocks):
        first = number * BLOCK_ROWS
        count = min(BLOCK_ROWS, length - first)
        ends = offsets[first + number : first + number + count + 1]
        bits = None if nulls is None else nulls.slice(first // 8)
        buffers = [bits, pa.py_buffer(ends), pa.py_buffer(block[: ends[-1]])]
        chunks.append(pa.Array.from_buffers(kind, count, buffers))
    return pa.concat_arrays(chunks)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    plain = storage_type(kind)
    if pa.types.is_string(plain):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(plain) else plain


def _plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type == kind else array.cast(kind)


def as_kind(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as it was kept, of its declared type."""
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
