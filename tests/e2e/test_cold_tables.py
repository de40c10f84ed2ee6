"""Operators on columns whose tables may lie in RocksDB, every way they may be run, against state in
memory. The caches are so small that no row stays in one for longer than a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from backends import TINY
from strom import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    count,
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
    assert_equivalent,
    checkpointed,
    run_crashing,
    run_local,
    run_rescaled,
)
from strom.testing.probes import CollectProbe

WAYS = Ways(state=TINY, seeds=range(2))

NUMBERS: dict[str, Any] = {
    "n": count(),
    "total": sum_("v"),
    "mean": mean("v"),
    "low": min_("v"),
    "high": max_("v"),
}
APPENDED = {name: NUMBERS[name] for name in ("n", "total", "mean")}

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


@pytest.mark.parametrize("taken_back", [False, True])
def test_groups(readings: Any, left: list[int], taken_back: bool) -> None:
    """The last table of the changelog. Where records are taken back, groups end and come again."""

    def build(env: Any) -> Any:
        keyed = readings.stream(env, "columns").key_by("k")
        if taken_back:
            keyed = keyed.deduplicate("last", order_by="ts").key_by("v")
            return keyed.aggregate(n=count(), mean=mean("x"))
        return keyed.aggregate(**NUMBERS)

    def probe() -> Any:
        return nullcontext(CollectProbe(build))

    expected = applied(run_local(build, JobConfig(auto_watermark_interval=WATERMARK_INTERVAL)))
    assert applied(run_local(build, checkpointed(WAYS, 2))) == expected
    for seed in WAYS.seeds:
        output, _ = run_crashing(
            lambda: nullcontext(CollectProbe(build)), checkpointed(WAYS, 2), WAYS, seed
        )
        assert applied(output) == expected
        output, _ = run_rescaled(probe, WAYS, seed)
        assert applied(output) == expected


def applied(changes: list[Any]) -> Counter[Any]:
    """The table that a changelog leaves, whatever the order of its changes."""
    table: Counter[Any] = Counter()
    for *row, kind in changes:
        table[tuple(row)] += 1 if kind in (0, 2) else -1
    assert all(n >= 0 for n in table.values())
    return +table
