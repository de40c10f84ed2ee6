"""Accumulator arrays whose keys are the slots themselves: for sessions, and for parts of a batch.

Aggregates fold into a `ColumnTable` by slot and do not care what the slots stand for. Where slots
are given out by someone else (a kernel that opens and closes sessions, or numbers the windows of a
batch) there is nothing to look up, and slots can be emptied and used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Slots, numpy_of
from ...core.errors import StateError
from ...state.backend import AccColumn, ColumnTable

_FIRST_CAPACITY = 64
_KEYS = pa.schema([pa.field("slot", pa.int64())])


class NumberedTable(ColumnTable):
    """Slots 0..len-1; the key of slot i is i. Not state by itself: the operator stores it.

    Invariant: every array has room for len(self); entries never used or `reset` are initial."""

    def __init__(self, columns: Sequence[AccColumn], size: int = 0) -> None:
        self._accumulators = tuple(columns)
        self._size = 0
        capacity = max(size, _FIRST_CAPACITY)
        self._columns: dict[str, npt.NDArray[Any]] = {
            c.name: np.full(capacity, c.initial, dtype=c.dtype) for c in columns
        }
        self._capacity = capacity
        self.resize(size)

    def __len__(self) -> int:
        return self._size

    def slots(self, keys: pa.RecordBatch) -> Slots:
        """Slot numbers are their own slots."""
        slots: Slots = numpy_of(keys.column(0))
        if len(slots):
            self.resize(max(self._size, int(slots.max()) + 1))
        return slots

    def keys(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(np.arange(self._size))], schema=_KEYS)

    def column(self, name: str) -> npt.NDArray[Any]:
        try:
            return self._columns[name]
        except KeyError:
            raise StateError(
                f"there is no accumulator '{name}', only {sorted(self._columns)}"
            ) from None

    def resize(self, size: int) -> None:
        """Have slots 0..size-1; new ones are initial."""
        self._size = size
        if size <= self._capacity:
            return
        capacity = max(self._capacity, 1)
        while capacity < size:
            capacity *= 2
        for c in self._accumulators:
            longer = np.full(capacity, c.initial, dtype=c.dtype)
            longer[: self._capacity] = self._columns[c.name]
            self._columns[c.name] = longer
        self._capacity = capacity

    def reset(self, slots: Slots) -> None:
        """Make these slots as new."""
        for c in self._accumulators:
            self._columns[c.name][slots] = c.initial

    def gather(self, slots: Slots) -> NumberedTable:
        """A table of its own with copies of these slots, numbered from 0."""
        some = NumberedTable(())
        some._accumulators = self._accumulators
        some._columns = {name: array[slots] for name, array in self._columns.items()}
        some._size = some._capacity = len(slots)
        return some
