"""Joins in windows and on intervals, run every way.

Two sides of four lanes each; the right one is slower (its watermark is further behind), begins
earlier and ends in the middle of the left one's time, and its lanes are of different length:

    left    lane 0..3   1000 ------------------------------ 1400     watermark: time - 60
    right   lane 0..3    930 ------------------ 1130..1220           watermark: time - 150
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from drawn_ways import assert_equivalent
from strom import (
    DataStream,
    Row,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
)
from strom.connectors.datagen import NexmarkSource
from strom.testing.equivalence import Ways
from strom.testing.scripted import Pause, ScriptedSource

HOWS = ("inner", "left", "right", "full", "semi", "anti")
RIGHT = pa.schema([("g", pa.int32()), ("w", pa.string()), ("ts", pa.int64())])
SLOW = WatermarkStrategy.for_bounded_out_of_orderness(150).with_timestamp_assigner("ts")


def make_lane(lane: int) -> list[Any]:
    rng = random.Random(100 + lane)
    return [
        Row("g", "w", "ts")(
            rng.choice([0, 1, 2, 3, 9, None]), f"w{lane}-{i}", 950 + 10 * i + rng.randrange(-20, 21)
        )
        for i in range(20 + 3 * lane)
    ]


OTHERS = [make_lane(lane) for lane in range(4)]
ALL_OTHERS = [row for lane in OTHERS for row in lane]


def others(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_source(ScriptedSource(OTHERS, RIGHT), SLOW, "others")


def joined(
    how: str, lefts: list[Any], rights: list[Any], fits: Callable[[Any, Any], bool]
) -> list[tuple[Any, Any]]:
    """(left or None, right or None)."""
    pairs = [(a, b) for a in lefts for b in rights if a.g == b.g and fits(a, b)]
    met, found = {id(a) for a, _ in pairs}, {id(b) for _, b in pairs}
    alone = [(a, None) for a in lefts if id(a) not in met]
    if how == "semi":
        return [(a, None) for a in lefts if id(a) in met]
    if how == "anti":
        return alone
    pairs += alone if how in ("left", "full") else []
    lone = [(None, b) for b in rights if id(b) not in found]
    return pairs + (lone if how in ("right", "full") else [])


def fields(how: str, a: Any, b: Any) -> tuple[Any, ...]:
    """A record of the join: g, v, ts of the left, then w, ts of the right."""
    left = (None if b is None else b.g, None, None) if a is None else (a.g, a.v, a.ts)
    if how in ("semi", "anti"):
        return left
    return (*left, *((None, None) if b is None else (b.w, b.ts)))


@pytest.mark.parametrize("how", HOWS)
def test_window_join(readings: Any, how: str) -> None:
    windows = SlidingEventTimeWindows.of(100, 50) if how in ("inner", "full") else None

    def build(env: StreamExecutionEnvironment) -> DataStream:
        left = readings.columns(env).select("g", "v", "ts").key_by("g")
        window = windows or TumblingEventTimeWindows.of(100)
        return left.window_join(others(env).key_by("g"), window, how)

    expected = []
    for end in range(100, 1600, 50 if windows else 100):
        inside = [
            [r for r in rows if end - 100 <= r.ts < end] for rows in (readings.all, ALL_OTHERS)
        ]
        pairs = joined(how, inside[0], inside[1], lambda a, b: True)
        expected += [(*fields(how, a, b), end - 100, end) for a, b in pairs]
    assert_equivalent(build, expected, seeds_of(how))


@pytest.mark.parametrize("how", HOWS)
def test_interval_join(readings: Any, how: str) -> None:
    def build(env: StreamExecutionEnvironment) -> DataStream:
        left = readings.columns(env).select("g", "v", "ts").key_by("g")
        return left.interval_join(others(env).key_by("g"), -40, 25, how, upper_exclusive=True)

    pairs = joined(how, readings.all, ALL_OTHERS, lambda a, b: -40 <= b.ts - a.ts < 25)
    assert_equivalent(build, [fields(how, a, b) for a, b in pairs], seeds_of(how))


def seeds_of(how: str) -> Ways:
    """Most of the join that has all that the others have."""
    return Ways(seeds=range(3 if how == "full" else 1))


def test_windows_behind_a_join_lose_nothing(readings: Any) -> None:
    """Null-padded records come out when the watermark has passed them by up to 200 ms; what the
    join says of event time must allow for it."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        left = readings.columns(env).select("g", "v", "ts").key_by("g")
        both = left.interval_join(others(env).key_by("g"), -200, 200, "full")
        counted = both.key_by("g").window(TumblingEventTimeWindows.of(100))
        return counted.aggregate(n=count())

    counts: dict[Any, int] = {}
    for a, b in joined("full", readings.all, ALL_OTHERS, lambda a, b: abs(a.ts - b.ts) <= 200):
        end = max(r.ts for r in (a, b) if r is not None) // 100 * 100 + 100
        key = ((a or b).g, end - 100, end)
        counts[key] = counts.get(key, 0) + 1
    assert_equivalent(build, [(*key, n) for key, n in counts.items()])


