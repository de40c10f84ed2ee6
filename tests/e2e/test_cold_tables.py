"""Operators on columns whose tables may lie in RocksDB, every way they may be run, against state in
memory. The caches are so small that no row stays in one for longer than a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from backends import TINY
from drawn_ways import assert_equivalent, fewer
from strom import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    approx_count_distinct,
    arg_max,
    collect,
    count,
    count_distinct,
    first,
    largest,
    last,
    max_,
    mean,
    min_,
    sum_,
)
from strom.core.config import JobConfig
from strom.state.rocks.tables.slot_table import ColdSlotTable
from strom.testing.equivalence import (
    WATERMARK_INTERVAL,
    Ways,
    checkpointed,
    run_interrupted,
    run_local,
)
from strom.testing.probes import CollectProbe
from tables_kit import applied

WAYS = Ways(state=TINY, seeds=range(2))

NUMBERS: dict[str, Any] = {
    "n": count(),
    "total": sum_("v"),
    "mean": mean("v"),
    "low": min_("v"),
    "high": max_("v"),
}
APPENDED = {name: NUMBERS[name] for name in ("n", "total", "mean")}

VALUES: dict[str, Any] = {
    "low": min_("k"),
    "high": max_("k"),
    "best": arg_max("k", by="v"),
    "three": largest("k", 3),
    "different": count_distinct("k"),
    "about": approx_count_distinct("k"),
}
"""Of texts: what lies in stores of the table."""

BUILDS: dict[str, Callable[[Any], Any]] = {
    "first": lambda keyed: keyed.deduplicate("first").map(lambda r: r.k),
    "tumbling": lambda keyed: keyed.window(TumblingEventTimeWindows.of(50)).aggregate(**NUMBERS),
    "sliding": lambda keyed: keyed.window(SlidingEventTimeWindows.of(100, 25)).aggregate(**NUMBERS),
    "cumulating": lambda keyed: keyed.window(CumulateEventTimeWindows.of(120, 40)).aggregate(
        n=count(), total=sum_("v")
    ),
    "late": lambda keyed: (
        keyed.window(TumblingEventTimeWindows.of(50)).allowed_lateness(60).aggregate(n=count())
    ),
    "counted": lambda keyed: keyed.count_window(3).aggregate(**APPENDED),
    "sliding counted": lambda keyed: keyed.count_window(5, 2).aggregate(**APPENDED),
}

OF_VALUES: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda keyed: keyed.window(TumblingEventTimeWindows.of(50)).aggregate(**VALUES),
    "sliding": lambda keyed: keyed.window(SlidingEventTimeWindows.of(100, 25)).aggregate(**VALUES),
    "counted": lambda keyed: keyed.count_window(3).aggregate(all=collect("v"), last=last("k")),
    "sliding counted": lambda keyed: keyed.count_window(5, 2).aggregate(
        all=collect("v"), first=first("k"), different=count_distinct("g")
    ),
}


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many rows were put into RocksDB each time."""
    counts: list[int] = []
    evict = ColdSlotTable.evict

    def counted(self: Any, slots: Any) -> Any:
        places, rows = evict(self, slots)
        counts.append(len(places))
        return places, rows

    monkeypatch.setattr(ColdSlotTable, "evict", counted)
    yield counts
    assert sum(counts) > 0


@pytest.mark.parametrize("name", BUILDS)
def test_operators_over_cold_tables(readings: Any, left: list[int], name: str) -> None:
    def build(env: Any) -> Any:
        return BUILDS[name](readings.stream(env, "columns").key_by("k"))

    ways = WAYS if name == "tumbling" else replace(WAYS, seeds=range(1))
    assert_equivalent(build, None, ways)


@pytest.mark.parametrize("name", OF_VALUES)
def test_values_leave_with_their_rows(readings: Any, left: list[int], name: str) -> None:
    """Of counted windows the order of a key's records matters, so keys are of one lane each."""
    key = "k" if "counted" in name else "g"

    def build(env: Any) -> Any:
        return OF_VALUES[name](readings.stream(env, "columns").key_by(key))

    assert_equivalent(build, None, replace(WAYS, seeds=range(1)))


@pytest.mark.parametrize("name", ["tumbling", "sliding counted"])
def test_keys_that_are_objects(readings: Any, left: list[int], name: str) -> None:
    """With texts as values, of which codes are kept as well."""
    builds = BUILDS if name == "tumbling" else OF_VALUES

    def build(env: Any) -> Any:
        return builds[name](readings.stream(env, "columns").key_by(lambda r: r.k))

    assert_equivalent(build, None, replace(WAYS, seeds=range(1)))


def test_values_of_groups(readings: Any, left: list[int]) -> None:
    def build(env: Any) -> Any:
        pairs = readings.stream(env, "columns").key_by("k")
        return pairs.aggregate(first=first("k"), last=last("k"), best=arg_max("k", by="v"))

    check_groups(build)


@pytest.mark.parametrize("taken_back", [False, True])
def test_groups(readings: Any, left: list[int], taken_back: bool) -> None:
    """The last table of the changelog. Where records are taken back, groups end and come again."""

    def build(env: Any) -> Any:
        keyed = readings.stream(env, "columns").key_by("k")
        if taken_back:
            keyed = keyed.deduplicate("last", order_by="ts").key_by("v")
            return keyed.aggregate(n=count(), mean=mean("x"))
        return keyed.aggregate(**NUMBERS)

    check_groups(build)


def check_groups(build: Callable[[Any], Any]) -> None:
    def probe() -> Any:
        return nullcontext(CollectProbe(build))

    ways = fewer(WAYS)
    expected = applied(run_local(build, JobConfig(auto_watermark_interval=WATERMARK_INTERVAL)))
    assert applied(run_local(build, checkpointed(ways, 2))) == expected
    for seed in ways.seeds:
        output, _ = run_interrupted(probe, ways, seed)
        assert applied(output) == expected, f"interrupted, seed {seed}"
