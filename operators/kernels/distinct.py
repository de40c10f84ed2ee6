"""Kernels of distinct counts: new pairs of (key, value), and the registers of HyperLogLog.

A HyperLogLog register holds the greatest rank (position of the first 1 bit) of the hashes that
belong to it; eight registers are kept in one int64, register r in the byte r % 8 of word r // 8,
and eight words, 64 registers, are a block: a key has the blocks in which a register is set.
The estimator is Ertl's ("New cardinality estimation algorithms for HyperLogLog sketches", 2017,
algorithm 6): unbiased over the whole range without tables of corrections. Twins in
`reference_distinct`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core.native import Array, float64, int32, int64, njit, uint64, void
from .signatures import FLOATS, INTS, INTS_IN, OPTIONS

HASHES_IN = Array(uint64, 1, "C", readonly=True)
SMALL = Array(int32, 1, "C")


@njit([int64(INTS_IN, INTS_IN, int64, INTS)], **OPTIONS)
def count_new(slots: Any, pairs: Any, known: int, counts: Any) -> int:
    """counts[slot] += 1 for each pair that was not `known` (numbered below it) and appears for the
    first time; new pairs are numbered in order of first appearance. Returns how many are known."""
    for i in range(slots.size):
        if pairs[i] >= known:
            known += 1
            counts[slots[i]] += 1
    return known


@njit([int64(HASHES_IN, INTS_IN, int64, int64, SMALL, INTS, INTS, INTS, int64)], **OPTIONS)
def sketch_into(
    hashes: Any,
    slots: Any,
    precision: int,
    blocks: int,
    directory: Any,
    owners: Any,
    indices: Any,
    words: Any,
    count: int,
) -> int:
    """The register that each hash names (by its first `precision` bits), of its row's slot, becomes
    the greater of itself and the hash's rank (of the bits behind them).

    directory[slot * blocks + block] is the place of a block, -1 if there is none yet: it is then
    made, at the end, for which there must be room and the words be 0. Block b of slot s at place p:
    owners[p] = s, indices[p] = b, words[8 p : 8 p + 8]. Returns how many blocks there are."""
    down, up = np.uint64(64 - precision), np.uint64(precision)
    guard = np.uint64(1) << np.uint64(precision - 1)
    one, top = np.uint64(1), np.uint64(63)
    for i in range(hashes.size):
        register = np.int64(hashes[i] >> down)
        rest = (hashes[i] << up) | guard
        rank = np.int64(1)
        while (rest >> top) & one == 0:
            rest <<= one
            rank += 1
        at = slots[i] * blocks + (register >> 6)
        place: Any = np.int64(directory[at])
        if place < 0:
            place = count
            count += 1
            directory[at] = place
            owners[place] = slots[i]
            indices[place] = register >> 6
        word = place * 8 + ((register >> 3) & 7)
        shift = 8 * (register & 7)
        held = (words[word] >> shift) & 255
        if rank > held:
            words[word] += (rank - held) << shift
    return count


@njit([int64(INTS_IN, INTS_IN, INTS_IN, int64, SMALL, INTS, INTS, INTS, int64)], **OPTIONS)
def merge_blocks(
    slots: Any,
    blocks_in: Any,
    words_in: Any,
    blocks: int,
    directory: Any,
    owners: Any,
    indices: Any,
    words: Any,
    count: int,
) -> int:
    """Adds other blocks, number blocks_in[i] of slot slots[i] (none if negative), register by
    register the greater; the rest as in `sketch_into`."""
    for i in range(slots.size):
        if slots[i] < 0:
            continue
        at = slots[i] * blocks + blocks_in[i]
        place: Any = np.int64(directory[at])
        if place < 0:
            place = count
            count += 1
            directory[at] = place
            owners[place] = slots[i]
            indices[place] = blocks_in[i]
        for k in range(8):
            word, other, merged = words[place * 8 + k], words_in[i * 8 + k], np.int64(0)
            for shift in range(0, 64, 8):
                merged |= max((word >> shift) & 255, (other >> shift) & 255) << shift
            words[place * 8 + k] = merged
    return count


@njit([float64(float64)], **OPTIONS)
def _sigma(x: float) -> float:
    if x == 1.0:
        return np.inf
    y, z, before = 1.0, x, -1.0
    while z != before:
        x *= x
        before = z
        z += x * y
        y += y
    return z


@njit([float64(float64)], **OPTIONS)
def _tau(x: float) -> float:
    if x == 0.0 or x == 1.0:
        return 0.0
    y, z, before = 1.0, 1.0 - x, -1.0
    while z != before:
        x = np.sqrt(x)
        before = z
        y *= 0.5
        z -= (1.0 - x) * (1.0 - x) * y
    return z / 3.0


@njit([void(INTS_IN, INTS_IN, INTS_IN, int64, INTS, FLOATS)], **OPTIONS)
def estimates(
    starts: Any, order: Any, words: Any, precision: int, histogram: Any, out: Any
) -> None:
    """The cardinality of each slot, whose blocks are order[starts[slot]:starts[slot + 1]].

    `histogram`: scratch of 66 - precision entries."""
    last = 65 - precision
    registers = 1 << precision
    for slot in range(out.size):
        histogram[:] = 0
        for at in range(starts[slot], starts[slot + 1]):
            for word in range(order[at] * 8, order[at] * 8 + 8):
                left = words[word]
                while left != 0:
                    histogram[left & 255] += 1
                    left >>= 8
        filled = 0
        for rank in range(1, last + 1):
            filled += histogram[rank]
        z = registers * _tau(1.0 - histogram[last] / registers)
        for rank in range(last - 1, 0, -1):
            z = 0.5 * (z + histogram[rank])
        z += registers * _sigma((registers - filled) / registers)
        out[slot] = registers * (registers / (2.0 * np.log(2.0))) / z


__all__ = ["count_new", "estimates", "merge_blocks", "sketch_into"]
