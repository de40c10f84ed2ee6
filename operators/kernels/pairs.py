"""The kernel that groups the rows of a side by slot (dense key number): a counting sort."""

from __future__ import annotations

from typing import Any

from ...core.native import njit, void
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
