"""Numbers per slot in parallel arrays, frozen without copying them.

A snapshot must see the arrays as they were at the barrier while the operator goes on writing.
Copying them at the barrier takes milliseconds for each column of a million slots, on the task's
thread. So `freeze` only marks all blocks of slots; a block is copied by whoever comes first: the
writer, before it writes there, or the snapshot's own thread. The writer's share is small: a block
is about a cache line, and the other thread overtakes it soon. The writer packs what it copies: to
put it in its place would touch as many new pages of memory, which cost far more than the copies.

The contract that makes it work: **a slot is touched before it is written** (`touch`; tables do it
for all slots that they hand out). Reading needs nothing.

By the same contract columns can record which slots were written since a freeze (`take_changes`,
`change_bits`), so that a freeze may be of those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from ..core.arrays import Slots
from ..core.errors import StateError
from ..core.growing import Growing
from .change_bits import Bits, blocks_of, no_bits
from .stored import AccColumn

PENDING = 1
"""The flag of a block that was neither written since the freeze nor copied."""

BLOCK_BITS = 4
"""16 slots."""

CHUNK_BLOCKS = 1 << 12
"""So many blocks the snapshot's thread copies while a writer has to wait."""

FIRST_ROOM = 64


class FrozenColumns:
    """Columns as they were when frozen: the first `count` slots. Made by `SlotColumns.freeze`.

    Invariant, under the lock: a block that is PENDING in `_flags` has not been written since the
    freeze; every other one is in `_saved`, or in its place in `_copies`.
    """

    def __init__(
        self,
        columns: tuple[AccColumn, ...],
        live: dict[str, Growing],
        count: int,
        flags: npt.NDArray[np.uint8],
    ) -> None:
        self.columns = columns
        self.count = count
        self.lock = Lock()
        """Held while blocks are copied, and while the live arrays are moved."""
        self._reading = Lock()
        """Held while `arrays` makes the copies: the next freeze may ask for them, too."""
        self._flags = flags
        self._live: dict[str, Growing] | None = dict(live)
        """None when all is copied."""
        self._saved: list[tuple[npt.NDArray[np.int64], dict[str, npt.NDArray[np.uint8]]]] = []
        """Blocks that writers copied, and their bytes by column."""
        self._copies: dict[str, npt.NDArray[Any]] = {}

    @property
    def complete(self) -> bool:
        """Whether writers need not care any more."""
        return self._live is None

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The columns, `count` entries each; any thread may ask. They are not written any more."""
        with self._reading:
            if self._live is not None:
                self._copies = self._copy_all(self._live)
                self._live = None
        return self._copies

    def take(self, slots: Slots | None = None) -> dict[str, npt.NDArray[Any]]:
        """The columns at these slots, or as they are; once, and nobody may ask for `arrays` after
        that. Each is let go before the next one is taken: all of them are never held twice."""
        arrays = self.arrays()
        with self._reading:
            self._copies = {}
        if slots is None:
            return arrays
        return {name: arrays.pop(name)[slots] for name in list(arrays)}

    def save(self, blocks: npt.NDArray[np.int64]) -> None:
        """Copy these blocks, which are not marked PENDING any more, before they are written. With
        the lock held."""
        from .slot_kernels import pack_blocks

        if not len(blocks) or self._live is None:
            return
        packed = {}
        for name, held in self._live.items():
            width = held.array.dtype.itemsize << BLOCK_BITS
            packed[name] = np.empty(len(blocks) * width, dtype=np.uint8)
            end = self.count * held.array.dtype.itemsize
            pack_blocks(blocks, width, end, held.array.view(np.uint8), packed[name])
        self._saved.append((blocks, packed))

    def _copy_all(self, live: dict[str, Growing]) -> dict[str, npt.NDArray[Any]]:
        pending = np.empty(CHUNK_BLOCKS, dtype=np.int64)
        copies = {name: np.empty(self.count, held.array.dtype) for name, held in live.items()}
        for first in range(0, len(self._flags), CHUNK_BLOCKS):
            with self.lock:
                self._copy(first, min(first + CHUNK_BLOCKS, len(self._flags)), pending, copies)
        self._put_saved(copies)
        return copies

    def _copy(
        self,
        first: int,
        stop: int,
        pending: npt.NDArray[np.int64],
        copies: dict[str, npt.NDArray[Any]],
    ) -> None:
        from .slot_kernels import copy_blocks, take_pending

        assert self._live is not None
        blocks = pending[: take_pending(first, stop, self._flags, pending)]
        for name, target in copies.items():
            width = target.dtype.itemsize
            source = self._live[name].array.view(np.uint8)
            end = self.count * width
            copy_blocks(blocks, width << BLOCK_BITS, end, source, target.view(np.uint8))

    def _put_saved(self, copies: dict[str, npt.NDArray[Any]]) -> None:
        from .slot_kernels import place_blocks

        for blocks, packed in self._saved:
            for name, target in copies.items():
                width, data = target.dtype.itemsize, packed[name]
                end = self.count * width
                place_blocks(blocks, width << BLOCK_BITS, end, data, target.view(np.uint8))
        self._saved.clear()


class SlotColumns:
    """Growing arrays with one entry per slot. Not thread-safe but for `FrozenColumns.arrays`.

    Invariants: all arrays have at least `room` entries; entries never written, or `reset`, are
    initial; at most one freeze that somebody still holds is not complete.
    """

    def __init__(self, columns: Sequence[AccColumn], room: int = FIRST_ROOM) -> None:
        self.columns = tuple(columns)
        self._held = {c.name: Growing(c.dtype, c.initial, room) for c in columns}
        self._flags: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        """Per block that the last freeze had, PENDING while it is to be copied."""
        self._frozen: ref[FrozenColumns] | None = None
        """The last freeze; nobody copies for one that has been dropped."""
        self._changed: Bits | None = None
        """Of the slots written since `take_changes`; None before the first."""

    @property
    def room(self) -> int:
        """Slots that need no `reserve`."""
        return min((len(held.array) for held in self._held.values()), default=0)

    def array(self, name: str) -> npt.NDArray[Any]:
        """The array of a column, `room` entries or more. Valid until the next `reserve`; written
        only where the slot was touched since the last freeze."""
        try:
            return self._held[name].array
        except KeyError:
            raise StateError(f"there is no column '{name}', only {sorted(self._held)}") from None

    def reserve(self, size: int) -> None:
        """Have room for so many slots."""
        if size <= self.room:
            return
        frozen = self._incomplete()
        if frozen is None:
            self._grow(size)
        else:
            with frozen.lock:
                self._grow(size)

    def touch(self, slots: Slots) -> None:
        """These slots are about to be written. Negative slots are none."""
        if not len(self._flags) or not len(slots):
            return
        from .slot_kernels import note_changed, note_touched

        if self._changed is not None:
            note_changed(slots, self._changed)

        pending = np.empty(min(len(slots), len(self._flags)), dtype=np.int64)
        frozen = self._incomplete()
        if frozen is None:
            note_touched(slots, BLOCK_BITS, self._flags, pending)
        else:
            with frozen.lock:
                count = note_touched(slots, BLOCK_BITS, self._flags, pending)
                frozen.save(pending[:count].copy())

    def touch_all(self, changed: bool = True) -> None:
        """Any slot may be written. As `touch`, of all slots. Not `changed`: what is written means
        the same as before."""
        frozen = self._incomplete()
        if frozen is not None:
            frozen.arrays()
        self._flags[:] = 0
        if changed and self._changed is not None:
            self._changed[:] = 255

    def reset(self, slots: Slots) -> None:
        """Touch these slots and make them as new (columns without initial value stay)."""
        self.touch(slots)
        for column in self.columns:
            if column.initial is not None:
                array = self._held[column.name].array
                void = array.dtype.kind == "V"
                array[slots] = np.zeros((), array.dtype) if void else column.initial

    def gather(self, slots: Slots) -> SlotColumns:
        """Columns of their own with copies of these slots, numbered from 0; not frozen."""
        some = SlotColumns(self.columns, 0)
        for column in self.columns:
            copy = self._held[column.name].array[slots]
            some._held[column.name] = Growing.over(copy, column.initial)
        return some

    def take_changes(self, count: int) -> Bits | None:
        """The slots written since the last call, None at the first; from here on those written
        below `count` are recorded. Just before a `freeze` of so many: what is written before any
        freeze is not recorded."""
        changed, self._changed = self._changed, no_bits(count)
        return changed

    def freeze(self, count: int, changes: tuple[Bits, int] | None = None) -> FrozenColumns:
        """The first `count` slots as they are now: microseconds, whatever the count. `changes`: of
        these only the ones that `change_bits.slots_of` gives for them, the rest is anything."""
        before = self._incomplete()
        if before is not None:
            before.arrays()
        self._flags = np.full(_blocks(count), PENDING, dtype=np.uint8)
        if changes is not None:
            self._flags *= blocks_of(*changes, len(self._flags), BLOCK_BITS)
        frozen = FrozenColumns(self.columns, self._held, count, self._flags)
        self._frozen = ref(frozen)
        return frozen

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(held.array.nbytes for held in self._held.values())

    def _incomplete(self) -> FrozenColumns | None:
        """The freeze for which blocks are to be copied."""
        frozen = None if self._frozen is None else self._frozen()
        if frozen is None or frozen.complete:
            self._frozen = None
            return None
        return frozen

    def _grow(self, size: int) -> None:
        for held in self._held.values():
            held.reserve(size)


def _blocks(count: int) -> int:
    return -(-count >> BLOCK_BITS)
