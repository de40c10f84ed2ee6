"""Sessions and windows by count on kernels, as whole pipelines run every way.

Expected results are computed record by record in plain Python.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import polars as pl
import pyarrow as pa
from drawn_ways import assert_equivalent
from strom import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    Row,
    WatermarkStrategy,
    count,
    first,
    last,
    max_,
    min_,
    sum_,
)
from strom.testing.equivalence import Ways
from strom.testing.scripted import ScriptedSource

GAP = 35
TEXT = {"low": min_("word"), "high": max_("word"), "one": first("word"), "two": last("word")}
ALL = {"n": count(), "total": sum_("v"), **TEXT}


def words(readings: Any, env: Any) -> Any:
    """The readings with a column of text."""
    return readings.columns(env).with_columns(word=pl.col("v").cast(pl.String))


def by_key(rows: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row.k, []).append(row)
    return found


def row_of(rows: list[Any]) -> tuple[Any, ...]:
    text = [str(r.v) for r in rows]
    total = sum(r.v for r in rows)
    return (len(rows), total, min(text), max(text), text[0], text[-1])


def test_sessions_of_text(readings: Any) -> None:
    def build(env: Any) -> Any:
        windows = EventTimeSessionWindows.with_gap(GAP)
        return words(readings, env).key_by("k").window(windows).aggregate(**ALL)

    expected = []
    for k, mine in by_key(readings.all).items():
        times = sorted(r.ts for r in mine)
        cuts = [i + 1 for i, (a, b) in enumerate(pairwise(times)) if b - a > GAP]
        for start, stop in pairwise([0, *cuts, len(times)]):
            low, high = times[start], times[stop - 1] + GAP
            held = [r for r in mine if low <= r.ts < high]
            expected.append((k, low, high, *row_of(held)))
    assert_equivalent(build, expected)


def test_windows_by_count(readings: Any) -> None:
    def build(env: Any) -> Any:
        keyed = words(readings, env).key_by("k")
        purging = PurgingTrigger.of(CountTrigger.of(4))
        everything = keyed.window(GlobalWindows.create())
        return {
            "tumbling": keyed.count_window(3).aggregate(**ALL),
            "sliding": keyed.count_window(5, 2).aggregate(**ALL),
            "purging": everything.trigger(purging).aggregate(**ALL),
            "growing": keyed.window(GlobalWindows.create())
            .trigger(CountTrigger.of(6))
            .aggregate(**ALL),
        }

    expected: list[Any] = []

    def add(name: str, k: str, rows: list[Any]) -> None:
        expected.append((name, (k, None, None, *row_of(rows))))

    for k, mine in by_key(readings.all).items():
        for end in range(1, len(mine) + 1):
            if end % 3 == 0:
                add("tumbling", k, mine[end - 3 : end])
            if end >= 5 and (end - 5) % 2 == 0:
                add("sliding", k, mine[end - 5 : end])
            if end % 4 == 0:
                add("purging", k, mine[end - 4 : end])
            if end % 6 == 0:
                add("growing", k, mine[:end])
    assert_equivalent(build, expected, Ways(seeds=range(2)))


SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])


def test_keys_that_come_once() -> None:
    """Every key has one session and never comes back: slots and keys are used again."""
    rows = [Row("k", "v", "ts")(i // 2, i, 1000 + 5 * i) for i in range(300)]

    def build(env: Any) -> Any:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts")
        stream = env.from_source(ScriptedSource([rows], SCHEMA), strategy, "rows")
        windows = EventTimeSessionWindows.with_gap(10)
        return stream.key_by("k").window(windows).aggregate(n=count(), total=sum_("v"))

    expected = [(k, 1000 + 10 * k, 1000 + 10 * k + 15, 2, 4 * k + 1) for k in range(len(rows) // 2)]
    assert_equivalent(build, expected)
