"""Deals of key groups by load are the best there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.core.errors import ConfigurationError
from strom.state.key_group_deals import deal, even_deal, loads_of, moved

LOADS = st.lists(st.integers(0, 50) | st.just(0) | st.integers(0, 10**12), min_size=1, max_size=9)


@given(LOADS, st.integers(1, 9))
def test_no_other_deal_has_a_smaller_maximum(loads: list[int], parallelism: int) -> None:
    parallelism = min(parallelism, len(loads))
    ranges = deal(loads, parallelism)
    assert len(ranges) == parallelism
    assert ranges[0].first == 0
    assert ranges[-1].last == len(loads) - 1
    assert all(len(groups) > 0 for groups in ranges)
    assert all(b.first == a.last + 1 for a, b in pairwise(ranges))
    every = (
        max(sum(loads[a:b]) for a, b in pairwise((0, *cuts, len(loads))))
        for cuts in combinations(range(1, len(loads)), parallelism - 1)
    )
    assert max(loads_of(loads, ranges)) == min(every)


@given(st.lists(st.integers(0, 1000), min_size=128, max_size=128), st.integers(1, 128))
def test_it_is_never_worse_than_an_even_one(loads: list[int], parallelism: int) -> None:
    even = even_deal(parallelism, 128)
    ranges = deal(loads, parallelism)
    assert max(loads_of(loads, ranges)) <= max(loads_of(loads, even))
    assert 0 <= moved(even, ranges) < 128
    assert moved(ranges, ranges) == 0


def test_what_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="parallelism 3 and 2 key groups"):
        deal([1, 2], 3)
    with pytest.raises(ConfigurationError, match="one is -1"):
        deal([1, -1], 1)
