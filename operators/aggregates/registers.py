"""HyperLogLog registers, 64 to a block of one cache line: what `approx_count_distinct` keeps per
slot where slots stay what they are.

Only blocks in which a register is set exist, so a slot with few values costs little. They lie in
one array, found through a directory by sketch and block number. Registers are merged by their
maximum: an approximate count is as good over any window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, numpy_of
from ...core.growing import Growing, GrowingList
from ...state.backend import AccColumn
from ...state.hash_columns import hash_column
from ...state.slot_columns import SlotColumns
from ...state.value_store import Codes, Values, codes_by, lists_by
from ..kernels import distinct, pairs

REGISTERS = 64
WORDS = 8
"""int64 words of a block; one byte is a register."""

_BLOCK = pa.struct([pa.field("block", pa.int64()), pa.field("registers", pa.binary(REGISTERS))])
_HELD = "registers"


class Registers:
    """Sketches under integer codes; the store of a column of codes.

    Invariants: block b has a place in the directory, that of sketch `_owners[b]` and block number
    `_indices[b]`; all other places there are -1."""

    crowded = False
    wide = pa.large_list(_BLOCK)

    def __init__(self, precision: int) -> None:
        self._precision = precision
        self._per_sketch = max(1, (1 << precision) // REGISTERS)
        self._forget()

    def _forget(self) -> None:
        """Begin without any sketch."""
        self._directory = Growing(np.int32, -1)
        self._owners = GrowingList(np.int64)
        self._indices = GrowingList(np.int64)
        self._blocks = SlotColumns([AccColumn(_HELD, f"V{REGISTERS}", 0)], 0)
        self._count = 0

    def __len__(self) -> int:
        """Sketches."""
        return self._count

    def make(self, count: int) -> Codes:
        """New sketches that have seen nothing."""
        first = self._count
        self._count += count
        self._directory.reserve(self._count * self._per_sketch)
        return np.arange(first, self._count)

    def add(self, sketches: Codes, values: pa.Array) -> None:
        """These sketches see a value each, not null."""
        self.add_hashes(sketches, hash_column(values))

    def add_hashes(self, sketches: Codes, hashes: npt.NDArray[np.uint64]) -> None:
        registers = (hashes >> np.uint64(64 - self._precision)).astype(np.int64)
        at = sketches * self._per_sketch + registers // REGISTERS
        known = self._directory.array[at]
        self._blocks.touch(known[known >= 0].astype(np.int64))
        self._reserve(len(np.unique(at[known < 0])))
        self._owners.length = self._indices.length = distinct.sketch_into(
            hashes, sketches, self._precision, self._per_sketch, *self._arrays()
        )

    def unite(self, sketches: Codes, other: Values) -> None:
        """Merge another store's sketch i into sketches[i]; -1: leave it out."""
        assert isinstance(other, Registers)
        into, indices = sketches[other._owners.used], other._indices.used
        self._blocks.touch_all()
        most = self._count * self._per_sketch - self._owners.length
        self._reserve(min(len(into), most))
        self._owners.length = self._indices.length = distinct.merge_blocks(
            into, indices, other._words(), self._per_sketch, *self._arrays()
        )

    def sizes(self, sketches: Codes) -> Int64s:
        """How many values each has seen, about; 0 for -1."""
        sizes: Int64s = np.append(self._estimates(), 0)[sketches]
        return sizes

    def _estimates(self) -> Int64s:
        """Of all sketches."""
        starts = np.zeros(self._count + 1, dtype=np.int64)
        order = np.empty(self._owners.length, dtype=np.int64)
        pairs.group_rows(self._owners.used, starts, order)
        found = np.empty(self._count, dtype=np.float64)
        scratch = np.empty(66 - self._precision, dtype=np.int64)
        distinct.estimates(starts, order, self._words(), self._precision, scratch, found)
        return np.rint(found).astype(np.int64)

    def append(self, sketches: pa.Array) -> Codes:
        """Whole sketches as `freeze` gave them; -1 for null."""
        codes, owners = codes_by(sketches, self.make)
        blocks = sketches.flatten()
        indices = numpy_of(blocks.field(0))
        at = owners * self._per_sketch + indices
        self._reserve(len(at))
        first, last = self._owners.length, self._owners.length + len(at)
        self._owners.append(owners)
        self._indices.append(indices)
        self._directory.array[at] = np.arange(first, last)
        stored = blocks.field(1)
        size = stored.offset * REGISTERS
        words = np.frombuffer(stored.buffers()[1], np.int64)[size // WORDS :] if len(at) else at
        self._words()[first * WORDS : last * WORDS] = words[: len(at) * WORDS]
        return codes

    def freeze(self) -> Callable[[Codes], pa.Array]:
        """What gives whole sketches, null for -1, as they are now, on any thread."""
        count, held = self._count, self._owners.length
        owners, indices = self._owners.used, self._indices.used
        frozen = self._blocks.freeze(held)

        def sketches_of(codes: Codes) -> pa.Array:
            return _whole(owners, indices, frozen.arrays()[_HELD], count, codes)

        return sketches_of

    def stored(self, codes: Codes) -> pa.Array:
        """As of `freeze`, now. Looks at the owners of all blocks, however few are asked for."""
        place = np.full(self._count + 1, -1, dtype=np.int64)
        place[codes] = np.arange(len(codes))
        place[-1] = -1
        owners = place[self._owners.used]
        mine = np.flatnonzero(owners >= 0)
        blocks = self._blocks.array(_HELD)[mine]
        there = np.where(codes < 0, -1, np.arange(len(codes)))
        return _whole(owners[mine], self._indices.used[mine], blocks, len(codes), there)

    def compact(self, codes: Codes) -> None:
        """Forget all but these sketches, which are rewritten in place."""
        live = np.flatnonzero(codes >= 0)
        if len(live) == self._count:
            return
        kept = self.stored(codes[live])
        self._forget()
        codes[live] = self.append(kept)

    @property
    def nbytes(self) -> int:
        lists = self._owners.array.nbytes + self._indices.array.nbytes
        return self._blocks.nbytes + self._directory.array.nbytes + lists

    def _arrays(self) -> tuple[npt.NDArray[np.int32], Int64s, Int64s, Int64s, int]:
        """As the kernels take them."""
        lists = self._owners.array, self._indices.array
        return self._directory.array, *lists, self._words(), self._owners.length

    def _words(self) -> Int64s:
        """Those of block b from WORDS * b on."""
        words: Int64s = self._blocks.array(_HELD).view(np.int64)
        return words

    def _reserve(self, blocks: int) -> None:
        """Have room for so many more."""
        needed = self._owners.length + blocks
        self._owners.reserve(needed)
        self._indices.reserve(needed)
        self._blocks.reserve(needed)


def _whole(
    owners: Int64s, indices: Int64s, held: npt.NDArray[Any], count: int, codes: Codes
) -> pa.Array:
    """Of `count` sketches these, null for -1; `held`: the blocks, with whose they are."""
    order = np.argsort(owners, kind="stable")
    words = np.ascontiguousarray(held[order])
    kind = _BLOCK.field(1).type
    registers = pa.Array.from_buffers(kind, len(order), [None, pa.py_buffer(words)])
    blocks = pa.StructArray.from_arrays([pa.array(indices[order]), registers], fields=list(_BLOCK))
    return lists_by(owners, blocks, count, codes)
