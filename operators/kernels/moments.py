"""Scatter kernels of aggregates beyond `scatter`: moments, retraction, the record at an extreme.

Same shapes: see `signatures`. Twins in `reference_moments`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, int64, njit, void
from .overflow import overflows
from .scatter import better
from .signatures import BOOLS, BOOLS_IN, FLOATS, FLOATS_IN, INTS, INTS_IN, OPTIONS, VALUES


@njit([void(INTS_IN, FLOATS_IN, BOOLS_IN, INTS, FLOATS, FLOATS)], **OPTIONS)
def moments_into(slots: Any, values: Any, valid: Any, n: Any, mean: Any, m2: Any) -> None:
    """Welford: n, mean and sum of squared differences from it, for each row that is not null."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            n[s] += 1
            delta = values[i] - mean[s]
            mean[s] += delta / n[s]
            m2[s] += delta * (values[i] - mean[s])


@njit([void(INTS_IN, FLOATS_IN, BOOLS_IN, INTS, FLOATS, FLOATS)], **OPTIONS)
def moments_out(slots: Any, values: Any, valid: Any, n: Any, mean: Any, m2: Any) -> None:
    """Takes back what `moments_into` added; exactly zero again when nothing is left."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            n[s] -= 1
            if n[s] == 0:
                mean[s] = 0.0
                m2[s] = 0.0
            else:
                delta = values[i] - mean[s]
                mean[s] -= delta / n[s]
                m2[s] = max(m2[s] - delta * (values[i] - mean[s]), 0.0)


@njit([void(INTS_IN, INTS_IN, FLOATS_IN, FLOATS_IN, INTS, FLOATS, FLOATS)], **OPTIONS)
def merge_moments(
    slots: Any, n_in: Any, mean_in: Any, m2_in: Any, n: Any, mean: Any, m2: Any
) -> None:
    """Chan: adds the moments of other accumulators."""
    for i in range(slots.size):
        s, k = slots[i], n_in[i]
        if k == 0:
            continue
        if n[s] == 0:
            n[s], mean[s], m2[s] = k, mean_in[i], m2_in[i]
            continue
        total = n[s] + k
        delta = mean_in[i] - mean[s]
        m2[s] += m2_in[i] + delta * delta * (n[s] * (k / total))
        mean[s] += delta * (k / total)
        n[s] = total


@njit([boolean(INTS_IN, v, BOOLS_IN, a, INTS) for v, a in VALUES], **OPTIONS)
def counted_sum_into(slots: Any, values: Any, valid: Any, acc: Any, counts: Any) -> bool:
    """acc[slot] += value and counts[slot] += 1 for each row that is not null.

    Returns whether an integer sum left the range of int64."""
    dense = valid.size == 0
    overflow = False
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            overflow = overflow or overflows(acc[s], values[i])
            acc[s] += values[i]
            counts[s] += 1
    return overflow


@njit([void(INTS_IN, v, BOOLS_IN, a, INTS) for v, a in VALUES], **OPTIONS)
def counted_sum_out(slots: Any, values: Any, valid: Any, acc: Any, counts: Any) -> None:
    """Takes back what `counted_sum_into` added; exactly zero again when nothing is left."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            counts[s] -= 1
            acc[s] -= values[i]
            if counts[s] == 0:
                acc[s] = 0


@njit([void(INTS_IN, BOOLS_IN, INTS)], **OPTIONS)
def count_out(slots: Any, valid: Any, counts: Any) -> None:
    """counts[slot] -= 1 for each row that is not null."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            counts[slots[i]] -= 1


@njit(
    [
        void(INTS_IN, b, BOOLS_IN, INTS_IN, v, BOOLS_IN, bs, INTS, a, BOOLS, boolean)
        for b, bs in VALUES
        for v, a in VALUES
    ],
    **OPTIONS,
)
def held_value_into(
    slots: Any,
    by: Any,
    valid: Any,
    numbers: Any,
    values: Any,
    values_valid: Any,
    acc_by: Any,
    best: Any,
    acc: Any,
    acc_valid: Any,
    largest: bool,
) -> None:
    """acc[slot], acc_valid[slot] = the value of the row with the greatest (or least) `by`, and
    acc_by[slot] = that; of several such rows, the one with the least number: best[slot].

    `valid` is that of `by`. best is -1 where there is no value yet."""
    dense = valid.size == 0
    all_valid = values_valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            if (
                best[s] < 0
                or better(by[i], acc_by[s], largest)
                or (numbers[i] < best[s] and not better(acc_by[s], by[i], largest))
            ):
                acc_by[s] = by[i]
                best[s] = numbers[i]
                acc[s] = values[i]
                acc_valid[s] = all_valid or values_valid[i]


@njit([int64(INTS_IN, a, BOOLS, a, BOOLS, boolean) for _, a in VALUES], **OPTIONS)
def carry_into(slots: Any, carried: Any, valid: Any, acc: Any, seen: Any, largest: bool) -> int:
    """One place of a list of best values: where a carried value is better than acc[slot] the two
    change places, so that the loser is carried on to the next place. Returns how many still are;
    `valid` says which."""
    left = 0
    for i in range(slots.size):
        if not valid[i]:
            continue
        s = slots[i]
        if not seen[s]:
            seen[s] = True
            acc[s] = carried[i]
            valid[i] = False
            continue
        left += 1
        if better(carried[i], acc[s], largest):
            carried[i], acc[s] = acc[s], carried[i]
    return left


__all__ = [
    "carry_into",
    "count_out",
    "counted_sum_into",
    "counted_sum_out",
    "held_value_into",
    "merge_moments",
    "moments_into",
    "moments_out",
]
