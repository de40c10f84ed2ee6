"""Scatter aggregates: fold a batch's values into accumulators, each row into its key's slot.

`*_into` fold input rows; `add_into`, `extreme_into` and `earliest_into` also merge the accumulators
of one table into those of another. See `signatures` for shapes and `reference` for plain Python.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, njit, void
from .overflow import overflows
from .signatures import BOOLS, BOOLS_IN, INTS, INTS_IN, OPTIONS, VALUES


@njit(inline="always")
def better(value: Any, than: Any, largest: bool) -> bool:
    """Whether `value` replaces the extreme `than`. NaN is the greatest value; equals do not."""
    if largest:
        return value > than or (value != value and than == than)  # type: ignore[no-any-return]
    return value < than or (than != than and value == value)  # type: ignore[no-any-return]


@njit([void(INTS_IN, BOOLS_IN, INTS)], **OPTIONS)
def count_into(slots: Any, valid: Any, counts: Any) -> None:
    """counts[slot] += 1 for each row that is not null."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            counts[slots[i]] += 1


@njit([void(INTS_IN, v, a) for v, a in VALUES], **OPTIONS)
def add_into(slots: Any, values: Any, acc: Any) -> None:
    """acc[slot] += value; wraps on overflow. For counts and float sums."""
    for i in range(slots.size):
        acc[slots[i]] += values[i]


@njit([boolean(INTS_IN, v, BOOLS_IN, a, BOOLS) for v, a in VALUES], **OPTIONS)
def sum_into(slots: Any, values: Any, valid: Any, acc: Any, seen: Any) -> bool:
    """acc[slot] += value and seen[slot] = True for each row that is not null.

    Returns whether an integer sum left the range of int64 (never true for floats)."""
    dense = valid.size == 0
    overflow = False
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            overflow = overflow or overflows(acc[s], values[i])
            acc[s] += values[i]
            seen[s] = True
    return overflow


@njit([void(INTS_IN, v, BOOLS_IN, a, INTS) for v, a in VALUES[1:]], **OPTIONS)
def mean_into(slots: Any, values: Any, valid: Any, acc: Any, counts: Any) -> None:
    """acc[slot] += value (float64) and counts[slot] += 1 for each row that is not null."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            acc[s] += values[i]
            counts[s] += 1


@njit([void(INTS_IN, v, BOOLS_IN, a, BOOLS, boolean) for v, a in VALUES], **OPTIONS)
def extreme_into(slots: Any, values: Any, valid: Any, acc: Any, seen: Any, largest: bool) -> None:
    """acc[slot] = the greatest (or least) of itself, once seen, and the non-null values."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            if not seen[s]:
                seen[s] = True
                acc[s] = values[i]
            elif better(values[i], acc[s], largest):
                acc[s] = values[i]


@njit([void(INTS_IN, v, BOOLS_IN, INTS_IN, a, INTS, boolean) for v, a in VALUES], **OPTIONS)
def earliest_into(
    slots: Any, values: Any, valid: Any, numbers: Any, acc: Any, best: Any, latest: bool
) -> None:
    """acc[slot] = the value with the least (or greatest) sequence number, best[slot] = that number.

    Sequence numbers are >= 0; best is -1 where there is no value yet."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            if best[s] < 0 or (numbers[i] > best[s]) == latest:
                acc[s] = values[i]
                best[s] = numbers[i]


@njit([void(INTS_IN, v, BOOLS_IN, INTS, a, BOOLS, boolean) for v, a in VALUES], **OPTIONS)
def arg_extreme_into(
    slots: Any, values: Any, valid: Any, rows: Any, acc: Any, seen: Any, largest: bool
) -> None:
    """rows[slot] = the first row holding the slot's extreme; acc and seen as in `extreme_into`."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            if not seen[s] or better(values[i], acc[s], largest):
                seen[s] = True
                acc[s] = values[i]
                rows[s] = i


@njit([void(INTS_IN, v, BOOLS_IN, a, BOOLS, boolean, boolean, BOOLS) for v, a in VALUES], **OPTIONS)
def candidates(
    slots: Any,
    values: Any,
    valid: Any,
    acc: Any,
    seen: Any,
    largest: bool,
    ties: bool,
    chosen: Any,
) -> None:
    """chosen[i] = whether row i may hold its slot's extreme after this batch, folding it into acc.

    With `ties` all rows that equal the extreme; without, the first that improved on it, if any."""
    dense = valid.size == 0
    for i in range(slots.size):
        chosen[i] = False
        if dense or valid[i]:
            s = slots[i]
            if not seen[s] or better(values[i], acc[s], largest):
                seen[s] = True
                acc[s] = values[i]
                chosen[i] = True
            elif ties and (values[i] == acc[s] or values[i] != values[i]):
                chosen[i] = not better(acc[s], values[i], largest)
    for i in range(slots.size):
        if chosen[i] and better(acc[slots[i]], values[i], largest):
            chosen[i] = False
