"""Values chained into lists: those of a slot, when slots are filled, joined and emptied one by one.

A list is known by its last value; `before[value]` is the one ahead of it, -1 at the start, and
`opened[value]`, good for the last value of a list, a value towards the start: the start itself, or
one that has been put behind another list since, from the end of which it goes on (`_start`). Values
are never unchained: a list may be the beginning of several others. Twins in
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


@njit([I64(I64, fresh(I64), fresh(I64))], cache=True)
def _start(list_: Any, before: Any, opened: Any) -> Any:
    """The first value of a list, which `opened` says from then on."""
    start = opened[list_]
    while before[start] >= 0:
        start = opened[before[start]]
    opened[list_] = start
    return start


@njit([void(frozen(I64), frozen(I64), fresh(I64), fresh(I64), fresh(I64))], cache=True)
def join_lists(slots: Any, others: Any, last: Any, before: Any, opened: Any) -> None:
    """Put whole lists (the last value of each, -1 for an empty one) ahead of those of slots.

    Lists with the same start are one already: the slot's list goes on from the other. So no chain
    is ever closed to a ring."""
    for i in range(slots.size):
        other = others[i]
        if other < 0:
            continue
        held = last[slots[i]]
        if held < 0:
            last[slots[i]] = other
            continue
        ahead = _start(other, before, opened)
        start = _start(held, before, opened)
        if start != ahead:
            before[start] = other
            opened[held] = ahead


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
