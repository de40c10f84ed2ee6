"""Triggers that count or purge, sessions with gaps of their own or by the clock, and sessions with
lists, as whole pipelines run every way: on columns, by a key function, and on rows.

Expected results are computed record by record in plain Python.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    approx_count_distinct,
    collect,
    count,
    count_distinct,
    largest,
    sum_,
)
from strom.testing.equivalence import Ways

SEEDS = Ways(seeds=range(1))
PATHS = ["columns", "function", "rows"]


def by_k(record: Any) -> Any:
    return record.k


def keyed(readings: Any, env: Any, path: str) -> Any:
    return readings.columns(env).key_by(by_k if path == "function" else "k")


def sessions(readings: Any, gap_of: Any) -> list[tuple[str, int, int, list[Any]]]:
    """(key, start, end, records in order of arrival)."""
    found = []
    for k in sorted({r.k for r in readings.all}):
        mine = [r for r in readings.all if r.k == k]
        spans: list[list[int]] = []
        for low, high in sorted((r.ts, r.ts + gap_of(r)) for r in mine):
            if spans and low <= spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], high)
            else:
                spans.append([low, high])
        for start, end in spans:
            found.append((k, start, end, [r for r in mine if start <= r.ts < end]))
    return found


@pytest.mark.parametrize(("path", "purge"), pairs(PATHS, [False, True]))
def test_counting_in_sliding_windows(readings: Any, path: str, purge: bool) -> None:
    trigger = PurgingTrigger.of(CountTrigger.of(3)) if purge else CountTrigger.of(3)

    def build(env: Any) -> Any:
        windows = keyed(readings, env, path).window(SlidingEventTimeWindows.of(100, 50))
        counted = windows.trigger(trigger).aggregate(n=count(), total=sum_("v"), all=collect("v"))
        return counted.map(lambda r: (r[0], r.window_end, r.n, r.total, tuple(r.all)))

    held: dict[Any, list[int]] = {}
    expected = []
    for r in readings.all:
        for start in range(r.ts // 50 * 50 - 50, r.ts + 1, 50):
            values = held.setdefault((r.k, start + 100), [])
            values.append(r.v)
            if len(values) % 3 == 0:
                some = values[-3:] if purge else values
                expected.append((r.k, start + 100, len(some), sum(some), tuple(some)))
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize("path", PATHS)
def test_purging_early_counts_each_record_once(readings: Any, path: str) -> None:
    """How often windows fire depends on when watermarks come; that each record comes out once in
    each of its windows does not."""

    def build(env: Any) -> Any:
        windows = keyed(readings, env, path).window(TumblingEventTimeWindows.of(100))
        early = windows.trigger(PurgingTrigger.of(ContinuousEventTimeTrigger.of(20)))
        return early.aggregate(all=collect("v")).flat_map(
            lambda r: [(r[0], r.window_end, v) for v in r.all]
        )

    expected = [(r.k, r.ts // 100 * 100 + 100, r.v) for r in readings.all]
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize(("path", "by"), pairs(PATHS, ["column", "function"]))
def test_sessions_with_a_gap_per_record(readings: Any, path: str, by: str) -> None:
    gap = 5 + pl.col("v").abs() % 40 if by == "column" else lambda r: 5 + abs(r["v"]) % 40

    def build(env: Any) -> Any:
        windows = EventTimeSessionWindows.with_dynamic_gap(gap)
        found = keyed(readings, env, path).window(windows).aggregate(n=count(), total=sum_("v"))
        return found.map(tuple)

    expected = [
        (k, start, end, len(held), sum(r.v for r in held))
        for k, start, end, held in sessions(readings, lambda r: 5 + abs(r.v) % 40)
    ]
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize("path", PATHS)
def test_sessions_of_lists(readings: Any, path: str) -> None:
    def build(env: Any) -> Any:
        windows = keyed(readings, env, path).window(EventTimeSessionWindows.with_gap(35))
        found = windows.aggregate(
            all=collect("v"),
            few=count_distinct("v"),
            about=approx_count_distinct("ts"),
            best=largest("v", 2),
        )
        return found.map(
            lambda r: (r[0], r.window_end, tuple(sorted(r.all)), r.few, r.about > 0, tuple(r.best))
        )

    expected = []
    for k, _, end, held in sessions(readings, lambda r: 35):
        values = sorted(r.v for r in held)
        expected.append((k, end, tuple(values), len({*values}), True, tuple(values[::-1][:2])))
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize("path", PATHS)
def test_top_n_of_sessions(readings: Any, path: str) -> None:
    def build(env: Any) -> Any:
        windows = keyed(readings, env, path).window(EventTimeSessionWindows.with_gap(35))
        best = windows.top_n(2, [("v", "desc"), "ts"], rank="place")
        return best.map(lambda r: (r.k, r.window_end, r.v, r.ts, r.place))

    expected = [
        (k, end, -v, ts, place)
        for k, _, end, held in sessions(readings, lambda r: 35)
        for place, (v, ts) in enumerate(sorted((-r.v, r.ts) for r in held)[:2], 1)
    ]
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize(("path", "dynamic"), pairs(PATHS, [False, True]))
def test_sessions_by_the_clock_lose_and_repeat_nothing(
    readings: Any, path: str, dynamic: bool
) -> None:
    """Which session a record falls into depends on the clock; that one counts it does not."""
    clock = ProcessingTimeSessionWindows
    assigner = clock.with_dynamic_gap(1 + pl.col("v").abs()) if dynamic else clock.with_gap(15)

    def build(env: Any) -> Any:
        counts = keyed(readings, env, path).window(assigner).aggregate(n=count())
        return counts.flat_map(lambda r: [r[0]] * r.n)

    assert_equivalent(build, [r.k for r in readings.all], SEEDS)
