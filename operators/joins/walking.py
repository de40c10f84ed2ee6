"""The pairs of a batch with stored rows, in portions of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...core.arrays import Int64s
from ...core.growing import GrowingList

Portion = tuple[Int64s, Int64s, int]
"""Rows of the batch (ascending, over all portions), the stored row of each, and up to which row of
the batch the pairs are complete."""

NO_BIRTHS = np.empty(0, dtype=np.int64)


def walk(
    slots: Int64s, head: GrowingList, link: GrowingList, born: Int64s, cutoff: int, most: int
) -> Iterator[Portion]:
    """Portions of at most `most` pairs; see `kernels.chains`."""
    from ..kernels.chains import FRESH, walk_pairs

    slots = np.where(slots < head.length, slots, -1)
    cursor = np.array([0, FRESH], dtype=np.int64)
    while cursor[0] < len(slots):
        probing, stored = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        found = walk_pairs(slots, head.array, link.array, born, cutoff, cursor, probing, stored)
        yield probing[:found], stored[:found], int(cursor[0])


def no_pairs(count: int) -> Iterator[Portion]:
    """For `count` rows that have none."""
    yield np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), count
