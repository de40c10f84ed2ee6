"""One bit per slot that was written since a snapshot: a 64th of what a column of numbers takes, so
that it stays in the cache while slots are touched at random."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.arrays import Slots

Bits = npt.NDArray[np.uint8]
"""Bit `slot & 7` of byte `slot >> 3`; padded to whole words of 8 bytes."""


def no_bits(count: int) -> Bits:
    """For the slots below `count`, none of which was written."""
    return np.zeros((count + 63 >> 6) << 3, dtype=np.uint8)


def either(some: Bits, others: Bits) -> Bits:
    """What is in one of both, for the slots of the first."""
    return some | others[: len(some)]


def count_of(bits: Bits) -> int:
    return int(np.bitwise_count(bits.view(np.uint64)).sum())


def slots_of(bits: Bits, known: int, count: int) -> Slots:
    """The slots below `known` whose bits are set, and all from there to `count`: new ones."""
    old = np.flatnonzero(np.unpackbits(bits, bitorder="little")[:known])
    return np.concatenate([old, np.arange(known, count)])


def blocks_of(bits: Bits, known: int, blocks: int, block_bits: int) -> npt.NDArray[np.bool_]:
    """Which blocks of 16 slots hold one of `slots_of`."""
    assert block_bits == 4, "two bytes a block"
    marked = np.ones(blocks, dtype=np.bool_)
    whole = min(known >> block_bits, blocks)
    marked[:whole] = bits.view(np.uint16)[:whole] != 0
    return marked
