"""What the matches of one side's records change in the result of a regular join, in order.

The records of a batch are `rows` 0..n-1 of one side; `pairs` names, row by row, the stored rows of
the other side that each matches. An added record adds the result rows of its pairs, a retracted one
takes them away. Beyond the pairs, the kind of join decides:

    ALONE    a record without a match gives a row of its own     outer side; left side of an anti
    MATCHED  a record with a match gives a row of its own        left side of a semi join
    track    for the stored rows, whose numbers of matches are in `counts`:
             LONE_SHOWN     rows without match are in the result  other side outer, or anti
             MATCHED_SHOWN  rows with a match are in the result   semi

These are the rules of Flink's StreamingJoinOperator and StreamingSemiAntiJoinOperator. Twins in
`reference_chains`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import int64, njit
from .change_flags import ALONE, MATCHED, MATCHED_SHOWN, PAIRS
from .signatures import BOOLS_IN, INTS, INTS_IN, OPTIONS

NO_ROW = -1


@njit(
    [int64(INTS_IN, INTS_IN, int64, int64, BOOLS_IN, int64, int64, INTS, INTS, INTS, INTS, INTS)],
    **OPTIONS,
)
def settle(
    probing: Any,
    stored: Any,
    first: int,
    done: int,
    retracting: Any,
    show: int,
    track: int,
    matches: Any,
    counts: Any,
    rows: Any,
    others: Any,
    signs: Any,
) -> int:
    """Write the changes of these pairs, and of the rows first..done - 1, whose pairs are complete
    with these: row of the batch, stored row (either may be NO_ROW), +1 or -1. Returns how many;
    there may be 2 * pairs + rows. `matches` (per row of the batch) counts on from earlier calls."""
    found = 0
    at = 0
    row = first
    while row < done or at < len(probing):
        while at < len(probing) and probing[at] == row:
            other = stored[at]
            at += 1
            matches[row] += 1
            sign = -1 if retracting[row] else 1
            before = 0
            if track:
                before = counts[other]
                counts[other] = max(0, before + sign)
            if track and sign > 0 and before == 0:
                rows[found] = NO_ROW
                others[found] = other
                signs[found] = 1 if track == MATCHED_SHOWN else -1
                found += 1
            if show & PAIRS:
                rows[found] = row
                others[found] = other
                signs[found] = sign
                found += 1
            if track and sign < 0 and before == 1:
                rows[found] = NO_ROW
                others[found] = other
                signs[found] = -1 if track == MATCHED_SHOWN else 1
                found += 1
        if row < done:
            alone = matches[row] == 0
            if (alone and show & ALONE) or (not alone and show & MATCHED):
                rows[found] = row
                others[found] = NO_ROW
                signs[found] = -1 if retracting[row] else 1
                found += 1
        row += 1
    return found
