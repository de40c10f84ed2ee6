"""The kernels of `state.seen_kernels` in plain Python: the views that have seen each pair."""

from __future__ import annotations

from collections.abc import Iterable

Pairs = dict[tuple[int, int], set[int]]


def see_pairs(state: Pairs, rows: Iterable[tuple[int, int]], view: int) -> None:
    """The view sees each (group, value)."""
    for row in rows:
        state.setdefault(row, set()).add(view)


def distinct(state: Pairs, view: int, groups: int) -> list[int]:
    """How many values of each group the view has seen."""
    return [sum(view in views for (g, _), views in state.items() if g == n) for n in range(groups)]
