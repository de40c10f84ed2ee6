"""All pairs of rows with equal slots, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def pairs(probing: Sequence[int], grouped: Sequence[int]) -> list[tuple[int, int]]:
    """All (row of `probing`, row of `grouped`) with equal slots, in order of both."""
    rows: dict[int, list[int]] = {}
    for row, slot in enumerate(grouped):
        rows.setdefault(slot, []).append(row)
    return [(row, other) for row, slot in enumerate(probing) for other in rows.get(slot, [])]
