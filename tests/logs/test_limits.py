"""The first lines of a place each second, and how many there were more."""

from __future__ import annotations

import random

from strom.logs import limits
from strom.logs.limits import RateLimit


def admitted(limit: RateLimit, place: str, now: float, count: int) -> int:
    return sum(limit.admits(place, now, lambda: f"first at {now}") for _ in range(count))


def test_first_ones_are_said_and_the_rest_counted_once() -> None:
    limit = RateLimit(3)
    assert admitted(limit, "a", 10.0, 5) == 3
    assert limit.pending
    assert list(limit.suppressed(10.9)) == []
    assert list(limit.suppressed(11.0)) == [(2, "first at 10.0")]
    assert not limit.pending
    assert list(limit.suppressed(None)) == []
    assert admitted(limit, "a", 11.0, 5) == 3
    assert limit.turned("a", 11.5) is None
    assert limit.turned("b", 12.5) is None
    assert limit.turned("a", 12.5) == (2, "first at 11.0")
    assert limit.turned("a", 12.5) is None
    assert not limit.pending


def test_places_do_not_use_up_each_other() -> None:
    limit = RateLimit(2)
    assert [admitted(limit, place, 0.0, 3) for place in "abc"] == [2, 2, 2]
    assert sorted(limit.suppressed(None)) == [(1, "first at 0.0")] * 3


def test_what_was_suppressed_is_told_before_the_end_if_asked() -> None:
    limit = RateLimit(1)
    admitted(limit, "a", 0.0, 4)
    assert list(limit.suppressed(None)) == [(3, "first at 0.0")]


def test_none_is_no_limit() -> None:
    limit = RateLimit(0)
    assert admitted(limit, "a", 0.0, 1000) == 1000
    assert not limit.pending


def test_places_are_bounded_and_no_count_is_lost(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(limits, "MOST_PLACES", 8)
    limit = RateLimit(1)
    for place in range(100):
        admitted(limit, str(place), 0.0, 2 if place < 5 else 1)
    assert len(limit._windows) <= 8 + 5
    assert sum(count for count, _ in limit.suppressed(None)) == 5


def test_all_lines_are_said_or_counted() -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rng = random.Random(seed)
    limit, now, said, told, all_lines = RateLimit(5), 0.0, 0, 0, 0
    for _ in range(2000):
        now += rng.random() * 0.05
        told += sum(count for count, _ in limit.suppressed(now))
        said += limit.admits(rng.choice("abcd"), now, lambda: None)
        all_lines += 1
    told += sum(count for count, _ in limit.suppressed(None))
    assert said + told == all_lines
    assert told > 0
