"""A set of pairs of slot and value that only grows, and which views have seen each: a bit per view.

Values are numbered (codes); the set holds words of slot and code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import Slots
from .backend import AccColumn
from .key_index import make_column_index
from .slot_columns import SlotColumns
from .slot_values import SLOT_BITS, SLOT_MASK

FIRST = 64
_LARGE = 1 << 17
"""So many cells or more grow by a quarter, not by as many: moving is cheap, in order of cells."""

FoundPairs = tuple[Slots, pa.Array, list[npt.NDArray[np.bool_]]]
"""Pairs: their slots, their values, and per view whether it has seen them."""


class SeenPairs:
    """Invariant: `_count` of `_cells` are taken, three quarters at most.

    A cell that is taken never changes, so a snapshot reads the cells as they are; those taken since
    it was frozen had no bits then."""

    def __init__(self, kind: pa.DataType, views: int) -> None:
        self._views = views
        self._index = make_column_index(kind)
        self._cells: Slots = np.zeros(FIRST, dtype=np.int64)
        self._seen = self._bits(FIRST)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def cells(self) -> int:
        """So many places there are."""
        return len(self._cells)

    @property
    def nbytes(self) -> int:
        """Without what the values take by themselves."""
        return self._cells.nbytes + self._seen.nbytes

    @property
    def nbytes_of_values(self) -> int:
        return self._index.nbytes

    def codes(self, values: pa.Array) -> Slots:
        """The numbers of these values, which are not null."""
        return self._index.upsert(values)

    def find(self, slots: Slots, codes: Slots) -> Slots:
        """The cell of each pair. Their bits may be written until the next snapshot. Valid until the
        next `find`."""
        from .seen_kernels import find_pairs

        words = ((codes + 1) << SLOT_BITS) | slots
        self._reserve(self._count + len(words))
        at = np.empty(len(words), dtype=np.int64)
        self._count += find_pairs(words, self._cells, at)
        self._seen.touch(at)
        return at

    def bits(self, view: int) -> tuple[npt.NDArray[np.uint8], int]:
        """A byte per cell, and the bit of it that says whether this view has seen the pair there;
        valid until the next `find`."""
        return self._seen.array(f"b{view >> 3}"), 1 << (view & 7)

    def pairs(self) -> tuple[Slots, Slots]:
        """(slots, codes) of all pairs."""
        words = self._cells[self._cells != 0]
        return words & SLOT_MASK, (words >> SLOT_BITS) - 1

    def values(self) -> pa.Array:
        """All values in order of their codes, as the index keeps them."""
        return self._index.freeze()()

    def values_of(self, codes: Slots) -> pa.Array:
        """The values of these codes, as the index keeps them."""
        return self._index.take(codes)

    def slots_seen(self, view: int) -> Slots:
        """The slot of each pair that a view has seen."""
        seen, bit = self.bits(view)
        slots: Slots = self._cells[np.flatnonzero(seen[: self.cells] & bit)] & SLOT_MASK
        return slots

    def freeze(self, kind: pa.DataType) -> Callable[[], FoundPairs]:
        """Makes the pairs that any view has seen now, their values as of `kind`; on any thread."""
        cells, values, views = self._cells, self._index.freeze(), self._views
        frozen, names = self._seen.freeze(len(cells)), [c.name for c in self._seen.columns]

        def found() -> FoundPairs:
            arrays = frozen.arrays()
            bits = [arrays[name] for name in names]
            shown = np.flatnonzero(np.logical_or.reduce([some != 0 for some in bits]))
            words = cells[shown]
            chosen = values().cast(kind).take(pa.array((words >> SLOT_BITS) - 1))
            seen = [(bits[v >> 3][shown] >> (v & 7) & 1).astype(np.bool_) for v in range(views)]
            return words & SLOT_MASK, chosen, seen

        return found

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
        columns = [AccColumn(f"b{byte}", "uint8") for byte in range((self._views + 7) // 8)]
        return SlotColumns(columns, cells)
