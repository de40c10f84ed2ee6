"""Cumulating and processing-time windows, windows that fire early, and window top-n: run every way
on columns, by a key function, and on rows, with the results of plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    ContinuousEventTimeTrigger,
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    count,
    max_,
    sum_,
)
from strom.testing.equivalence import Ways

SEEDS = Ways(seeds=range(1))


def by_k(record: Any) -> Any:
    return record.k


@pytest.mark.parametrize("path", ["columns", "function", "rows"])
def test_cumulating_windows(readings: Any, path: str) -> None:
    windows = CumulateEventTimeWindows.of(120, 40)

    def build(env: Any) -> Any:
        keyed = readings.columns(env).key_by(by_k if path == "function" else "k")
        return keyed.window(windows).aggregate(n=count(), total=sum_("v"))

    groups: dict[Any, list[Any]] = {}
    for r in readings.all:
        for end in range(r.ts - r.ts % 40 + 40, r.ts - r.ts % 120 + 121, 40):
            groups.setdefault((r.k, r.ts - r.ts % 120, end), []).append(r.v)
    expected = [(*at, len(vs), sum(vs)) for at, vs in groups.items()]
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize("path", ["columns", "function", "rows"])
def test_top_n(readings: Any, path: str) -> None:
    """`v` may be equal within a key; `ts` then decides."""

    def build(env: Any) -> Any:
        keyed = readings.columns(env).key_by(by_k if path == "function" else "k")
        windows = keyed.window(SlidingEventTimeWindows.of(100, 50))
        best = windows.top_n(2, [("v", "desc"), "ts"], rank="place")
        return best.map(lambda r: (r.k, r.window_end, r.v, r.ts, r.place))

    groups: dict[Any, list[Any]] = {}
    for r in readings.all:
        for start in range(r.ts // 50 * 50 - 50, r.ts + 1, 50):
            groups.setdefault((r.k, start + 100), []).append((-r.v, r.ts))
    expected = [
        (*at, -v, ts, place)
        for at, found in groups.items()
        for place, (v, ts) in enumerate(sorted(found)[:2], 1)
    ]
    assert_equivalent(build, expected, SEEDS)


@pytest.mark.parametrize("path", ["columns", "function", "rows"])
def test_early_results_lead_to_the_last(readings: Any, path: str) -> None:
    """How often windows fire early depends on when watermarks come; the greatest count does not."""

    def build(env: Any) -> Any:
        keyed = readings.columns(env).key_by(by_k if path == "function" else "k")
        windows = keyed.window(TumblingEventTimeWindows.of(100))
        early = windows.trigger(ContinuousEventTimeTrigger.of(20)).aggregate(n=count())
        key = "key" if path == "function" else "k"
        last = early.key_by(key).window(TumblingEventTimeWindows.of(100)).aggregate(m=max_("n"))
        return last.map(tuple)

    groups: dict[Any, int] = {}
    for r in readings.all:
        at = (r.k, r.ts // 100 * 100, r.ts // 100 * 100 + 100)
        groups[at] = groups.get(at, 0) + 1
    assert_equivalent(build, [(*at, n) for at, n in groups.items()], SEEDS)


@pytest.mark.parametrize(("path", "overlap"), pairs(["columns", "function", "rows"], [1, 3]))
def test_processing_time_windows_lose_and_repeat_nothing(
    readings: Any, path: str, overlap: int
) -> None:
    """Which window a record falls into depends on the clock; that each window counts it once does
    not."""
    assigner = (
        TumblingProcessingTimeWindows.of(20)
        if overlap == 1
        else SlidingProcessingTimeWindows.of(30, 10)
    )

    def build(env: Any) -> Any:
        keyed = readings.columns(env).key_by(by_k if path == "function" else "k")
        counts = keyed.window(assigner).aggregate(n=count())
        return counts.flat_map(lambda r: [r[0]] * r.n)

    expected = [r.k for r in readings.all for _ in range(overlap)]
    assert_equivalent(build, expected, SEEDS)
