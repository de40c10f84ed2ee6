"""What wordcount and kstate must give, computed the slow and obvious way."""

from __future__ import annotations

from typing import Any

from .nexmark.query import Rows
from .nexmark.references.events import chunks
from .streams import key_values, words


def wordcount(events: int) -> Rows:
    """Each word with 1, 2, ... up to its number."""
    counts: dict[str, int] = {}
    for start, count in chunks(events):
        for word in words(start, count):
            counts[word] = counts.get(word, 0) + 1
            yield word, counts[word]


def kstate(events: int) -> Rows:
    """Each key with its running sum, the records in order of their numbers."""
    sums: dict[int, int] = {}
    for start, count in chunks(events):
        for pair in key_values(start, count).to_pylist():
            sums[pair["k"]] = sums.get(pair["k"], 0) + pair["v"]
            yield pair["k"], sums[pair["k"]]


def totals(rows: Rows) -> Rows:
    """Per key how many sums there were, and the greatest: the values are not negative.

    With several source subtasks the records of one key come in no particular order, so that the
    sums on the way to the total may be others in each run.
    """
    found: dict[Any, tuple[int, int]] = {}
    for key, running in rows:
        n, greatest = found.get(key, (0, 0))
        found[key] = (n + 1, max(greatest, running))
    return ((key, *held) for key, held in found.items())
