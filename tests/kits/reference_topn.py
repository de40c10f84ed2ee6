"""What the kernel of `topn` does, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def first_rows(
    slots: Sequence[int], words: Sequence[tuple[int, ...]], n: int
) -> list[tuple[int, int]]:
    """(row, place) of the first n rows of each slot by their words, slot by slot."""
    rows: dict[int, list[int]] = {}
    for row, slot in enumerate(slots):
        rows.setdefault(slot, []).append(row)
    return [
        (row, place)
        for slot in sorted(rows)
        for place, row in enumerate(sorted(rows[slot], key=lambda r: words[r])[:n], 1)
    ]
