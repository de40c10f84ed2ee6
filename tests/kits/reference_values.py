"""What the kernels of `values` do, in plain Python: groups as dictionaries of counted values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def count_values(
    state: dict[int, Counter[int]], rows: Iterable[tuple[int, int]], sign: int
) -> dict[int, int]:
    """Add `sign` for each (group, value); the number of different values of each group."""
    for group, value in rows:
        state.setdefault(group, Counter())[value] += sign
    return {group: sum(n != 0 for n in values.values()) for group, values in state.items()}


def extreme(values: Counter[int], largest: bool) -> int | None:
    """The greatest (or least) value that occurs."""
    present = [value for value, n in values.items() if n != 0]
    return (max(present) if largest else min(present)) if present else None
