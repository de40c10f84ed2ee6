"""Jobs that go on from the savepoint of one that was drained. For that one event time had come to
its end; for the next it begins anew: nothing that its sources still have to read is late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
import strom
from chaos_kit import config, until, within
from held_source import HeldSource
from strom import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    StateTtlConfig,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
)
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.state_config import StateConfig
from strom.testing.backends import spilling
from strom.testing.probes import CollectProbe

COUNT = 600
HELD = 200
RATE = 1_500.0
SCHEMA = pa.schema([("n", pa.int64()), ("k", pa.int64())])
WHOLE = TumblingEventTimeWindows.of(10**6)
HOUR = 3_600_000


def numbers(start: int, number: int) -> pa.RecordBatch:
    ns = list(range(start, start + number))
    return pa.record_batch({"n": ns, "k": [n % 7 for n in ns]}, schema=SCHEMA)


class Rows(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, sum(1 for _ in elements)


class Twice(AsyncFunction):
    async def async_invoke(self, value: Any) -> Any:
        return [value]


class Counted(KeyedProcessFunction):
    """How many came of a key, in state that expires by event time, long after all of it."""

    def open(self, runtime_context: Any) -> None:
        told = ValueStateDescriptor("seen")
        told.enable_time_to_live(StateTtlConfig.new_builder(HOUR).use_event_time().build())
        self.seen = runtime_context.get_state(told)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update((self.seen.value() or 0) + 1)
        yield value.n, self.seen.value()


def tumbling(stream: Any) -> Any:
    return stream.key_by("n").window(WHOLE).aggregate(n_=count()).map(lambda r: r.n)


def sliding(stream: Any) -> Any:
    windows = stream.key_by("n").window(SlidingEventTimeWindows.of(10**6, 10**6 // 2))
    return windows.aggregate(n_=count()).map(lambda r: r.n)


def sessions(stream: Any) -> Any:
    windows = stream.key_by("n").window(EventTimeSessionWindows.with_gap(10**6))
    return windows.aggregate(n_=count()).map(lambda r: r.n)


def row_windows(stream: Any) -> Any:
    return stream.key_by(lambda r: r.n).window(WHOLE).process(Rows()).map(lambda r: r[0])


def window_join(stream: Any) -> Any:
    left, right = stream.key_by("n"), stream.select("n", other=pl.col("k")).key_by("n")
    return left.window_join(right, WHOLE).map(lambda r: r.n)


def interval_join(stream: Any) -> Any:
    left, right = stream.key_by("n"), stream.select("n", other=pl.col("k")).key_by("n")
    pairs = left.interval_join(right, -5, 5, "left")
    return pairs.filter(lambda r: r.other is not None).map(lambda r: r.n)


def over(stream: Any) -> Any:
    return stream.key_by("n").over(rows=3).aggregate(n_=count()).map(lambda r: r.n)


def behind_requests(stream: Any) -> Any:
    asked = AsyncDataStream.unordered_wait(stream, Twice(), timedelta(seconds=60), 20)
    return asked.key_by(lambda r: r.n).window(WHOLE).process(Rows()).map(lambda r: r[0])


def expiring(stream: Any) -> Any:
    counted = stream.key_by("k").process(Counted())
    return counted.map(lambda r: r[0] if r[1] == r[0] // 7 + 1 else f"{r} is not counted on")


@pytest.mark.parametrize("state", [StateConfig(), spilling(8)], ids=["memory", "rocksdb"])
@pytest.mark.parametrize(
    "results",
    [
        tumbling,
        sliding,
        sessions,
        row_windows,
        window_join,
        interval_join,
        over,
        behind_requests,
        expiring,
    ],
)
def test_what_comes_behind_a_drain_is_not_late(
    tmp_path: Path, results: Callable[[Any], Any], state: StateConfig
) -> None:
    latch = threading.Event()

    def build(env: Any) -> Any:
        source = HeldSource(numbers, COUNT, latch, HELD, RATE, schema=SCHEMA, splits=1)
        times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("n")
        return results(env.from_source(source, times).uid("numbers"))

    found: set[Any] = set()
    kept = config(tmp_path / "checkpoints", interval_ms=20, tolerable=99, state=state)
    path = None
    for parallelism in (2, 3):
        probe = CollectProbe(build)
        told = replace(kept, parallelism=parallelism, restore_from=path)
        client = strom.api.jobs.host.open_host("local").submit(probe.graph(told), "numbers")
        if path is None:
            until(lambda at=client: at.metrics()["checkpoints"]["completed"] > 1, "checkpoints")
            answer = client.stop_with_savepoint(True, str(tmp_path / "saved"))
            path = answer.result(timedelta(seconds=60))
            latch.set()
        within(30.0, "the end", client.get_job_execution_result)
        published = {op: list(client.published(op)) for op in probe.sinks.values()}
        found.update(probe.output(published))
    assert found == set(range(COUNT))
