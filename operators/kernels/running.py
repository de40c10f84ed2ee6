"""Running aggregates: one result per row, the aggregate of its key up to and including that row."""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, njit, void
from .overflow import overflows
from .scatter import better
from .signatures import BOOLS, BOOLS_IN, INTS_IN, OPTIONS, VALUES


@njit([boolean(INTS_IN, v, BOOLS_IN, a, BOOLS, a, BOOLS) for v, a in VALUES], **OPTIONS)
def running_sum(
    slots: Any, values: Any, valid: Any, acc: Any, seen: Any, out: Any, out_valid: Any
) -> bool:
    """out[i] = the slot's sum after row i, out_valid[i] = whether it had any value so far.

    Returns whether an integer sum left the range of int64."""
    dense = valid.size == 0
    overflow = False
    for i in range(slots.size):
        s = slots[i]
        if dense or valid[i]:
            overflow = overflow or overflows(acc[s], values[i])
            acc[s] += values[i]
            seen[s] = True
        out[i] = acc[s]
        out_valid[i] = seen[s]
    return overflow


@njit([void(INTS_IN, v, BOOLS_IN, a, BOOLS, boolean, a, BOOLS) for v, a in VALUES], **OPTIONS)
def running_extreme(
    slots: Any,
    values: Any,
    valid: Any,
    acc: Any,
    seen: Any,
    largest: bool,
    out: Any,
    out_valid: Any,
) -> None:
    """Like `running_sum` for the greatest (or least) value."""
    dense = valid.size == 0
    for i in range(slots.size):
        s = slots[i]
        if (dense or valid[i]) and (not seen[s] or better(values[i], acc[s], largest)):
            acc[s] = values[i]
            seen[s] = True
        out[i] = acc[s]
        out_valid[i] = seen[s]


@njit([void(INTS_IN, v, BOOLS_IN, a, BOOLS, BOOLS, boolean, BOOLS) for v, a in VALUES], **OPTIONS)
def running_holder(
    slots: Any,
    values: Any,
    valid: Any,
    acc: Any,
    seen: Any,
    held: Any,
    largest: bool,
    takes: Any,
) -> None:
    """takes[i] = whether row i becomes its slot's extreme record.

    The first record of a key is held until a better one comes; a null is worse than any value."""
    dense = valid.size == 0
    for i in range(slots.size):
        s = slots[i]
        takes[i] = not held[s]
        held[s] = True
        if (dense or valid[i]) and (not seen[s] or better(values[i], acc[s], largest)):
            acc[s] = values[i]
            seen[s] = True
            takes[i] = True


@njit(
    [void(INTS_IN, BOOLS_IN, v, a, a) for v, a in VALUES]
    + [void(INTS_IN, BOOLS_IN, BOOLS_IN, BOOLS, BOOLS)],
    **OPTIONS,
)
def running_record(slots: Any, takes: Any, values: Any, acc: Any, out: Any) -> None:
    """One field of the held records: out[i] = that of the record held by slots[i] after row i."""
    for i in range(slots.size):
        s = slots[i]
        if takes[i]:
            acc[s] = values[i]
        out[i] = acc[s]
