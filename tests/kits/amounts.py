"""How much of what is drawn at random, or goes through a product of lists, the tests do: a part of
what `make soak` does."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

SHARE = float(os.environ.get("STROM_AMOUNT", "0.15"))


def examples(most: int) -> int:
    """Of Hypothesis."""
    return max(min(most, 10), round(most * SHARE))


def met(*places: int, part: int = 3) -> bool:
    """Whether the members at these places of as many lists meet: a third of the product, or another
    `part`; of lists that are as long each member of one still meets each of another. All in
    `make soak`."""
    return SHARE >= 1 or sum(places) % part == 0


def pairs(one: Iterable[Any], other: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Of two lists: each member of the longer one with one of the other, by turns; all in
    `make soak`."""
    first, second = list(one), list(other)
    if SHARE >= 1:
        return list(product(first, second))
    most = max(len(first), len(second))
    return [(first[at % len(first)], second[at % len(second)]) for at in range(most)]


def seeds(most: int, least: int = 1) -> range:
    """The first of so many: `least` at least."""
    return range(min(most, max(least, round(most * SHARE))))


def records(most: int) -> int:
    """Of a stream that is run every way: enough that it is interrupted midway."""
    return most if SHARE >= 1 else most * 3 // 5
