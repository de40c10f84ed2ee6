"""Rows of fixed columns at positions, written and read in bulk, positions used again.

Numbers lie in numpy arrays by position, the texts and bytes of a row in a block of an arena
(`Texts`). Other types are kept as Python objects. Reading rows from anywhere is one gather per
column.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.growing import Growing
from ...state.column_index import storage_type
from ...state.key_index import as_declared
from ..columns import NO_NULLS, from_numbers, storage, to_numbers
from .texts import Texts, is_sliced


class RowSlab:
    """Invariant: `_free` holds distinct positions below `_end`, none of them in use."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        kinds = [storage_type(kind) for kind in schema.types]
        self._text_at = [i for i, kind in enumerate(kinds) if is_sliced(kind)]
        self._texts = Texts([kinds[i] for i in self._text_at])
        self._columns = {
            i: _make_column(kind) for i, kind in enumerate(kinds) if i not in self._text_at
        }
        self._free = np.empty(0, dtype=np.int64)
        self._end = 0

    def __len__(self) -> int:
        """Rows in use."""
        return self._end - len(self._free)

    def add(self, rows: pa.RecordBatch) -> Int64s:
        """Positions of new rows, which have the types of the schema."""
        positions = self._allocate(rows.num_rows)
        for i, column in self._columns.items():
            column.write(positions, rows.column(i))
        if self._text_at:
            self._texts.write(positions, [rows.column(i) for i in self._text_at])
        return positions

    def read(self, positions: Int64s) -> pa.RecordBatch:
        """The rows at these positions, in this order."""
        arrays = [self.column(i, positions) for i in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def column(self, index: int, positions: Int64s) -> pa.Array:
        """One column of `read`."""
        held = self._columns.get(index)
        if held is not None:
            array = held.read(positions)
        else:
            array = self._texts.read(self._text_at.index(index), positions)
        return as_declared(array, self._schema.types[index])

    def release(self, positions: Int64s) -> None:
        """These rows, distinct, are used no more."""
        self._free = np.concatenate([self._free, positions])
        if self._text_at:
            self._texts.release(positions)

    def _allocate(self, count: int) -> Int64s:
        again = min(count, len(self._free))
        left = len(self._free) - again
        positions = np.empty(count, dtype=np.int64)
        positions[:again] = self._free[left:]
        positions[again:] = np.arange(self._end, self._end + count - again)
        self._free = self._free[:left]
        self._end += count - again
        if self._text_at:
            self._texts.grow(self._end)
        for column in self._columns.values():
            column.grow(self._end)
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
        self._values = Growing(held)
        self._valid: Growing | None = None

    def grow(self, capacity: int) -> None:
        self._values.reserve(capacity)
        if self._valid is not None:
            self._valid.reserve(capacity)

    def write(self, positions: Int64s, array: pa.Array) -> None:
        values, valid = to_numbers(array, self._held)
        self._values.array[positions] = values
        if self._valid is None and valid is not NO_NULLS:
            self._valid = Growing(np.bool_, True, len(self._values.array))
        if self._valid is not None:
            self._valid.array[positions] = True if valid is NO_NULLS else valid

    def read(self, positions: Int64s) -> pa.Array:
        valid = None if self._valid is None else self._valid.array[positions]
        return from_numbers(self._values.array[positions], valid, self._kind)


class _Objects(_Column):
    """Decimals and nested types, one by one."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._values: npt.NDArray[Any] = np.empty(0, dtype=object)

    def grow(self, capacity: int) -> None:
        if capacity > len(self._values):
            longer = np.empty(max(capacity, 2 * len(self._values)), dtype=object)
            longer[: len(self._values)] = self._values
            self._values = longer

    def write(self, positions: Int64s, array: pa.Array) -> None:
        for position, value in zip(positions.tolist(), array.to_pylist(), strict=True):
            self._values[position] = value

    def read(self, positions: Int64s) -> pa.Array:
        return pa.array([self._values[p] for p in positions.tolist()], type=self._kind)


def _make_column(kind: pa.DataType) -> _Column:
    return _Objects(kind) if storage(kind) is None else _Numbers(kind)
