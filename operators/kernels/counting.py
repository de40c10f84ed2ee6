"""Windows by count: positions of records within their keys, and batches cut at window bounds.

Window n of a lane holds the records at positions `phase + n * period` to `... + size - 1` of a key.
A *segment* is the part of one window that lies in one batch. Twins in `reference_counting`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import int64, njit, void
from .signatures import INTS, INTS_IN, OPTIONS


@njit([void(INTS_IN, INTS, INTS)], **OPTIONS)
def positions(slots: Any, seen: Any, out: Any) -> None:
    """out[i] = how many records of row i's key came before it; seen[slot] counts them."""
    for i in range(slots.size):
        slot = slots[i]
        out[i] = seen[slot]
        seen[slot] += 1


@njit([int64(INTS_IN, INTS_IN, int64, int64, int64, INTS, INTS, INTS, INTS, INTS, INTS)], **OPTIONS)
def cut(
    slots: Any,
    places: Any,
    phase: int,
    period: int,
    size: int,
    current: Any,
    segments: Any,
    owners: Any,
    previous: Any,
    completed: Any,
    newest: Any,
) -> int:
    """segments[i] = the segment of row i, -1 if no window of the lane holds its place.

    Per segment: owners = its key's slot; previous = its key's segment before it in this batch, -1
    for none; completed = the row that fills its window, -1 if it stays open; newest = 1 for the
    key's last segment, else 0. All have room for one entry per row. Returns how many segments.
    `current` has an entry per slot: -1 before and after."""
    count = 0
    for i in range(slots.size):
        segments[i] = -1
        place = places[i] - phase
        if place < 0:
            continue
        into = place % period
        if into >= size:
            continue
        slot = slots[i]
        segment = current[slot]
        if segment < 0 or into == 0:
            owners[count] = slot
            previous[count] = segment
            completed[count] = -1
            newest[count] = 1
            if segment >= 0:
                newest[segment] = 0
            segment = count
            current[slot] = count
            count += 1
        segments[i] = segment
        if into == size - 1:
            completed[segment] = i
    for segment in range(count):
        current[owners[segment]] = -1
    return count
