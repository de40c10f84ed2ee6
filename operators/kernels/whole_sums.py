"""Sums of whole numbers without rounding, beyond int64, for means: of which the order of adding
says nothing.

A sum is two floats: the float next to it, and what that lacks, its *rest*. Both are whole numbers,
and both are exact while the sum is less than 2**99: 2**36 of the greatest int64. What
a checkpoint of before has is a rounded sum without a rest, which goes on from there.

`unsigned`: whether the bits of `values` are those of uint64. Twins in `reference_whole_sums`.
"""

from __future__ import annotations

from typing import Any

from ...core.native import boolean, njit, void
from .signatures import BOOLS, BOOLS_IN, FLOATS, FLOATS_IN, INTS, INTS_IN, OPTIONS

_EXACT = 9007199254740992
"""2**53: whole floats up to it, and their sums up to it, are exact."""

_HALF = 4294967296.0


@njit(inline="always")
def add_parts(sums: Any, rests: Any, s: int, high: float, low: float) -> None:
    """The sum of slot `s` becomes greater by both whole numbers: by Knuth's exact addition of two
    floats, once to add and once so that the sum is the next float again."""
    held = sums[s]
    rough = held + high
    shown = rough - held
    lost = (held - (rough - shown)) + (high - shown) + (rests[s] + low)
    if lost != lost:  # a float sum that was restored and is infinite stays so
        sums[s] = rough
        return
    whole = rough + lost
    shown = whole - rough
    rests[s] = (rough - (whole - shown)) + (lost - shown)
    sums[s] = whole


@njit(inline="always")
def add_whole(sums: Any, rests: Any, s: int, value: int, unsigned: bool, sign: int) -> None:
    """The sum of slot `s` becomes greater (`sign` 1) or less (-1) by the value."""
    if -_EXACT < value < _EXACT and (value >= 0 or not unsigned):
        total = sums[s] + sign * float(value)
        if rests[s] == 0.0 and -_EXACT < total < _EXACT and -_EXACT < sums[s] < _EXACT:
            sums[s] = total
            return
    top = value >> 32
    if unsigned:
        top &= 0xFFFFFFFF
    add_parts(sums, rests, s, sign * (float(top) * _HALF), sign * float(value & 0xFFFFFFFF))


@njit([void(INTS_IN, INTS_IN, boolean, BOOLS_IN, FLOATS, FLOATS, INTS)], **OPTIONS)
def whole_sum_into(
    slots: Any, values: Any, unsigned: bool, valid: Any, sums: Any, rests: Any, counts: Any
) -> None:
    """Adds each value that is not null to its slot's sum, and counts it."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            add_whole(sums, rests, s, values[i], unsigned, 1)
            counts[s] += 1


@njit([void(INTS_IN, INTS_IN, boolean, BOOLS_IN, FLOATS, FLOATS, INTS)], **OPTIONS)
def whole_sum_out(
    slots: Any, values: Any, unsigned: bool, valid: Any, sums: Any, rests: Any, counts: Any
) -> None:
    """Takes back what `whole_sum_into` added; zero when nothing is left, also of a sum that was
    restored rounded."""
    dense = valid.size == 0
    for i in range(slots.size):
        if dense or valid[i]:
            s = slots[i]
            add_whole(sums, rests, s, values[i], unsigned, -1)
            counts[s] -= 1
            if counts[s] == 0:
                sums[s] = 0.0
                rests[s] = 0.0


@njit([void(INTS_IN, FLOATS_IN, FLOATS_IN, FLOATS, FLOATS)], **OPTIONS)
def merge_whole_sums(slots: Any, sums_in: Any, rests_in: Any, sums: Any, rests: Any) -> None:
    """Adds the sums of other accumulators."""
    for i in range(slots.size):
        add_parts(sums, rests, slots[i], sums_in[i], rests_in[i])


@njit([void(INTS_IN, INTS_IN, boolean, BOOLS_IN, FLOATS, FLOATS, BOOLS, FLOATS, BOOLS)], **OPTIONS)
def running_whole_sum(
    slots: Any,
    values: Any,
    unsigned: bool,
    valid: Any,
    sums: Any,
    rests: Any,
    seen: Any,
    out: Any,
    out_valid: Any,
) -> None:
    """out[i] = the float next to the slot's sum after row i, out_valid[i] = whether it had any
    value so far."""
    dense = valid.size == 0
    for i in range(slots.size):
        s = slots[i]
        if dense or valid[i]:
            add_whole(sums, rests, s, values[i], unsigned, 1)
            seen[s] = True
        out[i] = sums[s]
        out_valid[i] = seen[s]
