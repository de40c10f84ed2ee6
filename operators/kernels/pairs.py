"""Kernels that bring together the rows of two sides that have equal slots (dense key numbers).

A side is grouped once (`group_rows`: counting sort by slot), then all pairs with the other side's
rows are written out in one pass. Twins in `reference_pairs`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import int64, njit, void
from .signatures import INTS, INTS_IN, OPTIONS


@njit([void(INTS_IN, INTS, INTS)], **OPTIONS)
def group_rows(slots: Any, starts: Any, order: Any) -> None:
    """`starts` (number of slots + 1, zeroed) becomes the ranges of each slot in `order`, which
    becomes the rows by slot, ascending within a slot."""
    for slot in slots:
        starts[slot + 1] += 1
    for slot in range(len(starts) - 1):
        starts[slot + 1] += starts[slot]
    for row in range(len(slots)):
        slot = slots[row]
        order[starts[slot]] = row
        starts[slot] += 1
    for slot in range(len(starts) - 1, 0, -1):  # each start has moved to the next one's place
        starts[slot] = starts[slot - 1]
    starts[0] = 0


@njit([int64(INTS_IN, INTS_IN)], **OPTIONS)
def count_pairs(slots: Any, starts: Any) -> int:
    """How many pairs the probing rows make with the grouped side. Slots beyond it have none."""
    total = 0
    for slot in slots:
        if 0 <= slot < len(starts) - 1:
            total += starts[slot + 1] - starts[slot]
    return total


@njit([void(INTS_IN, INTS_IN, INTS_IN, INTS, INTS)], **OPTIONS)
def fill_pairs(slots: Any, starts: Any, order: Any, probing: Any, grouped: Any) -> None:
    """The pairs (row of `slots`, row of the grouped side): in order of the probing rows, then of
    the grouped side's."""
    at = 0
    for row in range(len(slots)):
        slot = slots[row]
        if 0 <= slot < len(starts) - 1:
            for position in range(starts[slot], starts[slot + 1]):
                probing[at] = row
                grouped[at] = order[position]
                at += 1
