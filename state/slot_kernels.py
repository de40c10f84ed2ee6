"""Which blocks of slots were written since a freeze, and copies of those about to be, compiled.

A block is `1 << bits` consecutive slots; `flags[b]` is UNCHANGED | PENDING right after a freeze:
not written since, and not yet copied. The definitions in plain Python are in
tests/state/test_slot_columns.py.
"""

from __future__ import annotations

from typing import Any

from ..core.native import njit, uint8, void
from .hash_kernels import I64, fresh, frozen

UNCHANGED, PENDING = 1, 2


@njit(I64(frozen(I64), I64, fresh(uint8), fresh(I64)), cache=True)
def note_touched(slots: Any, bits: Any, flags: Any, pending: Any) -> Any:
    """These slots (negative ones are none) will be written: their blocks are no longer UNCHANGED.

    `pending` gets those that have to be copied first, each once; it has room for one per slot, or
    for all blocks. Returns how many. Slots beyond the flags are new since the freeze."""
    count = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if slot < 0:
            continue
        block = slot >> bits
        if block >= flags.shape[0]:
            continue
        flag = flags[block]
        if flag:
            flags[block] = 0
            if flag & PENDING:
                pending[count] = block
                count += 1
    return count


@njit(I64(I64, I64, fresh(uint8), fresh(I64)), cache=True)
def take_pending(first: Any, stop: Any, flags: Any, pending: Any) -> Any:
    """`pending` gets the blocks first..stop-1 that are still to be copied, which are then no longer
    PENDING. Returns how many."""
    count = 0
    for block in range(first, stop):
        if flags[block] & PENDING:
            flags[block] &= UNCHANGED
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
