"""Counts of a sketch are as near as it says, however it was filled and merged."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from strom.core.frequent_items import FrequentItems, merged

BATCHES = st.lists(
    st.lists(st.integers(0, 12) | st.sampled_from("ab"), max_size=40), min_size=1, max_size=8
)


@given(BATCHES, st.integers(1, 6), st.integers(1, 4))
def test_bounds_hold_of_what_was_merged(batches: list[list], counters: int, sketches: int) -> None:
    parts = [FrequentItems(counters) for _ in range(sketches)]
    for at, batch in enumerate(batches):
        parts[at % sketches].add(Counter(batch))
    whole, exact = merged(parts), Counter(item for batch in batches for item in batch)
    for part in [*parts, whole]:
        part.validate()
    assert whole.total == exact.total()
    for item, n in exact.items():
        assert whole.count(item) <= n <= whole.count(item) + whole.error
        if n * (counters + 1) > exact.total():
            assert item in whole.counts
    before = dict(whole.counts)
    whole.halve()
    whole.validate()
    assert {item: 2 * count for item, count in whole.counts.items()} == before


def test_the_most_frequent_come_first() -> None:
    items = FrequentItems(4)
    items.add({"a": 1, "b": 9, "c": 4})
    assert items.most(2) == [("b", 9), ("c", 4)]
    told = FrequentItems.of(4, items.counts, items.error, items.total)
    assert merged([told, items]).count("b") == 18
    assert merged([]).most(3) == []
