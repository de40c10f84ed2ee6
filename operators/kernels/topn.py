"""The first n rows of each slot in an order. Order words as in `ranking`; twin in
`reference_topn`."""

from __future__ import annotations

from typing import Any

from ...core.native import int64, njit
from .ranking import precedes
from .signatures import INTS, INTS_IN, OPTIONS


@njit([int64(INTS_IN, INTS_IN, INTS_IN, int64, int64, INTS, INTS)], **OPTIONS)
def first_rows(
    starts: Any, order: Any, words: Any, width: int, n: int, chosen: Any, places: Any
) -> int:
    """`chosen` becomes the rows, slot by slot and in order within a slot, equals in order of
    rows; `places` each one's place in its slot, from 1. Returns how many.

    `starts` and `order`: rows by slot, as `pairs.group_rows` gives them. `chosen` and `places` have
    as many entries as there are rows. Costs rows * n comparisons at worst, so it is for small n."""
    at = 0
    for slot in range(len(starts) - 1):
        held = 0
        for position in range(starts[slot], starts[slot + 1]):
            row = order[position]
            if held < n:
                j = held
                held += 1
            elif precedes(words, row * width, words, chosen[at + n - 1] * width, width):
                j = n - 1
            else:
                continue
            while j > 0 and precedes(words, row * width, words, chosen[at + j - 1] * width, width):
                chosen[at + j] = chosen[at + j - 1]
                j -= 1
            chosen[at + j] = row
        for k in range(held):
            places[at + k] = k + 1
        at += held
    return at
