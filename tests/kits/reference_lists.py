"""`lists` in plain Python: the list of each slot as a list."""

from __future__ import annotations

from collections.abc import Sequence

Lists = list[list[int]]
"""Slot -> values."""


def extend(lists: Lists, slots: Sequence[int], first: int) -> None:
    for i, slot in enumerate(slots):
        lists[slot].append(first + i)


def join(lists: Lists, slots: Sequence[int], others: Sequence[Sequence[int]]) -> None:
    """A list that begins with the other one already stays as it is."""
    for slot, other in zip(slots, others, strict=True):
        if lists[slot][: len(other)] != list(other):
            lists[slot] = [*other, *lists[slot]]
