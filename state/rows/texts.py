"""Texts and bytes of rows at positions: all of a row in one block of one arena.

A row that goes leaves its block to the next one of about its size, so replacing rows leaves no
garbage that grows with the stream, and nothing is copied to make room: the arena is lengthened in
place. Only where sizes change so much that more than half of it is free are the blocks packed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.errors import StateError
from ...core.growing import Growing
from ..hash_columns import slices_of, validity_of
from ..turns import Turns
from .positions import Positions

_SPARE = 1 << 16
"""Free units (1 MB) that are not worth packing for."""

_MOST = 2**31 - 1


class Texts:
    """Columns of one row's texts. `_starts[p]`: the unit at which the block of position p begins;
    `_sizes[column][p]`: bytes, -1 for null. Positions without a row have nulls only.

    Another thread may read rows that are not released meanwhile, within a turn."""

    def __init__(self, kinds: Sequence[pa.DataType], turns: Turns) -> None:
        self.kinds = [wide_text(kind) for kind in kinds]
        self._turns = turns
        self._starts = Growing(np.int32, 0)
        self._sizes = [Growing(np.int32, -1) for _ in kinds]
        self._reset()

    @property
    def room(self) -> int:
        """Positions that need no `grow`."""
        return min(len(held.array) for held in (self._starts, *self._sizes))

    @property
    def nbytes(self) -> int:
        held = (self._starts, *self._sizes, self._arena)
        return sum(one.array.nbytes for one in held)

    @property
    def block_bytes(self) -> tuple[int, int]:
        """Of the arena up to its last block, and of the blocks in use."""
        return self._end << 4, self._end - self._free << 4

    def grow(self, size: int) -> None:
        """Have room for so many positions. While nobody reads."""
        for held in (self._starts, *self._sizes):
            held.reserve(size)

    def write(self, positions: Positions, arrays: Sequence[pa.Array]) -> None:
        """Rows at positions that hold none."""
        from .. import block_kernels as blocks

        pairs = zip(arrays, self.kinds, strict=True)
        sliced = [slices_of(a if a.type == wide else a.cast(wide)) for a, wide in pairs]
        sizes = [np.diff(offsets) for _, offsets in sliced]
        for array, held in zip(arrays, sizes, strict=True):
            if array.null_count:
                held[~validity_of(array)] = -1
        lengths = _lengths(sizes, len(positions))
        starts = self._take(lengths)
        self._starts.array[positions] = starts
        at = starts << 4
        memory = self._arena.array.view(np.uint8)
        for (data, offsets), held, kept in zip(sliced, sizes, self._sizes, strict=True):
            kept.array[positions] = held
            blocks.put_bytes(at, held, data, offsets[:-1], memory)

    def read(self, column: int, positions: Positions) -> pa.Array:
        """One column, of its type in `kinds`."""
        from .. import block_kernels as blocks

        sizes = self._sizes[column].array[positions]
        offsets = np.zeros(len(positions) + 1, dtype=np.int64)
        np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
        at = self._starts.array[positions].astype(np.int64) << 4
        for before in self._sizes[:column]:
            at += np.maximum(before.array[positions], 0)
        out = np.empty(int(offsets[-1]), dtype=np.uint8)
        blocks.get_bytes(at, self._arena.array.view(np.uint8), offsets, out)
        nulls = sizes < 0
        mask = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
        buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(out)]
        return pa.Array.from_buffers(self.kinds[column], len(positions), buffers)

    def release(self, positions: Positions) -> None:
        """These rows, distinct, are no more, and nobody reads them."""
        from .. import block_kernels as blocks

        lengths = self._lengths_of(positions)
        starts = self._starts.array[positions].astype(np.int64)
        self._free += blocks.free_blocks(starts, lengths, self._heads, self._arena.array)
        for held in self._sizes:
            held.array[positions] = -1

    def validate(self) -> None:
        """Assert that blocks do not overlap and that what is free has been counted."""
        from .. import block_kernels as blocks

        used = np.flatnonzero(self._lengths_of(np.arange(self.room)))
        lengths, starts = self._lengths_of(used), self._starts.array[used].astype(np.int64)
        order = np.argsort(starts)
        ends = (starts + (lengths + 15 >> 4))[order]
        assert (starts[order][1:] >= ends[:-1]).all()
        assert not len(ends) or ends[-1] <= self._end <= len(self._arena.array) // 2
        assert blocks.units_of(lengths) + self._free == self._end

    def _reset(self) -> None:
        from ..block_kernels import SIZES

        self._arena = Growing(np.int64)
        self._heads: npt.NDArray[np.int64] = np.full(SIZES, -1, dtype=np.int64)
        self._end = self._free = 0

    def _take(self, lengths: Positions) -> Positions:
        """Blocks for so many bytes each."""
        from .. import block_kernels as blocks

        if 2 * self._free > self._end + _SPARE:
            with self._turns.moving():
                self._pack()
        units = blocks.units_of(lengths)
        if max(self._end + units, int(lengths.max(initial=0))) > _MOST:
            raise StateError(
                f"the texts of one subtask's rows take {(self._end + units) >> 26} GB, "
                f"{_MOST >> 26} are possible (2 for one text): raise the parallelism"
            )
        if 2 * (self._end + units) > len(self._arena.array):
            with self._turns.moving():
                self._arena.reserve(2 * (self._end + units))
        return self._place(lengths, units)

    def _place(self, lengths: Positions, units: int) -> Positions:
        """Blocks for so many bytes each, and `units` in all, for which there is room."""
        from .. import block_kernels as blocks

        starts = np.empty(len(lengths), dtype=np.int64)
        end = blocks.take_blocks(lengths, self._heads, self._arena.array, self._end, starts)
        self._free += end - self._end - units
        self._end = end
        return starts

    def _pack(self) -> None:
        """Copy the blocks in use into a new arena."""
        from .. import block_kernels as blocks

        used = np.flatnonzero(self._lengths_of(np.arange(len(self._starts.array))))
        lengths = self._lengths_of(used)
        former, at = self._arena.array, self._starts.array[used].astype(np.int64) << 4
        self._reset()
        units = blocks.units_of(lengths)
        self._arena.reserve(2 * units)
        starts = self._place(lengths, units)
        self._starts.array[used] = starts
        memory = self._arena.array.view(np.uint8)
        blocks.put_bytes(starts << 4, lengths, former.view(np.uint8), at, memory)

    def _lengths_of(self, positions: Positions) -> Positions:
        return _lengths([held.array[positions] for held in self._sizes], len(positions))


def _lengths(sizes: Sequence[npt.NDArray[np.signedinteger]], count: int) -> Positions:
    """Bytes of each row."""
    lengths = np.zeros(count, dtype=np.int64)
    for held in sizes:
        lengths += np.maximum(held, 0)
    return lengths


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a storage type are texts or bytes of any length."""
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def wide_text(kind: pa.DataType) -> pa.DataType:
    """The type of texts or bytes with 64-bit offsets: there may be any number of them."""
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return pa.large_string() if text else pa.large_binary()
