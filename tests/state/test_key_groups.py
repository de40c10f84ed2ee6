"""Key-group arithmetic."""

from __future__ import annotations

import pytest
from groups_kit import subtask_for
from hypothesis import given
from hypothesis import strategies as st
from strom.core.errors import ConfigurationError
from strom.core.ids import KeyGroupRange
from strom.state import key_groups
from strom.state.hashing import stable_hash
from strom.state.key_groups import key_group, range_for, route_keys, subtask_table


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
    assert len(key_groups._cache(str, 5, 77)) <= 10
