"""How much of what is drawn at random the tests draw: two fifths of what `make soak` draws."""

from __future__ import annotations

import os

SHARE = float(os.environ.get("STROM_AMOUNT", "0.4"))


def examples(most: int) -> int:
    """Of Hypothesis."""
    return max(min(most, 10), round(most * SHARE))


def seeds(most: int) -> range:
    """The first of so many: one at least."""
    return range(max(1, round(most * SHARE)))
