"""Deals of key groups by load are the best there are."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.core.errors import ConfigurationError
from strom.core.ids import EVEN
from strom.state.key_group_deals import (
    as_deal,
    best_deal,
    deal,
    even_deal,
    loads_of,
    ranges_of,
    worth,
)

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


def test_what_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="parallelism 3 and 2 key groups"):
        deal([1, 2], 3)
    with pytest.raises(ConfigurationError, match="one is -1"):
        deal([1, -1], 1)


def test_what_is_below_the_maximum_is_spread_too() -> None:
    """One group has more than a subtask should; the others are shared by those that are left."""
    ranges = deal([40, *[2] * 30], 4)
    assert loads_of([40, *[2] * 30], ranges) == [40, 20, 20, 20]


@given(st.lists(st.integers(0, 1000), min_size=8, max_size=8), st.integers(1, 8), st.data())
def test_the_best_deal_is_that_of_now_if_it_will_do(
    loads: list[int], parallelism: int, data: st.DataObject
) -> None:
    """So a job that was dealt by its load is not stopped again for the same."""
    before = data.draw(st.integers(1, 8))
    now = best_deal(loads, EVEN, before, before)
    again = best_deal(loads, now, before, before)
    assert again == now
    best = best_deal(loads, now, before, parallelism)
    least = max(loads_of(loads, deal(loads, parallelism)))
    found = max(loads_of(loads, ranges_of(best, parallelism, 8)))
    assert found - least <= worth(sum(loads))


def test_an_even_deal_is_none() -> None:
    assert as_deal(even_deal(3, 128)) == EVEN
    assert as_deal(deal([9, 1, 1, 1, 1, 5], 3)) == (0, 1, 5)
    assert best_deal([5] * 8, EVEN, 2, 4) == EVEN