def test_an_idle_side(readings: Any) -> None:
    """One lane of the right side falls silent for long: idleness lets event time go on without it,
    and its late records are none, for they come in time all the same."""
    lanes = [[*OTHERS[0], Pause(3), *[r.replace(ts=r.ts + 5000) for r in OTHERS[0]]], *OTHERS[1:]]
    patient = SLOW.with_idleness(10_000)

    def build(env: StreamExecutionEnvironment) -> DataStream:
        right = env.from_source(ScriptedSource(lanes, RIGHT), patient, "others")
        left = readings.columns(env).select("g", "v", "ts").key_by("g")
        return left.interval_join(right.key_by("g"), -40, 40)

    rights = [r for lane in lanes for r in lane if not isinstance(r, Pause)]
    pairs = joined("inner", readings.all, rights, lambda a, b: abs(a.ts - b.ts) <= 40)
    assert_equivalent(build, [fields("inner", a, b) for a, b in pairs])


def test_an_empty_side(readings: Any) -> None:
    """The columns of a side without records are known from the program."""

    def build(env: StreamExecutionEnvironment) -> dict[str, DataStream]:
        nothing = env.from_source(ScriptedSource([[]], RIGHT), SLOW, "nothing").key_by("g")
        left = readings.columns(env).select("g", "v", "ts").key_by("g")
        return {
            "window": left.window_join(nothing, TumblingEventTimeWindows.of(100), "left"),
            "interval": left.interval_join(nothing, -10, 10, "left"),
        }

    expected: list[Any] = [("interval", (r.g, r.v, r.ts, None, None)) for r in readings.all]
    for r in readings.all:
        start = r.ts // 100 * 100
        expected.append(("window", (r.g, r.v, r.ts, None, None, start, start + 100)))
    assert_equivalent(build, expected)


def test_objects_and_expression_keys(readings: Any) -> None:
    """Records that are Python objects become columns; keys may be computed."""

    def build(env: StreamExecutionEnvironment) -> DataStream:
        left = readings.rows(env).map(lambda r: {"g": r.g, "v": r.v, "ts": r.ts})
        right = others(env).key_by(pl.col("g") - 1)
        return left.key_by("g").interval_join(right, 0, 30)

    expected = [
        (a.g, a.v, a.ts, b.g, b.w, b.ts)
        for a in readings.all
        for b in ALL_OTHERS
        if b.g is not None and a.g == b.g - 1 and 0 <= b.ts - a.ts <= 30
    ]
    assert_equivalent(build, expected)


def test_nexmark_q8() -> None:
    """Who opened an auction in the window in which they registered."""
    events, rate = 4_000, 1_000
    window = 1000
    stamped = WatermarkStrategy.for_monotonous_timestamps()

    def source(env: StreamExecutionEnvironment, kind: Any, columns: list[str]) -> DataStream:
        made = NexmarkSource(events, rate, columns=columns, kind=kind, splits=2, block=50)
        return env.from_source(made, stamped, kind)

    def build(env: StreamExecutionEnvironment) -> DataStream:
        persons = source(env, "person", ["id", "name"]).key_by("id")
        auctions = source(env, "auction", ["seller"]).key_by("seller")
        return persons.window_join(auctions, TumblingEventTimeWindows.of(window), "semi")

    made = {}
    for kind, columns in (("person", ["id", "name"]), ("auction", ["seller"])):
        batch = NexmarkSource(events, rate, columns=columns, kind=kind).generator()([(0, events)])
        made[kind] = list(zip(batch.rows(), batch.timestamps.tolist(), strict=True))
    sellers = {(row.seller, ts // window) for row, ts in made["auction"]}
    expected = [
        (*row, ts // window * window, ts // window * window + window)
        for row, ts in made["person"]
        if (row.id, ts // window) in sellers
    ]
    assert len(expected) > 20
    assert_equivalent(build, expected, Ways(batch_size=8))
