"""Values of slots that only come: which views have seen them. See `slot_values`.

What `CountedValues` does for values that also go, in a fifth of the memory: that a view has seen a
value is one bit, and nothing has to be found again by its slot. Values are numbered (codes); a set
holds the pairs of slot and code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Int64s, Slots
from .backend import AccColumn
from .key_index import make_column_index
from .slot_columns import SlotColumns
from .slot_values import SLOT_BITS, SLOT_MASK, Found, SlotValues
from .stores import SeenFace

_FIRST = 1024
_LARGE = 1 << 17
"""So many cells or more grow by a quarter, not by as many: moving is cheap, in order of cells."""


class SeenValues(SlotValues, SeenFace):
    """Invariant: `_count` of `_cells` are taken, three quarters at most.

    A cell that is taken never changes, so a snapshot reads the cells as they are; those taken since
    it was frozen had no bits then."""

    def __init__(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> None:
        super().__init__(name, keys, kind, views)
        self._index = make_column_index(kind)
        self._cells: Slots = np.zeros(_FIRST, dtype=np.int64)
        self._seen = self._bits(_FIRST)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def cells(self) -> int:
        """So many places there are."""
        return len(self._cells)

    def find(self, slots: Slots, values: pa.Array) -> Slots:
        from .seen_kernels import find_pairs

        words = (self._index.upsert(values) + 1) << SLOT_BITS
        words |= slots
        self._reserve(self._count + len(words))
        at = np.empty(len(words), dtype=np.int64)
        self._count += find_pairs(words, self._cells, at)
        self._seen.touch(at)
        return at

    def bits(self, view: int) -> tuple[npt.NDArray[np.uint8], int]:
        return self._seen.array(f"b{view >> 3}"), 1 << (view & 7)

    def slots_seen(self, view: int) -> Slots:
        seen, bit = self.bits(view)
        slots: Slots = self._cells[np.flatnonzero(seen[: self.cells] & bit)] & SLOT_MASK
        return slots

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self._seen.nbytes

    def _freeze(self) -> Callable[[], Found]:
        cells, values, kind = self._cells, self._index.freeze(), self._stored_kind
        frozen, names = self._seen.freeze(len(cells)), [c.name for c in self._seen.columns]

        def found() -> Found:
            arrays = frozen.arrays()
            bits = [arrays[name] for name in names]
            shown = np.flatnonzero(np.logical_or.reduce([some != 0 for some in bits]))
            words = cells[shown]
            chosen = values().cast(kind).take(pa.array((words >> SLOT_BITS) - 1))
            counts = [
                (bits[view >> 3][shown] >> (view & 7) & 1).astype(np.int64)
                for view in range(self.views)
            ]
            return words & SLOT_MASK, chosen, counts

        return found

    def _fill(self, slots: Slots, values: pa.Array, counts: Sequence[Int64s]) -> None:
        at = self.find(slots, values)
        for view, stored in enumerate(counts):
            seen, bit = self.bits(view)
            seen[at[stored != 0]] |= np.uint8(bit)

    def _reserve(self, pairs: int) -> None:
        """Have room for so many."""
        from .seen_kernels import move_pairs

        size = len(self._cells)
        if pairs > size // 4 * 3:
            cells, seen = self._cells, self._seen
            size = max(size + size // (1 if size < _LARGE else 4), pairs // 3 * 4 + 4)
            self._cells, self._seen = np.zeros(size, dtype=np.int64), self._bits(size)
            for column in seen.columns:
                name = column.name
                move_pairs(cells, seen.array(name), self._cells, self._seen.array(name))

    def _bits(self, cells: int) -> SlotColumns:
        columns = [AccColumn(f"b{byte}", "uint8") for byte in range((self.views + 7) // 8)]
        return SlotColumns(columns, cells)
