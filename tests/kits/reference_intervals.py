"""What the kernels of `intervals` find, in plain Python."""

from __future__ import annotations

from collections.abc import Sequence


def interval_pairs(
    probing: Sequence[tuple[int, int]], held: Sequence[tuple[int, int]], lower: int, upper: int
) -> set[tuple[int, int]]:
    """All (row of `probing`, row of `held`) of one key, the held row's time from `lower` to `upper`
    after the probing one's. Rows are (key, time)."""
    return {
        (i, j)
        for i, (key, time) in enumerate(probing)
        for j, (other, at) in enumerate(held)
        if key == other and lower <= at - time <= upper
    }
