"""Which blocks of slots are to be copied for a freeze, and copies of them, compiled.

A block is `1 << bits` consecutive slots; `flags[b]` is 1 right after a freeze, and while the block
is neither written since nor copied: while it is pending. The definitions in plain Python are in
tests/state/test_slot_columns.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.native import njit, uint8, void
from .hash_kernels import I64, fresh, frozen


@njit(I64(frozen(I64), I64, fresh(uint8), fresh(I64)), cache=True)
def note_touched(slots: Any, bits: Any, flags: Any, pending: Any) -> Any:
    """These slots (negative ones are none) will be written: their blocks are no longer pending.

    `pending` gets those, which have to be copied first, each once; it has room for one per slot, or
    for all blocks. Returns how many. Slots beyond the flags are new since the freeze."""
    count = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if slot < 0:
            continue
        block = slot >> bits
        if block >= flags.shape[0]:
            continue
        if flags[block]:
            flags[block] = 0
            pending[count] = block
            count += 1
    return count


@njit(I64(I64, I64, fresh(uint8), fresh(I64)), cache=True)
def take_pending(first: Any, stop: Any, flags: Any, pending: Any) -> Any:
    """`pending` gets the blocks first..stop-1 that are still to be copied, which are then no longer
    pending. Returns how many."""
    count = 0
    for block in range(first, stop):
        if flags[block]:
            flags[block] = 0
            pending[count] = block
            count += 1
    return count


@njit(void(frozen(I64), I64, I64, frozen(uint8), fresh(uint8)), cache=True)
def copy_blocks(blocks: Any, block_bytes: Any, end: Any, source: Any, target: Any) -> None:
    """Copy these blocks of `block_bytes` bytes each; nothing at or beyond byte `end`."""
    for i in range(blocks.shape[0]):
        start = blocks[i] * block_bytes
        for at in range(start, min(start + block_bytes, end)):
            target[at] = source[at]


@njit(void(frozen(I64), I64, I64, frozen(uint8), fresh(uint8)), cache=True)
def pack_blocks(blocks: Any, block_bytes: Any, end: Any, source: Any, packed: Any) -> None:
    """As `copy_blocks`, one block behind the other."""
    to = 0
    for i in range(blocks.shape[0]):
        start = blocks[i] * block_bytes
        for at in range(start, min(start + block_bytes, end)):
            packed[to + at - start] = source[at]
        to += block_bytes


@njit(void(frozen(I64), I64, I64, frozen(uint8), fresh(uint8)), cache=True)
def place_blocks(blocks: Any, block_bytes: Any, end: Any, packed: Any, target: Any) -> None:
    """Put blocks packed by `pack_blocks` where they belong."""
    to = 0
    for i in range(blocks.shape[0]):
        start = blocks[i] * block_bytes
        for at in range(start, min(start + block_bytes, end)):
            target[at] = packed[to + at - start]
        to += block_bytes


@njit(void(frozen(I64), fresh(uint8)), cache=True)
def note_changed(slots: Any, bits: Any) -> None:
    """Set the bits (`change_bits`) of these slots; negative ones are none, those beyond are new."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        byte = slot >> 3
        if slot >= 0 and byte < bits.shape[0]:
            bits[byte] |= np.uint8(1 << (slot & 7))
