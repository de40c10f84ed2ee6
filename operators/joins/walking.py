"""The pairs of a batch with stored rows, in portions of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...core.arrays import Int64s
from ...core.growing import GrowingList

Portion = tuple[Int64s, Int64s, int]
"""Rows of the batch (ascending, over all portions), the stored row of each, and up to which row of
the batch the pairs are complete."""

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Lifespans:
    """Which stored rows are there for which rows of a batch; see `kernels.chains`. All empty:
    every one. `born`: of stored rows; `oldest`, `latest`: of those of the batch."""

    born: Int64s
    oldest: Int64s
    latest: Int64s


FOR_EVER = Lifespans(_NONE, _NONE, _NONE)


def walk(
    slots: Int64s, head: GrowingList, link: GrowingList, lifespans: Lifespans, most: int
) -> Iterator[Portion]:
    """Portions of at most `most` pairs; see `kernels.chains`."""
    from ..kernels.chains import FRESH, walk_pairs

    slots = np.where(slots < head.length, slots, -1)
    cursor = np.array([0, FRESH], dtype=np.int64)
    times = (lifespans.born, lifespans.oldest, lifespans.latest)
    while cursor[0] < len(slots):
        probing, stored = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
        found = walk_pairs(slots, head.array, link.array, *times, cursor, probing, stored)
        yield probing[:found], stored[:found], int(cursor[0])


def no_pairs(count: int) -> Iterator[Portion]:
    """For `count` rows that have none."""
    yield np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), count
