"""How much of what is drawn at random, or goes through a product of lists, the tests do: a part of
what `make soak` does."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("STROM_AMOUNT", "0.15"))


def examples(most: int) -> int:
    """Of Hypothesis."""
    return max(min(most, 10), round(most * SHARE))


def met(*places: int) -> bool:
    """Whether the members at these places of as many lists meet: a third of the product, in which
    each member of one list still meets each of another; all in `make soak`."""
    return SHARE >= 1 or sum(places) % 3 == 0


def seeds(most: int) -> range:
    """The first of so many: one at least."""
    return range(max(1, round(most * SHARE)))
