"""Key-group arithmetic."""

from __future__ import annotations

import pyarrow as pa
import pytest
from groups_kit import subtask_for
from hypothesis import given
from hypothesis import strategies as st
from strom.core.errors import ConfigurationError
from strom.core.ids import EVEN, KeyGroupRange
from strom.state import key_groups
from strom.state.hashing import stable_hash
from strom.state.key_groups import key_group, range_for, route, route_keys, subtask_table


@given(st.data(), st.integers(1, 500))
def test_ranges_cover_all_groups_once_and_agree_with_subtask_for(
    data: st.DataObject, groups: int
) -> None:
    parallelism = data.draw(st.integers(1, groups))
    ranges = [range_for(i, parallelism, groups) for i in range(parallelism)]
    covered = [group for r in ranges for group in range(r.first, r.last + 1)]
    assert covered == list(range(groups))
    owners = [subtask_for(group, parallelism, groups) for group in covered]
    assert all(group in ranges[owner] for group, owner in zip(covered, owners, strict=True))
    vectorised = subtask_table(parallelism, groups)
    assert vectorised.tolist() == owners


def test_range_matches_flinks_figures() -> None:
    assert [range_for(i, 3, 128) for i in range(3)] == [
        KeyGroupRange(0, 42),
        KeyGroupRange(43, 85),
        KeyGroupRange(86, 127),
    ]


def test_impossible_subtask_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="subtask 3, parallelism 3"):
        range_for(3, 3, 128)


def test_key_group_is_the_hash_modulo() -> None:
    assert key_group("a", 128) == stable_hash("a") % 128


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_groups, "CACHED_KEYS", 10)
    keys = [f"bounded-{i}" for i in range(57)]
    once = route_keys(keys, 5, 77)
    again = route_keys(keys, 5, 77)
    assert once[0].tolist() == again[0].tolist()
    assert len(key_groups._cache(str, 5, 77, EVEN)) <= 10


@given(st.data(), st.integers(1, 12), st.integers(12, 40))
def test_a_deal_says_who_has_which_group(
    data: st.DataObject, parallelism: int, groups: int
) -> None:
    """Whoever asks: owners, tables, and both ways to send by key."""
    others = st.lists(st.integers(1, groups - 1), unique=True)
    later = data.draw(others.filter(lambda found: len(found) >= parallelism - 1))
    deal = (0, *sorted(later[: parallelism - 1]))
    ranges = [range_for(i, parallelism, groups, deal) for i in range(parallelism)]
    assert tuple(owned.first for owned in ranges) == deal
    table = subtask_table(parallelism, groups, deal)
    for group in range(groups):
        assert [i for i in range(parallelism) if group in ranges[i]] == [table[group]]
    keys = [f"key {n}" for n in range(50)]
    for mixed in (keys, [*keys, 7, 2.5]):
        order, offsets = route_keys(mixed, parallelism, groups, deal)
        for subtask in range(parallelism):
            mine = [mixed[row] for row in order[offsets[subtask] : offsets[subtask + 1]]]
            assert all(key_group(key, groups) in ranges[subtask] for key in mine)
    column = route(pa.record_batch({"k": keys}), parallelism, groups, deal)
    by_key = route_keys(keys, parallelism, groups, deal)
    assert [one.tolist() for one in column] == [one.tolist() for one in by_key]


def test_even_ranges_are_a_deal_as_well() -> None:
    even = [range_for(i, 3, 128) for i in range(3)]
    deal = tuple(owned.first for owned in even)
    assert subtask_table(3, 128, deal).tolist() == subtask_table(3, 128).tolist()
    assert [range_for(i, 3, 128, deal) for i in range(3)] == even


@pytest.mark.parametrize("deal", [(0,), (1, 4), (0, 0), (0, 8), (0, 3, 5)])
def test_a_deal_that_leaves_something_out_is_refused(deal: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="key groups of 2 subtasks begin at 0"):
        range_for(0, 2, 8, deal)
    with pytest.raises(ConfigurationError, match="begin at"):
        subtask_table(2, 8, deal)
