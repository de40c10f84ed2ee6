"""Segments of windows that take in the segments before them."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Slots
from ...state.numbered_table import NumberedTable
from ..aggregates.base import Source
from .slot_aggregates import SlotAggregates


def merge_before(aggregates: SlotAggregates, part: NumberedTable, previous: Slots) -> None:
    """Each segment takes in all before it of its window: a prefix sum by doubling distances.
    `previous`: the segment before each, -1 for none."""
    before = previous.copy()
    while True:
        at = np.flatnonzero(before >= 0)
        if not len(at):
            return
        held = part.gather(before[at])
        aggregates.merge(part, at, Source((held, slice(len(held)))))
        before[at] = before[before[at]]
