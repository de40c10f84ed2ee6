"""Event times to slice ends, and rows to runs of one slice, as `operators.windows.slices` says."""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, int64, njit, void
from .signatures import INTS, INTS_IN, OPTIONS


@njit([void(INTS_IN, int64, int64, int64, INTS)], **OPTIONS)
def slice_ends(timestamps: Any, offset: int, slide: int, head: int, ends: Any) -> None:
    """ends[i] = the end of the slice that holds timestamps[i].

    Divides only where a row's slice differs from that of the row before it."""
    low, high = 0, 0
    for i in range(timestamps.size):
        ts = timestamps[i]
        if ts < low or ts >= high:
            into = (ts - offset) % slide
            base = ts - into
            if into < head:
                low, high = base, base + head
            else:
                low, high = base + head, base + slide
        ends[i] = high


@njit([boolean(INTS_IN, INTS, INTS)], **OPTIONS)
def group_runs(ends: Any, starts: Any, count: Any) -> bool:
    """Where runs of equal values begin: starts[0..count[0]). Stops and returns False as soon as
    a value is less than the one before it."""
    runs = 0
    for i in range(ends.size):
        if i == 0 or ends[i] != ends[i - 1]:
            if i > 0 and ends[i] < ends[i - 1]:
                return False
            starts[runs] = i
            runs += 1
    count[0] = runs
    return True
