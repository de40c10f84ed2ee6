"""What the kernels of `expiry` do, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def first_of_a_while(
    slots: Sequence[int], times: Sequence[int], ttl: int, stamps: dict[int, int]
) -> list[int]:
    """The rows whose slot was not stamped for so long; `stamps` follows."""
    rows = []
    for row, (slot, time) in enumerate(zip(slots, times, strict=True)):
        if slot not in stamps or stamps[slot] + ttl <= time:
            stamps[slot] = time
            rows.append(row)
    return rows


def take_turns(
    slots: Sequence[int], times: Sequence[int], ttl: int, stamps: dict[int, int]
) -> tuple[list[int], list[int]]:
    """Each row's turn, and the slots that had expired for their first rows; `stamps` follows."""
    turn: dict[int, int] = {}
    turns, stale = [], []
    for slot, time in zip(slots, times, strict=True):
        over = slot in stamps and stamps[slot] + ttl <= time
        if slot not in turn and over:
            stale.append(slot)
        turn[slot] = turn[slot] + over if slot in turn else 0
        turns.append(turn[slot])
        stamps[slot] = max(time, stamps.get(slot, time))
    return turns, stale


def unheld(owners: Sequence[int], retracting: Sequence[bool], counts: list[int]) -> list[bool]:
    """Which rows take away what is not there; `counts` follows."""
    found = []
    for owner, takes in zip(owners, retracting, strict=True):
        found.append(takes and counts[owner] == 0)
        counts[owner] += -1 if takes and counts[owner] else 0 if takes else 1
    return found
