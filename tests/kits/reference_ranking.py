"""What the kernels of `ranking` do, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Words = tuple[int, ...]


@dataclass
class Ranked:
    """Slots with a time to live; None: for ever. `held`: rows of each slot, (words, row) in order;
    `stamps`: when one came last."""

    n: int
    ttl: int | None = None
    held: dict[int, list[tuple[Words, int]]] = field(default_factory=dict)
    stamps: dict[int, int] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    """Rows of slots that had expired when they were come across first."""

    def insert(
        self,
        slots: Sequence[int],
        words: Sequence[Words],
        times: Sequence[int],
        first: int,
        later: bool = False,
    ) -> list[tuple[int, list[int], list[int]]]:
        """Insert rows first, first + 1, ...; for each change of a slot the rows before and after,
        one behind the other where it expires in between. `later`: of equals the later comes first.
        """
        changes: list[tuple[int, list[int], list[int]]] = []
        open_at: dict[int, int] = {}
        self.dropped = []
        for row, (slot, new, time) in enumerate(zip(slots, words, times, strict=True), first):
            entries = self.held.setdefault(slot, [])
            if entries and self.ttl is not None and self.stamps[slot] + self.ttl <= time:
                if slot not in open_at:
                    self.dropped += [entry[1] for entry in entries]
                open_at.pop(slot, None)
                entries.clear()
            before = [entry[1] for entry in entries]
            entries.insert(0 if later else len(entries), (new, row))
            entries.sort(key=lambda entry: entry[0])
            del entries[self.n :]
            after = [entry[1] for entry in entries]
            if row not in after:
                continue
            self.stamps[slot] = max(time, self.stamps.get(slot, time))
            if slot not in open_at:
                open_at[slot] = len(changes)
                changes.append((slot, before, after))
            changes[open_at[slot]] = (slot, changes[open_at[slot]][1], after)
        return changes


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
