"""Kernels over rows chained by key slot: the in-memory index of a join's stored rows.

`head[slot]` is the slot's newest row, `link[row]` the next older one, -1 the end. Adding a row is
two writes; finding the rows of a key follows the chain. A stored row has expired for a row of the
batch if it was stored at `oldest` (of the latter) or before, by `born`. Times of arrival never
decrease along the rows: as a chain goes from new to old, everything behind such a row has expired
as well. Event times do, so all of the chain is looked at. `born` is empty where nothing expires.
Twins in `reference_chains`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, int32, int64, njit, void
from .signatures import BOOLS_IN, INTS, INTS_IN, OPTIONS

ROWS = int32[::1]
"""Numbers of rows: half the memory of int64; `Arena` sees that there are no more."""

NONE = -1
FRESH = -2
"""In a cursor: the chain of this row has not been entered yet."""


@njit([void(INTS_IN, int64, ROWS, ROWS)], **OPTIONS)
def link_rows(slots: Any, first: int, head: Any, link: Any) -> None:
    """Put rows first, first + 1, ... into the chains of their slots."""
    for i in range(len(slots)):
        slot = slots[i]
        link[first + i] = head[slot]
        head[slot] = first + i


@njit([int64(INTS_IN, ROWS, ROWS, INTS_IN, INTS_IN, INTS_IN, INTS, INTS, INTS)], **OPTIONS)
def walk_pairs(
    slots: Any,
    head: Any,
    link: Any,
    born: Any,
    oldest: Any,
    latest: Any,
    cursor: Any,
    probing: Any,
    stored: Any,
) -> int:
    """The pairs (row of `slots`, stored row), from where `cursor` (row, stored row) stands until
    all are found or `probing` is full; returns how many. Rows before cursor[0] are done. A negative
    slot has no pairs. `latest` is empty where `born` never decreases; else a row of the batch has
    itself expired for rows that were stored at its `latest` or later."""
    room = len(probing)
    found = 0
    row = cursor[0]
    at = cursor[1]
    while row < len(slots):
        if at == FRESH:
            at = head[slots[row]] if slots[row] >= 0 else NONE
        while at != NONE:
            if born.size and born[at] <= oldest[row]:
                if not latest.size:
                    break
                at = link[at]
                continue
            if latest.size and born[at] >= latest[row]:
                at = link[at]
                continue
            if found == room:
                cursor[0] = row
                cursor[1] = at
                return found
            probing[found] = row
            stored[found] = at
            found += 1
            at = link[at]
        row += 1
        at = FRESH
    cursor[0] = row
    cursor[1] = FRESH
    return found


@njit(
    [
        void(
            INTS_IN, INTS_IN, BOOLS_IN, INTS_IN, ROWS, ROWS, INTS_IN, INTS_IN, boolean, INTS, INTS,
            INTS
        )
    ],
    **OPTIONS,
)  # fmt: skip
def apply_changes(
    slots: Any,
    rows: Any,
    retracting: Any,
    hashed: Any,
    head: Any,
    link: Any,
    born: Any,
    oldest: Any,
    ordered: bool,
    hashes: Any,
    removed: Any,
    befores: Any,
) -> None:
    """A changelog in order: add row `rows[i]` to its chain, or take away the newest row whose
    content has the hash `hashed[i]`; `removed[i]` becomes the row taken, -1 if there was none, and
    `befores[i]` the row ahead of it in the chain. `ordered`: whether `born` never decreases."""
    for i in range(len(slots)):
        slot = slots[i]
        removed[i] = NONE
        if not retracting[i]:
            row = rows[i]
            link[row] = head[slot]
            head[slot] = row
            hashes[row] = hashed[i]
            continue
        before = NONE
        at = head[slot]
        while at != NONE:
            gone = born.size > 0 and born[at] <= oldest[i]
            if gone and ordered:
                break
            if not gone and hashes[at] == hashed[i]:
                if before == NONE:
                    head[slot] = link[at]
                else:
                    link[before] = link[at]
                removed[i] = at
                befores[i] = before
                break
            before = at
            at = link[at]


@njit(
    [void(INTS_IN, INTS_IN, BOOLS_IN, INTS_IN, INTS_IN, ROWS, ROWS)],
    **OPTIONS,
)
def undo_changes(
    slots: Any,
    rows: Any,
    retracting: Any,
    removed: Any,
    befores: Any,
    head: Any,
    link: Any,
) -> None:
    """What `apply_changes` did, from the last change to the first."""
    for i in range(len(slots) - 1, -1, -1):
        if not retracting[i]:
            head[slots[i]] = link[rows[i]]
        elif removed[i] != NONE:
            if befores[i] == NONE:
                head[slots[i]] = removed[i]
            else:
                link[befores[i]] = removed[i]
