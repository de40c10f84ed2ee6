"""One watermark makes much come out, the stage behind takes it slowly, and checkpoints pass while
most of it is still to come; crashed, restored and rescaled from there, every result comes once.

    lanes       records at 0 .. 99, in no order       1000        1001 .. 1030
    watermark                                          899: all of them fire at once
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from amounts import records
from drawn_ways import assert_equivalent
from strom import (
    DataStream,
    KeyedProcessFunction,
    Row,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.engine.task.chain import OperatorChain
from strom.operators.joins import temporal
from strom.testing.equivalence import Ways
from strom.testing.scripted import ScriptedSource

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner("ts")


def make_lane(lane: int) -> list[Row]:
    rng = random.Random(lane)
    early = [(f"k{lane}{i % 23}", rng.randrange(100)) for i in range(records(90))]
    late = [(f"k{lane}{i % 23}", 1000 + i) for i in range(31)]
    return [Row("k", "v", "ts")(k, v, ts) for v, (k, ts) in enumerate([*early, *late])]


LANES = [make_lane(lane) for lane in range(3)]
ALL = [row for lane in LANES for row in lane]
LEFT = [r for r in ALL if r.v % 3 > 0]
RIGHT = [r for r in ALL if r.v % 3 == 0]


class Buckets(KeyedProcessFunction):
    """A timer for each record, which gives what the key has seen up to its time."""

    def open(self, runtime_context: Any) -> None:
        kind = Types.PICKLED_BYTE_ARRAY()
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", kind))

    def process_element(self, value: Any, ctx: Any) -> None:
        self.seen.update([*(self.seen.value() or []), (value.ts, value.v)])
        ctx.timer_service().register_event_time_timer(value.ts)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        for ts, v in self.seen.value():
            if ts == timestamp:
                yield ctx.get_current_key(), timestamp, v


def sides(env: StreamExecutionEnvironment) -> tuple[Any, Any]:
    rows = env.from_source(ScriptedSource(LANES, SCHEMA), STRATEGY, "records")
    left = rows.filter(pl.col("v") % 3 > 0).select("k", "v")
    right = rows.filter(pl.col("v") % 3 == 0).select("k", w="v")
    return left.key_by("k"), right.key_by("k")


def timers(env: StreamExecutionEnvironment) -> Any:
    rows = env.from_source(ScriptedSource(LANES), STRATEGY, "records")
    return rows.key_by(lambda row: row.k).process(Buckets())


def over(env: StreamExecutionEnvironment) -> Any:
    rows = env.from_source(ScriptedSource(LANES, SCHEMA), STRATEGY, "records")
    return rows.key_by("k").over(range=20).aggregate(n=count(), s=sum_("v"))


def temporal_join(env: StreamExecutionEnvironment) -> Any:
    left, right = sides(env)
    return left.temporal_join(right, "left")


def window_join(env: StreamExecutionEnvironment) -> Any:
    left, right = sides(env)
    return left.window_join(right, TumblingEventTimeWindows.of(500), "full")


def interval_join(env: StreamExecutionEnvironment) -> Any:
    left, right = sides(env)
    return left.interval_join(right, 500, 600, "left")


def of_timers() -> list[Any]:
    return [(r.k, r.ts, r.v) for r in ALL]


def of_over() -> list[Any]:
    found = []
    for r in ALL:
        frame = [o for o in ALL if o.k == r.k and r.ts - 20 <= o.ts <= r.ts]
        found.append((*r, len(frame), sum(o.v for o in frame)))
    return found


def of_temporal_join() -> list[Any]:
    found = []
    for r in LEFT:
        valid = [o for o in RIGHT if o.k == r.k and o.ts <= r.ts]
        best = max(enumerate(valid), key=lambda p: (p[1].ts, p[0]))[1].v if valid else None
        found.append((r.k, r.v, best))
    return found


def of_window_join() -> list[Any]:
    def window(r: Row) -> tuple[int, int]:
        return r.ts // 500 * 500, r.ts // 500 * 500 + 500

    pairs = [(a, b) for a in LEFT for b in RIGHT if (a.k, window(a)) == (b.k, window(b))]
    met = {id(one) for pair in pairs for one in pair}
    found = [(a.k, a.v, b.v, *window(a)) for a, b in pairs]
    found += [(a.k, a.v, None, *window(a)) for a in LEFT if id(a) not in met]
    return found + [(b.k, None, b.v, *window(b)) for b in RIGHT if id(b) not in met]


def of_interval_join() -> list[Any]:
    assert not [1 for a in LEFT for b in RIGHT if a.k == b.k and 500 <= b.ts - a.ts <= 600]
    return [(a.k, a.v, None) for a in LEFT]


JOBS: dict[str, tuple[Callable[[Any], Any], Callable[[], list[Any]]]] = {
    "KeyedProcess": (timers, of_timers),
    "Over": (over, of_over),
    "TemporalJoin": (temporal_join, of_temporal_join),
    "WindowJoin": (window_join, of_window_join),
    "IntervalJoin": (interval_join, of_interval_join),
}


@pytest.fixture
def midway(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Of which operators snapshots are taken while they have work parked."""
    found: Counter[str] = Counter()
    prepare = OperatorChain.prepare_snapshot

    def watched(self: OperatorChain, *args: Any, **options: Any) -> None:
        parked = [node for node in self.nodes if node._work is not None]
        found.update(type(node.operator).__name__ for node in parked)
        prepare(self, *args, **options)

    monkeypatch.setattr(OperatorChain, "prepare_snapshot", watched)
    monkeypatch.setattr(temporal, "MAX_ROWS", 6)
    return found


@pytest.mark.parametrize("name", JOBS)
def test_checkpoints_pass_while_a_firing_drains(name: str, midway: Counter[str]) -> None:
    program, expected = JOBS[name]

    def build(env: StreamExecutionEnvironment) -> DataStream:
        results: DataStream = program(env).rebalance().map(tuple)
        return results

    assert_equivalent(build, expected(), Ways(seeds=range(2), batch_size=1))
    assert midway[f"{name}Operator"] > 0
