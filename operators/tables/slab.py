"""Rows of fixed columns at positions, written and read in bulk, positions used again.

Numbers lie in numpy arrays by position. Text and bytes lie in one growing arena per column with
start and size by position; it is packed when more than half of it is garbage. Other types are kept
as Python objects. So replacing a row leaves no garbage that grows with the stream, and reading rows
from anywhere is one gather per column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...state.column_index import storage_type
from ...state.hash_columns import slices_of, validity_of
from ...state.key_index import as_declared
from ..columns import NO_NULLS, from_numbers, storage, to_numbers
from ..slices import Int64s

_FIRST = 1024


class RowSlab:
    """Invariant: `_free` holds distinct positions below `_end`, none of them in use."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = [_make_column(storage_type(kind)) for kind in schema.types]
        self._free = np.empty(0, dtype=np.int64)
        self._end = 0
        self._capacity = 0

    def __len__(self) -> int:
        """Rows in use."""
        return self._end - len(self._free)

    def add(self, rows: pa.RecordBatch) -> Int64s:
        """Positions of new rows, which have the types of the schema."""
        positions = self._allocate(rows.num_rows)
        for column, array in zip(self._columns, rows.columns, strict=True):
            column.write(positions, array)
        return positions

    def read(self, positions: Int64s) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        arrays = [
            as_declared(column.read(positions), kind)
            for column, kind in zip(self._columns, self._schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def column(self, index: int, positions: Int64s) -> pa.Array:
        """One column of `read`."""
        return as_declared(self._columns[index].read(positions), self._schema.types[index])

    def release(self, positions: Int64s) -> None:
        """These rows, distinct, are used no more."""
        self._free = np.concatenate([self._free, positions])

    def _allocate(self, count: int) -> Int64s:
        again = min(count, len(self._free))
        left = len(self._free) - again
        positions = np.empty(count, dtype=np.int64)
        positions[:again] = self._free[left:]
        positions[again:] = np.arange(self._end, self._end + count - again)
        self._free = self._free[:left]
        self._end += count - again
        if self._end > self._capacity:
            self._capacity = max(_FIRST, 2 * self._capacity, self._end)
            for column in self._columns:
                column.grow(self._capacity)
        return positions


class _Column(ABC):
    """Values of one column by position."""

    @abstractmethod
    def grow(self, capacity: int) -> None: ...

    @abstractmethod
    def write(self, positions: Int64s, array: pa.Array) -> None: ...

    @abstractmethod
    def read(self, positions: Int64s) -> pa.Array: ...


class _Numbers(_Column):
    """`_valid` is None until there was a null."""

    def __init__(self, kind: pa.DataType) -> None:
        held = storage(kind)
        assert held is not None
        self._kind, self._held = kind, held
        self._values: npt.NDArray[Any] = np.empty(0, dtype=held)
        self._valid: npt.NDArray[np.bool_] | None = None

    def grow(self, capacity: int) -> None:
        self._values = _longer(self._values, capacity)
        if self._valid is not None:
            self._valid = _longer(self._valid, capacity)

    def write(self, positions: Int64s, array: pa.Array) -> None:
        values, valid = to_numbers(array, self._held)
        self._values[positions] = values
        if self._valid is None and valid is not NO_NULLS:
            self._valid = np.ones(len(self._values), dtype=np.bool_)
        if self._valid is not None:
            self._valid[positions] = True if valid is NO_NULLS else valid

    def read(self, positions: Int64s) -> pa.Array:
        valid = None if self._valid is None else self._valid[positions]
        return from_numbers(self._values[positions], valid, self._kind)


class _Slices(_Column):
    """Text and bytes. `_sizes` is -1 for null; `_live` counts the arena's bytes in use."""

    def __init__(self, kind: pa.DataType) -> None:
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        self._kind = kind
        self._wide = pa.large_string() if text else pa.large_binary()
        self._starts = np.empty(0, dtype=np.int64)
        self._sizes = np.empty(0, dtype=np.int64)
        self._arena = np.empty(1 << 12, dtype=np.uint8)
        self._used = self._live = 0

    def grow(self, capacity: int) -> None:
        self._starts = _longer(self._starts, capacity)
        filled = len(self._sizes)
        self._sizes = _longer(self._sizes, capacity)
        self._sizes[filled:] = -1

    def write(self, positions: Int64s, array: pa.Array) -> None:
        wide = array if array.type == self._wide else array.cast(self._wide)
        data, offsets = slices_of(wide)
        sizes = np.diff(offsets)
        if wide.null_count:
            sizes[~validity_of(wide)] = -1
        first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
        self._live -= int(np.maximum(self._sizes[positions], 0).sum())
        self._sizes[positions] = -1
        if self._used + length > len(self._arena):
            self._make_room(length)
        self._arena[self._used : self._used + length] = data[first : first + length]
        self._starts[positions] = offsets[:-1] + (self._used - first)
        self._sizes[positions] = sizes
        self._used += length
        self._live += int(np.maximum(sizes, 0).sum())

    def read(self, positions: Int64s) -> pa.Array:
        sizes = self._sizes[positions]
        offsets = np.zeros(len(positions) + 1, dtype=np.int64)
        np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
        out = self._gather(positions, offsets)
        nulls = sizes < 0
        mask = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
        buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(out)]
        wide = pa.Array.from_buffers(self._wide, len(positions), buffers)
        return wide if self._kind == self._wide else wide.cast(self._kind)

    def _gather(self, positions: Int64s, offsets: Int64s) -> npt.NDArray[np.uint8]:
        from ..kernels.ranking import gather_bytes

        out = np.empty(int(offsets[-1]), dtype=np.uint8)
        gather_bytes(positions, self._starts, self._sizes, self._arena, offsets, out)
        return out

    def _make_room(self, length: int) -> None:
        """Pack the values in use; then the arena is at most half full."""
        held = np.flatnonzero(self._sizes > 0)
        offsets = np.zeros(len(held) + 1, dtype=np.int64)
        np.cumsum(self._sizes[held], out=offsets[1:])
        packed = self._gather(held, offsets)
        self._starts[held] = offsets[:-1]
        self._used = self._live = len(packed)
        self._arena = np.empty(max(len(self._arena), 2 * (self._used + length)), dtype=np.uint8)
        self._arena[: self._used] = packed


class _Objects(_Column):
    """Decimals and nested types, one by one."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._values: npt.NDArray[Any] = np.empty(0, dtype=object)

    def grow(self, capacity: int) -> None:
        self._values = _longer(self._values, capacity)

    def write(self, positions: Int64s, array: pa.Array) -> None:
        for position, value in zip(positions.tolist(), array.to_pylist(), strict=True):
            self._values[position] = value

    def read(self, positions: Int64s) -> pa.Array:
        return pa.array([self._values[p] for p in positions.tolist()], type=self._kind)


def _make_column(kind: pa.DataType) -> _Column:
    if storage(kind) is not None:
        return _Numbers(kind)
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return _Slices(kind) if any(test(kind) for test in tests) else _Objects(kind)


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    longer = np.empty(size, dtype=array.dtype)
    longer[: len(array)] = array
    return longer
