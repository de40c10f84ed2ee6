"""The first n rows of each slot in an order, chosen from arrays. Loads kernels: import it late."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Int64s
from ..kernels.pairs import group_rows
from ..kernels.topn import first_rows

FEW = 32
"""Up to so many rows per slot are found by insertion, more by sorting all rows."""


def best_rows(
    slots: Int64s, count: int, words: Int64s, width: int, n: int
) -> tuple[Int64s, Int64s]:
    """(rows, places from 1), slot by slot and in order within a slot; equals in order of rows.

    `slots`: of each row, in 0..count-1. `words`: see `kernels.ranking`."""
    starts = np.zeros(count + 1, dtype=np.int64)
    order = np.empty(len(slots), dtype=np.int64)
    if n <= FEW:
        group_rows(slots, starts, order)
        chosen, places = np.empty_like(order), np.empty_like(order)
        size = first_rows(starts, order, words, width, n, chosen, places)
        return chosen[:size], places[:size]
    ranked = np.lexsort(words.reshape(-1, width).T[::-1])
    group_rows(slots[ranked], starts, order)
    places = np.arange(1, len(order) + 1) - starts[slots[ranked[order]]]
    best = places <= n
    return ranked[order[best]], places[best]
