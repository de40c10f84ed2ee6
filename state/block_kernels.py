"""Kernels of an arena of blocks of 16-byte units, with a list of free blocks per size.

A block has as many units as its bytes need, from 1 KB on rounded up by an eighth at most, so that
there are few sizes. The first word of a free block is the unit at which the next of its size
begins; `heads` has the first of each size, -1 for none. Twins in tests/kits/reference_blocks.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.native import int64, njit, uint8, void
from .gather_kernels import AHEAD, copy, fetch
from .hash_kernels import fresh, frozen

INTS_IN, INTS = frozen(int64), fresh(int64)
BYTES_IN, BYTES = frozen(uint8), fresh(uint8)

OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}

SIZES = 1024
"""Entries of `heads`: enough for blocks of 2**31 units."""

_EXACT = 64


@njit(inline="always")
def _rounded(length: Any) -> Any:
    """Units of a block for so many bytes."""
    units = (length + 15) >> 4
    if units > _EXACT:
        step = np.int64(8)
        while units > step << 4:
            step <<= 1
        units = (units + step - 1) // step * step
    return units


@njit(inline="always")
def _size_of(units: Any) -> Any:
    """The place of a block's size in `heads`."""
    place = np.int64(0)
    while units > _EXACT:
        units = (units + 1) >> 1
        place += 32
    return place + units


@njit([int64(INTS_IN)], **OPTIONS)
def units_of(lengths: Any) -> int:
    """Units that blocks for so many bytes each take together."""
    total = 0
    for i in range(lengths.size):
        total += _rounded(lengths[i])
    return total


@njit([int64(INTS_IN, INTS, INTS, int64, INTS)], **OPTIONS)
def take_blocks(lengths: Any, heads: Any, arena: Any, end: int, starts: Any) -> int:
    """starts[i] = the unit at which a block for lengths[i] bytes begins (0 bytes: unit 0): a free
    one of its size, or a new one at the end, for which there is room. Returns the end."""
    for i in range(lengths.size):
        if lengths[i] == 0:
            starts[i] = 0
            continue
        units = _rounded(lengths[i])
        size = _size_of(units)
        free = heads[size]
        if free >= 0:
            starts[i] = free
            heads[size] = arena[2 * free]
        else:
            starts[i] = end
            end += units
    return end


@njit([int64(INTS_IN, INTS_IN, INTS, INTS)], **OPTIONS)
def free_blocks(starts: Any, lengths: Any, heads: Any, arena: Any) -> int:
    """These blocks are free; returns their units."""
    total = 0
    for i in range(starts.size):
        if lengths[i] > 0:
            units = _rounded(lengths[i])
            size = _size_of(units)
            arena[2 * starts[i]] = heads[size]
            heads[size] = starts[i]
            total += units
    return total


@njit([void(INTS, INTS_IN, BYTES_IN, INTS_IN, BYTES)], **OPTIONS)
def put_bytes(at: Any, sizes: Any, data: Any, begins: Any, arena: Any) -> None:
    """arena[at[i]:] = data[begins[i]:][:sizes[i]], and at[i] moves behind it; nothing where the
    size is negative."""
    source, goal = data.ctypes.data, arena.ctypes.data
    for i in range(at.size):
        if i + AHEAD < at.size:
            fetch(goal + at[i + AHEAD])
        size = sizes[i]
        if size > 0:
            copy(source + begins[i], arena, at[i], size)
            at[i] += size


@njit([void(INTS_IN, BYTES_IN, INTS_IN, BYTES)], **OPTIONS)
def get_bytes(at: Any, arena: Any, offsets: Any, out: Any) -> None:
    """out[offsets[i]:offsets[i + 1]] = arena[at[i]:]."""
    source = arena.ctypes.data
    for i in range(at.size):
        if i + AHEAD < at.size:
            fetch(source + at[i + AHEAD])
        size = offsets[i + 1] - offsets[i]
        if size > 0:
            copy(source + at[i], out, offsets[i], size)
