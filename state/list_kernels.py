"""Values chained into lists: those of a slot, when slots are filled, joined and emptied one by one.

A list is known by its last value; `before[value]` is the one ahead of it, -1 at the start, and
`opened[value]`, good for the last value of a list, a value from which the start is reached: the
start itself, or one that has been joined to others since. Values are never unchained: a list may be
the beginning of several others. Twins in
`reference_lists`.
"""

from __future__ import annotations

from typing import Any

from ..core.native import njit, void
from .hash_kernels import I64, fresh, frozen


@njit([void(frozen(I64), I64, fresh(I64), fresh(I64), fresh(I64))], cache=True)
def extend_lists(slots: Any, first: int, last: Any, before: Any, opened: Any) -> None:
    """Put values first, first + 1, ... at the ends of the lists of their slots."""
    for i in range(slots.size):
        value = first + i
        held = last[slots[i]]
        before[value] = held
        opened[value] = value if held < 0 else opened[held]
        last[slots[i]] = value


@njit([void(frozen(I64), frozen(I64), fresh(I64), fresh(I64), fresh(I64))], cache=True)
def join_lists(slots: Any, others: Any, last: Any, before: Any, opened: Any) -> None:
    """Put whole lists (the last value of each, -1 for an empty one) ahead of those of slots.

    Where the slot's list goes on from one that has been put ahead already, this only says where it
    starts now."""
    for i in range(slots.size):
        other = others[i]
        if other < 0:
            continue
        held = last[slots[i]]
        if held < 0:
            last[slots[i]] = other
            continue
        start = opened[held]
        if start == opened[other]:
            continue
        if before[start] < 0:
            before[start] = other
        opened[held] = opened[other]


@njit([void(frozen(I64), frozen(I64), fresh(I64))], cache=True)
def list_lengths(lists: Any, before: Any, out: Any) -> None:
    """out[i] = how many values the list has that ends with lists[i] (0 for -1)."""
    for i in range(lists.size):
        count = 0
        at = lists[i]
        while at >= 0:
            count += 1
            at = before[at]
        out[i] = count


@njit([void(frozen(I64), frozen(I64), frozen(I64), fresh(I64))], cache=True)
def read_lists(lists: Any, before: Any, ends: Any, out: Any) -> None:
    """The values of each list, from first to last, in `out` up to ends[i]."""
    for i in range(lists.size):
        place = ends[i]
        at = lists[i]
        while at >= 0:
            place -= 1
            out[place] = at
            at = before[at]
