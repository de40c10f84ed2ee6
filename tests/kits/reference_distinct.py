"""What the kernels of `distinct` do, in plain Python. Tests hold the two equal.

The registers and the estimator of single values are in `testing/fuzz/hyperloglog`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from strom.testing.fuzz.hyperloglog import estimate, split_hash


def count_new(slots: Any, pairs: Any, known: int, counts: Any) -> int:
    seen = set(range(known))
    for slot, pair in zip(slots, pairs, strict=True):
        if int(pair) not in seen:
            seen.add(int(pair))
            counts[slot] += 1
    return len(seen)


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
    ranks = words.view(np.uint8)
    for hashed, slot in zip(hashes, slots, strict=True):
        register, rank = split_hash(int(hashed), precision)
        at = (slot, register // 64)
        place, count = _place(*at, blocks, directory, owners, indices, count)
        byte = 64 * place + register % 64
        ranks[byte] = max(ranks[byte], rank)
    return count


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
    ranks, others = (array.view(np.uint8).reshape(-1, 64) for array in (words, words_in))
    for slot, block, other in zip(slots, blocks_in, others, strict=True):
        if slot >= 0:
            place, count = _place(slot, block, blocks, directory, owners, indices, count)
            ranks[place] = np.maximum(ranks[place], other)
    return count


def _place(
    slot: int, block: int, blocks: int, directory: Any, owners: Any, indices: Any, count: int
) -> tuple[int, int]:
    """Where a block is, made if need be, and how many there are then."""
    place = int(directory[slot * blocks + block])
    if place >= 0:
        return place, count
    directory[slot * blocks + block] = count
    owners[count], indices[count] = slot, block
    return count, count + 1


def estimates(
    starts: Any, order: Any, words: Any, precision: int, histogram: Any, out: Any
) -> None:
    ranks = words.view(np.uint8).reshape(-1, 64)
    for slot in range(len(out)):
        held = ranks[order[starts[slot] : starts[slot + 1]]].reshape(-1)
        out[slot] = estimate([int(rank) for rank in held if rank], precision)
