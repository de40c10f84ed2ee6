"""What the kernels of `ranking` do, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

Words = tuple[int, ...]


def best_rows(
    slots: Sequence[int], words: Sequence[Words], later: bool, held: dict[int, Words]
) -> dict[int, int]:
    """Slot -> the row that takes its place, by first change; `held` follows."""
    winner: dict[int, int] = {}
    for row, (slot, new) in enumerate(zip(slots, words, strict=True)):
        old = held.get(slot)
        if old is None or new < old or (later and new == old):
            winner[slot] = row
            held[slot] = new
    return winner


def insert_ranked(
    slots: Sequence[int], words: Sequence[Words], n: int, held: dict[int, list[tuple[Words, int]]]
) -> dict[int, list[int]]:
    """Former ids of the changed slots; `held` follows, (words, id) in order."""
    before: dict[int, list[int]] = {}
    for row, (slot, new) in enumerate(zip(slots, words, strict=True)):
        entries = held.setdefault(slot, [])
        if len(entries) == n and not new < entries[-1][0]:
            continue
        before.setdefault(slot, [entry[1] for entry in entries])
        entries.append((new, -1 - row))
        entries.sort(key=lambda entry: entry[0])
        del entries[n:]
    return before


def list_differences(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """(id, -1) for those gone, then (id, 1) for those new."""
    gone = [(one, -1) for one in before if one not in after]
    return gone + [(one, 1) for one in after if one not in before]


def rank_differences(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int, int]]:
    """(id, row kind, rank) place by place."""
    changes: list[tuple[int, int, int]] = []
    for place in range(max(len(before), len(after))):
        old, new = before[place : place + 1], after[place : place + 1]
        if old == new:
            continue
        changes += [(one, 1 if new else 3, place + 1) for one in old]
        changes += [(one, 2 if old else 0, place + 1) for one in new]
    return changes
