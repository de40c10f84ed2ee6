"""Hash indexes from keys to dense slots, compiled: open addressing with linear probing.

Imported on the first columnar use only. The number of cells is a power of two, at most three
quarters of them used (of bytes: half), so probing ends. A table of words is a flat array of int32,
three a cell: the low and the high half of the key, slot + 1. A table of bytes is a flat array of
pairs: hash, slot + 1. 0 in the last place marks a free cell.

A lookup among millions of words costs little more than one miss: a cell is 12 bytes of a cache
line. (Cells of 8, slot and some bits of the hash, would need a second miss, for the key: twice the
time.) Among millions of byte keys it costs three in a row (cell, extent, bytes), so these are
looked up in blocks that touch all cells, then all extents, then all bytes: the misses of a block
overlap.

The insert kernels work on `batch[start:]` and return where they stopped: at the end, or at the
first key they had no room for; the caller makes room and calls again. `state` is int64[3]: the
number of slots given out, the slot of null (-1: none yet), and scratch. `valid` is empty when
nothing is null.

The sequential definition of every kernel is a dict, in tests/state/test_index.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.native import boolean, int32, njit, uint8, void
from .hash_kernels import I64, U64, fresh, frozen, load8

COUNT, NULL_SLOT, SCRATCH = 0, 1, 2
_BLOCK = 32
_LOW = np.int64(0xFFFFFFFF)

_C1 = np.uint64(0x9E3779B97F4A7C15)
_C2 = np.uint64(0xD6E8FEB86659FD93)

U8 = uint8
BOOL = boolean
I32 = int32


@njit(inline="always")
def _home(word: Any, shift: Any) -> Any:
    """The cell at which probing for a word starts: the top bits of a mixed product."""
    h = np.uint64(word) * _C1
    h ^= h >> np.uint64(32)
    return np.int64((h * _C2) >> np.uint64(shift))


@njit(inline="always")
def _word(table: Any, at: Any) -> Any:
    """The key of the cell that begins at `at`."""
    return np.int64(table[at + 1]) << 32 | (np.int64(table[at]) & _LOW)


@njit(inline="always")
def _put(table: Any, at: Any, word: Any, slot: Any) -> Any:
    table[at] = np.int32(word & _LOW)
    table[at + 1] = np.int32(word >> 32)
    table[at + 2] = np.int32(slot + 1)


@njit(inline="always")
def _null_slot(state: Any) -> Any:
    if state[NULL_SLOT] < 0:
        state[NULL_SLOT] = state[COUNT]
        state[COUNT] += 1
    return state[NULL_SLOT]


@njit(
    I64(fresh(I32), I64, frozen(I64), frozen(BOOL), I64, fresh(I64), fresh(I64), fresh(I64)),
    cache=True,
)
def upsert_words(
    table: Any, shift: Any, batch: Any, valid: Any, start: Any, state: Any, keys: Any, out: Any
) -> Any:
    """out[i] = slot of batch[i]; new keys go to keys[slot]. Returns where it stopped.

    `shift` = 64 - log2(cells). There is room for len(keys) slots.
    """
    end = np.int64(table.shape[0])
    room = keys.shape[0]
    count = state[COUNT]
    nullable = valid.shape[0] > 0
    for i in range(start, batch.shape[0]):
        if nullable and not valid[i]:
            if state[NULL_SLOT] < 0 and count >= room:
                state[COUNT] = count
                return i
            state[COUNT] = count
            out[i] = _null_slot(state)
            count = state[COUNT]
            continue
        word = batch[i]
        at = 3 * _home(word, shift)
        while True:
            slot = np.int64(table[at + 2]) - 1
            if slot < 0:
                if count >= room:
                    state[COUNT] = count
                    return i
                _put(table, at, word, count)
                keys[count] = word
                out[i] = count
                count += 1
                break
            if _word(table, at) == word:
                out[i] = slot
                break
            at += 3
            if at == end:
                at = 0
    state[COUNT] = count
    return batch.shape[0]


@njit(
    void(fresh(I32), I64, frozen(I64), frozen(BOOL), fresh(I64), fresh(I64)),
    cache=True,
)
def find_words(table: Any, shift: Any, batch: Any, valid: Any, state: Any, out: Any) -> None:
    """out[i] = slot of batch[i], -1 if it has none."""
    end = np.int64(table.shape[0])
    nullable = valid.shape[0] > 0
    for i in range(batch.shape[0]):
        if nullable and not valid[i]:
            out[i] = state[NULL_SLOT]
            continue
        word = batch[i]
        at = 3 * _home(word, shift)
        slot = np.int64(table[at + 2]) - 1
        while slot >= 0 and _word(table, at) != word:
            at += 3
            if at == end:
                at = 0
            slot = np.int64(table[at + 2]) - 1
        out[i] = slot


@njit(void(fresh(I32), I64, fresh(I64), I64, I64), cache=True)
def rebuild_words(table: Any, shift: Any, keys: Any, count: Any, null_slot: Any) -> Any:
    """Fill an empty table with keys[:count]."""
    end = np.int64(table.shape[0])
    for slot in range(count):
        if slot == null_slot:
            continue
        at = 3 * _home(keys[slot], shift)
        while table[at + 2] != 0:
            at += 3
            if at == end:
                at = 0
        _put(table, at, keys[slot], slot)


@njit(inline="always")
def _same(arena: Any, at: Any, data: Any, start: Any, length: Any) -> Any:
    """Whether two byte ranges are equal."""
    i = 0
    while i + 8 <= length:
        if load8(arena, at + i) != load8(data, start + i):
            return False
        i += 8
    while i < length:
        if arena[at + i] != data[start + i]:
            return False
        i += 1
    return True


@njit
def _touch(
    table: Any, shift: Any, hashed: Any, start: Any, stop: Any, ends: Any, arena: Any, out: Any
) -> Any:
    """Bring into cache what looking up hashed[start:stop] will read; returns what it read. Notes in
    out[start:stop] are overwritten by the slots later."""
    for i in range(start, stop):
        cell = np.int64(hashed[i] >> np.uint64(shift))
        out[i] = max(np.int64(0), np.int64(table[2 * cell + 1]) - 1)
    last = arena.shape[0] - 1
    for i in range(start, stop):
        out[i] = min(ends[out[i]], last)
    read = 0
    for i in range(start, stop):
        read += arena[out[i]]
    return read


@njit(
    I64(
        fresh(U64),
        I64,
        frozen(U64),
        frozen(U8),
        frozen(I64),
        frozen(BOOL),
        I64,
        fresh(I64),
        fresh(U64),
        fresh(U8),
        fresh(I64),
        fresh(I64),
    ),
    cache=True,
)
def upsert_bytes(
    table: Any,
    shift: Any,
    hashed: Any,
    data: Any,
    offsets: Any,
    valid: Any,
    start: Any,
    state: Any,
    hashes: Any,
    arena: Any,
    ends: Any,
    out: Any,
) -> Any:
    """out[i] = slot of data[offsets[i]:offsets[i + 1]], whose hash is hashed[i]; equal means equal
    bytes.

    A new key's bytes are appended to `arena` as arena[ends[slot]:ends[slot + 1]], its hash to
    `hashes`. Returns where it stopped, for want of a slot or of arena.
    """
    mask = np.int64(table.shape[0] // 2 - 1)
    room = hashes.shape[0]
    nullable = valid.shape[0] > 0
    touched = start
    for i in range(start, out.shape[0]):
        if i == touched:
            touched = min(i + _BLOCK, out.shape[0])
            state[SCRATCH] = _touch(table, shift, hashed, i, touched, ends, arena, out)
        count = state[COUNT]
        if nullable and not valid[i]:
            if state[NULL_SLOT] < 0:
                if count >= room:
                    return i
                ends[count + 1] = ends[count]
            out[i] = _null_slot(state)
            continue
        at = offsets[i]
        length = offsets[i + 1] - at
        h = hashed[i]
        cell = np.int64(h >> np.uint64(shift))
        while True:
            slot = np.int64(table[2 * cell + 1]) - 1
            if slot < 0:
                begin = ends[count]
                if count >= room or begin + length > arena.shape[0]:
                    return i
                table[2 * cell] = h
                table[2 * cell + 1] = np.uint64(count + 1)
                hashes[count] = h
                for b in range(length):
                    arena[begin + b] = data[at + b]
                ends[count + 1] = begin + length
                out[i] = count
                state[COUNT] = count + 1
                break
            if table[2 * cell] == h:
                begin = ends[slot]
                if ends[slot + 1] - begin == length and _same(arena, begin, data, at, length):
                    out[i] = slot
                    break
            cell = (cell + 1) & mask
    return out.shape[0]


@njit(
    void(
        fresh(U64),
        I64,
        frozen(U64),
        frozen(U8),
        frozen(I64),
        frozen(BOOL),
        fresh(I64),
        fresh(U8),
        fresh(I64),
        fresh(I64),
    ),
    cache=True,
)
def find_bytes(
    table: Any,
    shift: Any,
    hashed: Any,
    data: Any,
    offsets: Any,
    valid: Any,
    state: Any,
    arena: Any,
    ends: Any,
    out: Any,
) -> None:
    """out[i] = slot of the key that `upsert_bytes` gives one, -1 if it has none."""
    mask = np.int64(table.shape[0] // 2 - 1)
    nullable = valid.shape[0] > 0
    for i in range(out.shape[0]):
        if nullable and not valid[i]:
            out[i] = state[NULL_SLOT]
            continue
        at = offsets[i]
        length = offsets[i + 1] - at
        cell = np.int64(hashed[i] >> np.uint64(shift))
        while True:
            slot = np.int64(table[2 * cell + 1]) - 1
            if slot < 0:
                break
            if table[2 * cell] == hashed[i]:
                begin = ends[slot]
                if ends[slot + 1] - begin == length and _same(arena, begin, data, at, length):
                    break
            cell = (cell + 1) & mask
        out[i] = slot


@njit(void(fresh(U64), I64, frozen(U64), I64, I64), cache=True)
def rebuild_bytes(table: Any, shift: Any, hashes: Any, count: Any, null_slot: Any) -> Any:
    """Fill an empty table with the keys whose hashes are hashes[:count]."""
    mask = np.int64(table.shape[0] // 2 - 1)
    for slot in range(count):
        if slot == null_slot:
            continue
        cell = np.int64(hashes[slot] >> np.uint64(shift))
        while table[2 * cell + 1] != 0:
            cell = (cell + 1) & mask
        table[2 * cell] = hashes[slot]
        table[2 * cell + 1] = np.uint64(slot + 1)
