"""Sessions that may lie in RocksDB, every way they may be run, against state in memory. The caches
are so small that no session stays in one for longer than a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from backends import TINY
from drawn_ways import assert_equivalent
from strom import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    collect,
    count,
    count_distinct,
    first,
    max_,
    mean,
    min_,
    sum_,
)
from strom.state.rocks.entries.entry_table import ColdEntryTable
from strom.testing.equivalence import Ways

WAYS = Ways(state=TINY, seeds=range(2))

NUMBERS: dict[str, Any] = {
    "n": count(),
    "total": sum_("v"),
    "mean": mean("v"),
    "low": min_("v"),
    "high": max_("v"),
}

VALUES: dict[str, Any] = {
    "n": count(),
    "distinct": count_distinct("g"),
    "keys": count_distinct("k"),
    "all": collect("v"),
    "first": first("k"),
    "least": min_("k"),
}

BUILDS: dict[str, Callable[[Any], Any]] = {
    "fixed": lambda keyed: keyed.window(EventTimeSessionWindows.with_gap(45)).aggregate(**NUMBERS),
    "late": lambda keyed: (
        keyed.window(EventTimeSessionWindows.with_gap(25)).allowed_lateness(60).aggregate(**NUMBERS)
    ),
    "dynamic": lambda keyed: keyed.window(
        DynamicEventTimeSessionWindows.with_dynamic_gap(lambda reading: 20 + reading.v % 40)
    ).aggregate(**NUMBERS),
}


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many keys were put into RocksDB each time."""
    counts: list[int] = []
    leave = ColdEntryTable.leave

    def counted(self: Any, numbers: Any, slots: Any) -> None:
        leave(self, numbers, slots)
        counts.append(len(numbers))

    monkeypatch.setattr(ColdEntryTable, "leave", counted)
    yield counts
    assert sum(counts) > 0


@pytest.mark.parametrize("name", BUILDS)
def test_sessions(readings: Any, left: list[int], name: str) -> None:
    def build(env: Any) -> Any:
        return BUILDS[name](readings.stream(env, "columns").key_by("k"))

    ways = WAYS if name == "fixed" else replace(WAYS, seeds=range(1))
    assert_equivalent(build, None, ways)


def test_sessions_of_several_keys(readings: Any, left: list[int]) -> None:
    def build(env: Any) -> Any:
        keyed = readings.stream(env, "columns").key_by("k", "v")
        return keyed.window(EventTimeSessionWindows.with_gap(45)).aggregate(n=count())

    assert_equivalent(build, None, replace(WAYS, seeds=range(1)))


@pytest.mark.parametrize("kind", ["columns", "rows"])
@pytest.mark.parametrize("name", BUILDS)
def test_sessions_of_objects(readings: Any, left: list[int], name: str, kind: str) -> None:
    def build(env: Any) -> Any:
        keyed = readings.stream(env, kind).key_by(lambda reading: f"{reading.k} {reading.g}")
        return BUILDS[name](keyed)

    ways = WAYS if name == "fixed" else replace(WAYS, seeds=range(1))
    assert_equivalent(build, None, ways)


@pytest.mark.parametrize("key", ["k", lambda reading: (reading.k, "text")], ids=["k", "object"])
def test_sessions_with_values(readings: Any, left: list[int], key: Any) -> None:
    def build(env: Any) -> Any:
        keyed = readings.stream(env, "columns").key_by(key)
        return keyed.window(EventTimeSessionWindows.with_gap(45)).aggregate(**VALUES)

    assert_equivalent(build, None, WAYS)
