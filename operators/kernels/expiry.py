"""Kernels over stamps of slots: a key has expired for a record whose time is `ttl` or more behind
its stamp. `times`: of each record; `stamps`: of each slot, NEVER where nothing is held. Twins in
`reference_expiry`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import int32, int64, njit
from ..key_expiry import NEVER
from .signatures import BOOLS, BOOLS_IN, INTS, INTS_IN, OPTIONS


@njit([int64(INTS_IN, INTS_IN, int64, INTS, INTS)], **OPTIONS)
def first_of_a_while(slots: Any, times: Any, ttl: int, stamps: Any, rows: Any) -> int:
    """The rows, in order, whose key holds nothing or has expired; they stamp it. Returns how many
    were written to `rows`."""
    count = 0
    for i in range(slots.size):
        s = slots[i]
        if stamps[s] == NEVER or stamps[s] <= times[i] - ttl:
            stamps[s] = times[i]
            rows[count] = i
            count += 1
    return count


@njit([int64(INTS_IN, INTS_IN, int64, INTS, int32[::1], INTS, INTS)], **OPTIONS)
def take_turns(
    slots: Any, times: Any, ttl: int, stamps: Any, turn: Any, of_rows: Any, stale: Any
) -> int:
    """`of_rows[i]`: how often, before and with row i, a row found its key expired which was not the
    key's first. `turn` is -1 everywhere at the start, and becomes the last of these. `stale` gets
    the slots that had expired for their first rows; returns their number. Every row stamps its
    key."""
    count = 0
    for i in range(slots.size):
        s = slots[i]
        over = stamps[s] != NEVER and stamps[s] <= times[i] - ttl
        if turn[s] < 0:
            turn[s] = 0
            if over:
                stale[count] = s
                count += 1
        elif over:
            turn[s] += 1
        of_rows[i] = turn[s]
        if times[i] > stamps[s]:
            stamps[s] = times[i]
    return count


@njit([int64(INTS_IN, BOOLS_IN, INTS, BOOLS)], **OPTIONS)
def find_unheld(owners: Any, retracting: Any, counts: Any, unheld: Any) -> int:
    """Which rows take something away of which there is none left: `counts` is how many there are of
    each owner, and follows. Returns how many."""
    found = 0
    for i in range(owners.size):
        unheld[i] = False
        if not retracting[i]:
            counts[owners[i]] += 1
        elif counts[owners[i]] > 0:
            counts[owners[i]] -= 1
        else:
            unheld[i] = True
            found += 1
    return found
