"""Kernels over the versions of a table's rows: chains per key, from the latest time to the first.

`head[slot]` is the slot's version with the greatest time, `link[row]` the one before it, -1 the
end. Of versions of one time the one that came last is found first. Once the watermark has passed a
version, those before it are of no more use: they are cut off. Twins in `reference_versions`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import int64, njit, void
from .signatures import BOOLS, BOOLS_IN, INTS, INTS_IN, OPTIONS

NONE = -1


@njit([void(INTS_IN, INTS_IN, int64, int64, INTS, INTS)], **OPTIONS)
def insert_versions(
    slots: Any, times: Any, first: int, watermark: int, head: Any, link: Any
) -> None:
    """Put rows first, first + 1, ... into the chains of their slots (`slots` begins with that of
    row `first`; `times` with that of row 0), and cut the chains they come into."""
    for i in range(len(slots)):
        slot = slots[i]
        row = first + i
        before = NONE
        at = head[slot]
        while at != NONE and times[at] > times[row] and times[at] > watermark:
            before = at
            at = link[at]
        if at != NONE and times[at] > times[row]:
            link[row] = NONE
            continue
        link[row] = at
        if before == NONE:
            head[slot] = row
        else:
            link[before] = row
        at = row
        while times[at] > watermark and link[at] != NONE:
            at = link[at]
        if times[at] <= watermark:
            link[at] = NONE


@njit(
    [void(INTS_IN, INTS_IN, INTS_IN, INTS_IN, INTS_IN, BOOLS_IN, INTS_IN, int64, int64, INTS)],
    **OPTIONS,
)
def find_versions(
    slots: Any,
    asked: Any,
    head: Any,
    link: Any,
    times: Any,
    ends: Any,
    born: Any,
    cutoff: int,
    life: int,
    found: Any,
) -> None:
    """`found[i]`: the version of slots[i] that is valid at time asked[i]; -1 if there is none, if
    it is an end of validity (`ends`), if it was born at `cutoff` or before (`born` may be empty),
    or if its own time is `life` or more before the one asked for (0: it has no such end)."""
    for i in range(len(slots)):
        slot = slots[i]
        found[i] = NONE
        if slot < 0 or slot >= len(head):
            continue
        at = head[slot]
        while at != NONE and times[at] > asked[i]:
            at = link[at]
        if at == NONE or ends[at] or (len(born) and born[at] <= cutoff):
            continue
        if life == 0 or times[at] > asked[i] - life:
            found[i] = at


@njit([void(INTS_IN, INTS_IN, INTS_IN, BOOLS_IN, INTS_IN, int64, int64, BOOLS)], **OPTIONS)
def mark_useful(
    head: Any,
    link: Any,
    times: Any,
    ends: Any,
    born: Any,
    cutoff: int,
    watermark: int,
    useful: Any,
) -> None:
    """`useful` (false everywhere) becomes true for the versions that may still be found."""
    for slot in range(len(head)):
        at = head[slot]
        while at != NONE:
            over = times[at] <= watermark
            expired = len(born) > 0 and born[at] <= cutoff
            useful[at] = not ((over and ends[at]) or expired)
            if over:
                break
            at = link[at]
