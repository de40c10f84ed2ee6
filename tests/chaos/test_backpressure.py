"""A sink slower than its source: the memory in flight stays within its bound, nothing is lost, and
the job can be checkpointed and cancelled all the same."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chaos_kit import config, environment, run_into, until, within
from shared_ray import have_ray
from strom import ExchangeConfig, Sink, SinkWriter
from strom.connectors.datagen import DataGenSource

SCHEMA = pa.schema([("n", pa.int64()), ("load", pa.binary(1000))])
LOAD = bytes(1000)
BATCH = 50
EXCHANGE = ExchangeConfig(
    buffer_bytes=64 << 10,
    min_buffer_bytes=16 << 10,
    floating_buffers=4,
    buffer_timeout=timedelta(milliseconds=5),
)
COUNT = 6000
"""Six megabytes; a receiver with two channels holds half a megabyte at most."""


def heavy(start: int, count: int) -> pa.RecordBatch:
    numbers = pa.array(np.arange(start, start + count, dtype=np.int64))
    return pa.RecordBatch.from_arrays(
        [numbers, pa.array([LOAD] * count, type=pa.binary(1000))], schema=SCHEMA
    )


class SlowSink(Sink):
    """Takes `seconds` per batch; publishes the records' numbers exactly once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def create_writer(self, context: Any) -> SinkWriter:
        return _SlowWriter(self.seconds, context)


class _SlowWriter(SinkWriter):
    def __init__(self, seconds: float, context: Any) -> None:
        self.seconds = seconds
        self.context = context
        self.pending: list[int] = []

    def write(self, batch: Any) -> None:
        time.sleep(self.seconds)
        self.pending += [row[0] for row in batch.rows()]

    def prepare_commit(self, checkpoint_id: int) -> Any:
        values, self.pending = self.pending, []
        return [(f"{self.context.subtask}-{checkpoint_id}", values)] if values else []

    def commit(self, committables: Sequence[Any]) -> None:
        for key, values in committables:
            self.context.publish(key, values)


HOSTS = ["local", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.timeout(600)])]


def overloaded(host: str, count: int | None, **settings: Any) -> Any:
    """A source that gives what it is asked for, rebalanced to the sink's two subtasks."""
    if host == "ray":
        have_ray()
    env = environment(config(batch_size=BATCH, exchange=EXCHANGE, **settings), host)
    source = DataGenSource(heavy, count, splits=2, schema=SCHEMA, block=BATCH)
    return env.from_source(source, source_name="fast").rebalance()


def read_by_source(metrics: dict[str, Any]) -> int:
    return next(o["records_out"] for o in metrics["operators"] if o["name"] == "fast")


def written_by_sink(metrics: dict[str, Any]) -> int:
    return next(o["records_in"] for o in metrics["operators"] if o["name"] != "fast")


@pytest.mark.parametrize("host", HOSTS)
def test_a_slow_sink_gets_everything_once_within_the_memory_bound(host: str) -> None:
    stream = overloaded(host, COUNT, interval_ms=50)
    figures: list[dict[str, Any]] = []
    env = stream.get_execution_environment()
    submit = env._submit

    def submitted(graph: Any) -> Any:
        client = submit(graph)
        figures.append(client)
        return client

    env._submit = submitted
    found = run_into(stream, SlowSink(0.005), 60.0)
    assert sorted(found) == list(range(COUNT))
    exchange = figures[0].metrics()["exchange"]
    assert exchange["bytes_sent"] > COUNT * len(LOAD)
    assert 0 < exchange["peak_in_flight_bytes"] <= exchange["bound_bytes"]
    assert exchange["bound_bytes"] < COUNT * len(LOAD)


@pytest.mark.parametrize("host", HOSTS)
def test_under_full_backpressure_a_job_is_checkpointed_and_cancelled(host: str) -> None:
    stream = overloaded(host, None, interval_ms=100, cancellation_s=5.0)
    stream.sink_to(SlowSink(0.02))
    client = stream.get_execution_environment().execute_async("overloaded")
    until(lambda: written_by_sink(client.metrics()) > 500, "records in the sink", 60.0)
    seen = []
    for _ in range(10):
        time.sleep(0.05)
        metrics = client.metrics()
        seen.append(read_by_source(metrics) - written_by_sink(metrics))
        exchange = metrics["exchange"]
        assert exchange["peak_in_flight_bytes"] <= exchange["bound_bytes"]
    assert max(seen) * len(LOAD) <= exchange["bound_bytes"], "the source waits for the sink"
    done = client.metrics()["checkpoints"]["completed"]
    until(lambda: client.metrics()["checkpoints"]["completed"] >= done + 2, "checkpoints", 20.0)
    started = time.monotonic()
    within(10.0, "cancel", client.cancel)
    assert time.monotonic() - started < 3.0


@pytest.mark.parametrize("size", [100_000, 3_000_000])
def test_a_record_larger_than_a_buffer_gets_through(size: int) -> None:
    env = environment(config(exchange=EXCHANGE, chaining=False))
    values = [b"small", b"x" * size, b"small too"]
    found = run_into(env.from_collection(values).rebalance(), SizeSink())
    assert sorted(found) == sorted(map(len, values))


class SizeSink(Sink):
    def create_writer(self, context: Any) -> SinkWriter:
        writer = _SlowWriter(0.0, context)
        writer.write = lambda batch: writer.pending.extend(  # type: ignore[method-assign]
            len(row) for row in batch.rows()
        )
        return writer
