"""What emits much at once stops when its output is full: memory in flight stays within the stated
bound, a checkpoint gets through and a cancel is heard meanwhile."""

from __future__ import annotations

import itertools
import resource
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chaos_kit import config, environment, until, within
from shared_ray import have_ray
from strom import ExchangeConfig, TumblingEventTimeWindows, WatermarkStrategy
from strom.api.aggregates import count
from strom.api.connectors.builtin_sinks import DiscardSink
from strom.api.functions.user_functions import KeyedProcessFunction, ProcessFunction
from strom.connectors.datagen import DataGenSource

ON_RAY = [pytest.mark.ray, pytest.mark.timeout(600)]
HOSTS = ["local", pytest.param("ray", marks=ON_RAY)]
EXCHANGE = ExchangeConfig(
    buffer_bytes=64 << 10,
    min_buffer_bytes=16 << 10,
    floating_buffers=2,
    buffer_timeout=timedelta(milliseconds=5),
)
BATCH = 500
KEYS = 120_000
FIRED_BYTES = KEYS * 70
"""What the window emits in one firing: eight megabytes."""

SCHEMA = pa.schema([("key", pa.string()), ("at", pa.int64())])


def keyed(start: int, rows: int) -> pa.RecordBatch:
    """Every record a key of its own; the last one completes the window of all others."""
    numbers = np.arange(start, start + rows)
    keys = pa.array([f"a key of forty characters {n:014d}" for n in numbers.tolist()])
    times = np.where(numbers == KEYS, 10_000, numbers * 999 // KEYS)
    return pa.RecordBatch.from_arrays([keys, pa.array(times)], schema=SCHEMA)


def slowly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A stage that takes 4,000 records a second."""
    time.sleep(batch.num_rows / 4000)
    return batch


def environment_of(host: str, **settings: Any) -> Any:
    if host == "ray":
        have_ray()
    return environment(config(batch_size=BATCH, exchange=EXCHANGE, **settings), host)


def figures(metrics: dict[str, Any], name: str) -> dict[str, Any]:
    return next(o for o in metrics["operators"] if o["name"] == name)


@pytest.mark.parametrize("host", HOSTS)
def test_a_window_of_many_keys_fires_into_a_slow_stage(host: str) -> None:
    # What is combined ahead of the exchange leaves at once before a barrier, and has its own bound.
    settings = {"interval_ms": 100, "cancellation_s": 10.0, "local_combining": False}
    env = environment_of(host, **settings).set_parallelism(1)
    source = DataGenSource(keyed, KEYS + 1, splits=1, schema=SCHEMA, block=BATCH)
    stream = env.from_source(source, source_name="keys").assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
    )
    fired = stream.key_by("key").window(TumblingEventTimeWindows.of(1000)).aggregate(n=count())
    fired.name("window").rebalance().map_batches(slowly).name("slow").sink_to(DiscardSink())
    client = env.execute_async("firing")

    def emitted() -> int:
        return int(figures(client.metrics(), "window")["records_out"])

    until(lambda: emitted() > 2000, "results of the window", 120.0)
    done = client.metrics()["checkpoints"]["completed"]
    until(lambda: client.metrics()["checkpoints"]["completed"] >= done + 2, "checkpoints", 120.0)
    assert emitted() < KEYS, "it was still firing"
    exchange = client.metrics()["exchange"]
    assert 0 < exchange["peak_in_flight_bytes"] <= exchange["bound_bytes"] < FIRED_BYTES
    started = time.monotonic()
    within(10.0, "cancel", client.cancel)
    assert time.monotonic() - started < 3.0


class Endless(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield from itertools.count(value)


class KeyedEndless(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield from itertools.count(value)


class EndlessTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        ctx.timer_service().register_event_time_timer(10)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield from itertools.count()


ENDLESS = {
    "flat_map": lambda s: s.flat_map(itertools.count),
    "process": lambda s: s.process(Endless()),
    "keyed process": lambda s: s.key_by(lambda n: n).process(KeyedEndless()),
    "timer": lambda s: s.key_by(lambda n: n).process(EndlessTimer()),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("way", "host"),
    [
        *((way, "local") for way in ENDLESS),
        pytest.param("process", "ray", marks=ON_RAY),
        pytest.param("timer", "ray", marks=ON_RAY),
        pytest.param("flat_map", "ray", marks=[*ON_RAY, pytest.mark.soak]),
        pytest.param("keyed process", "ray", marks=[*ON_RAY, pytest.mark.soak]),
    ],
)
def test_results_without_end_can_be_limited_and_cancelled(way: str, host: str) -> None:
    # On the local host tasks share this process, in which other tests have been before.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10 if host == "local" else 0
    env = environment_of(host, cancellation_s=10.0)
    results = ENDLESS[way](env.from_collection([3, 4]))
    taken = within(120.0, "limit", lambda: results.execute_and_collect(limit=5000))
    assert len(taken) == 5000

    env = environment_of(host, cancellation_s=10.0)
    results = ENDLESS[way](env.from_collection([3, 4]))
    results.name("endless").rebalance().map(lambda n: n).name("behind").sink_to(DiscardSink())
    client = env.execute_async("endless")
    until(lambda: figures(client.metrics(), "behind")["records_in"] > 50_000, "records", 120.0)
    metrics = client.metrics()
    exchange = metrics["exchange"]
    assert exchange["peak_in_flight_bytes"] <= exchange["bound_bytes"] < 8 << 20
    assert max(task["peak_rss_bytes"] for task in metrics["tasks"]) < before + (1 << 30)
    ahead = figures(metrics, "endless")["records_out"] - figures(metrics, "behind")["records_in"]
    assert ahead * 8 <= exchange["bound_bytes"], "it waits for what is behind it"
    started = time.monotonic()
    within(10.0, "cancel", client.cancel)
    # On Ray a busy machine takes a while to end processes; after `cancellation_s` they are killed.
    assert time.monotonic() - started < (3.0 if host == "local" else 8.0)
