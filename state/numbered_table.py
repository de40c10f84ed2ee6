"""Accumulators whose keys are the slots themselves: parts of a batch, and entries that an operator
numbers.

Aggregates fold into a `SlotTable` by slot and do not care what the slots stand for. Where slots
are given out by someone else (a kernel that opens and closes sessions, or numbers the windows of a
batch) there is nothing to look up, and slots can be emptied and used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Slots, numpy_of
from .backend import AccColumn
from .column_face import SlotTable
from .slot_columns import SlotColumns
from .value_store import Stores

_KEYS = pa.schema([pa.field("slot", pa.int64())])


class NumberedTable(SlotTable):
    """Slots 0..len-1; the key of slot i is i. Not in any snapshot by itself.

    Invariant: entries never used or `reset` are initial."""

    def __init__(
        self, columns: Sequence[AccColumn], size: int = 0, stores: Stores | None = None
    ) -> None:
        """`stores`: those of the table that the codes in its columns come from or go to."""
        self._numbers = SlotColumns(columns, size)
        self._size = size
        self.stores = dict(stores or {})

    @classmethod
    def of(cls, numbers: SlotColumns, size: int, stores: Stores | None = None) -> NumberedTable:
        """A table over these columns, of `size` slots."""
        made = cls((), stores=stores)
        made._numbers, made._size = numbers, size
        return made

    def __len__(self) -> int:
        return self._size

    def slots(self, keys: pa.RecordBatch) -> Slots:
        """Slot numbers are their own slots."""
        slots: Slots = numpy_of(keys.column(0))
        if len(slots):
            self.resize(max(self._size, int(slots.max()) + 1))
        self.touch(slots)
        return slots

    def find(self, keys: pa.RecordBatch) -> Slots:
        slots: Slots = numpy_of(keys.column(0))
        return np.where(slots < self._size, slots, -1)

    def keys(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(np.arange(self._size))], schema=_KEYS)

    def column(self, name: str) -> npt.NDArray[Any]:
        return self._numbers.array(name)

    def touch(self, slots: Slots) -> None:
        self._numbers.touch(slots)

    def touch_all(self) -> None:
        self._numbers.touch_all()

    def reserve(self, size: int) -> None:
        """Have room for so many slots, which are not there before `resize` says so."""
        self._numbers.reserve(size)

    def resize(self, size: int) -> None:
        """Have slots 0..size-1; new ones are initial."""
        self._size = size
        self._numbers.reserve(size)

    def reset(self, slots: Slots) -> None:
        """Make these slots as new."""
        self._numbers.reset(slots)

    def gather(self, slots: Slots) -> NumberedTable:
        return NumberedTable.of(self._numbers.gather(slots), len(slots), self.stores)

    def take_keys(self, slots: Slots) -> list[pa.Array]:
        return [pa.array(slots)]

    def release(self, slots: Slots) -> None:
        self.reset(slots)

    def tidy(self) -> None:
        return None

    @property
    def nbytes(self) -> int:
        return self._numbers.nbytes
