"""`counting` in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


def positions(slots: Sequence[int], seen: list[int]) -> list[int]:
    out = []
    for slot in slots:
        out.append(seen[slot])
        seen[slot] += 1
    return out


@dataclass
class Cut:
    """Per row: segments; per segment: the others. As the kernel's arrays."""

    segments: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)


def cut(slots: Sequence[int], places: Sequence[int], phase: int, period: int, size: int) -> Cut:
    found = Cut()
    numbers: dict[tuple[int, int], int] = {}
    for row, (slot, place) in enumerate(zip(slots, places, strict=True)):
        window, into = divmod(place - phase, period)
        if window < 0 or into >= size:
            found.segments.append(-1)
            continue
        if (slot, window) not in numbers:
            numbers[slot, window] = len(numbers)
            mine = [segment for segment, owner in enumerate(found.owners) if owner == slot]
            found.owners.append(slot)
            found.previous.append(mine[-1] if mine else -1)
            found.completed.append(-1)
        segment = numbers[slot, window]
        found.segments.append(segment)
        if into == size - 1:
            found.completed[segment] = row
    last = {owner: segment for segment, owner in enumerate(found.owners)}
    found.newest = [int(last[owner] == segment) for segment, owner in enumerate(found.owners)]
    return found
