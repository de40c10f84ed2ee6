"""Latency markers: where records go, behind those before them, and what is told of them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from strom import (
    AsyncDataStream,
    Configuration,
    DiscardSink,
    JobConfig,
    MetricsConfig,
    StreamExecutionEnvironment,
)
from strom.connectors.datagen import DataGenSource
from strom.core.batch import ObjectBatch
from strom.core.clock import VirtualClock
from strom.core.elements import LatencyMarker, Watermark
from strom.core.errors import ConfigurationError
from strom.core.ids import OperatorId
from strom.engine.task.chain_node import ChainNode
from strom.engine.task.metrics import OperatorMetrics
from strom.engine.task.slices import Slice
from strom.operators.base import Operator, Steps
from strom.testing.operator_harness import OperatorHarness

MARKER = LatencyMarker(OperatorId("s"), 0, 1_000)


class Writer:
    """An exchange."""

    def __init__(self) -> None:
        self.available = True
        self.got: list[Any] = []

    def emit(self, batch: Any) -> None:
        self.got += batch.rows()

    def broadcast(self, element: Any) -> None:
        self.got.append(element)

    send_to_one = broadcast


class InSteps(Operator):
    def process(self, batch: Any, port: int = 0) -> Steps:
        for value in batch.rows():
            self.out.emit(ObjectBatch([value]))
            yield None


def test_it_waits_behind_the_records_before_it_and_tells_how_long() -> None:
    clock, writer = VirtualClock(1_000), Writer()
    node = ChainNode(InSteps(), OperatorMetrics("o", 0.0, clock.now_ms), 0, Slice(clock))
    node.outer.append(writer)  # type: ignore[arg-type]
    node.operator.setup(None, node)  # type: ignore[arg-type]
    node.wired()
    writer.available = False
    node.process(ObjectBatch([1, 2, 3]), 0)
    node.process_latency_marker(MARKER)
    node.process_watermark(5)
    assert writer.got == [1]
    clock.advance_ms(70)
    writer.available = True
    while node.busy:
        node.go_on()
    assert writer.got == [1, 2, 3, MARKER, Watermark(5)]
    told = node.metrics.snapshot(0.0)["latencies"]["s"]
    assert (told["count"], told["min"], told["max"]) == (1, 70, 70)


def test_clocks_that_differ_make_no_time_less_than_none() -> None:
    metrics = OperatorMetrics("o", 0.0, lambda: 500)
    metrics.passed(MARKER)
    assert metrics.snapshot(0.0)["latencies"]["s"]["min"] == 0


@pytest.mark.parametrize("ordered", [True, False])
def test_asynchronous_operators(ordered: bool) -> None:
    """Where results keep their order it is behind them; else it holds up nothing."""

    async def answered(n: int) -> list[int]:
        await asyncio.sleep(n / 1000)
        return [n]

    env = StreamExecutionEnvironment.get_execution_environment()
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    run = OperatorHarness.of(wait(env.from_collection([]), answered, 10_000))
    run.push([30])
    run.operator.process_latency_marker(MARKER)
    run.push([10])
    assert run.controls() == ([] if ordered else [MARKER])
    run.advance_processing_time(50)
    elements = [e if isinstance(e, LatencyMarker) else e.rows() for e in run.output.elements]
    assert elements == ([[30], MARKER, [10]] if ordered else [MARKER, [10], [30]])
    run.operator.process_latency_marker(MARKER)
    assert run.output.elements[-1] == MARKER


def paced(interval_ms: int | None, parallelism: int = 1) -> StreamExecutionEnvironment:
    interval = None if interval_ms is None else timedelta(milliseconds=interval_ms)
    config = JobConfig(parallelism=parallelism, metrics=MetricsConfig(latency_interval=interval))
    return StreamExecutionEnvironment.get_execution_environment(config)


def numbers(env: StreamExecutionEnvironment, name: str) -> Any:
    source = DataGenSource(lambda start, n: list(range(start, start + n)), 400, rate=2_000)
    return env.from_source(source).name(name)


def test_each_operator_tells_of_each_source() -> None:
    """Through chains, exchanges and several inputs."""
    env = paced(5, parallelism=2)
    left, right = numbers(env, "left"), numbers(env, "right")
    keyed = left.map(lambda n: n).name("map").union(right).key_by(lambda n: n % 7)
    keyed.map(lambda n: n).name("keyed").sink_to(DiscardSink()).name("sink")
    result = env.execute()
    latencies = {o["name"]: o["latencies"] for o in result.metrics["operators"]}
    assert set(latencies["map"]) == {"left"}
    assert set(latencies["keyed"]) == set(latencies["sink"]) == {"left", "right"}
    for told in (latencies["map"]["left"], latencies["sink"]["right"]):
        assert told["count"] > 3
        assert 0 <= told["p50"] <= told["p99"] <= told["max"]
    flat = result.metrics["metrics"]
    assert flat["sink.latency.left"]["p95"] is not None
    # An exchange sends each marker on once, not to all.
    assert latencies["sink"]["left"]["count"] <= latencies["map"]["left"]["count"]


def test_without_an_interval_there_are_none() -> None:
    env = paced(None)
    numbers(env, "numbers").sink_to(DiscardSink())
    assert all(o["latencies"] == {} for o in env.execute().metrics["operators"])


def test_how_it_is_asked_for() -> None:
    configuration = Configuration()
    configuration.set_string("metrics.latency.interval", "200 ms")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    assert env.get_job_config().metrics.latency_interval == timedelta(milliseconds=200)
    config = env.get_config()
    assert config.get_latency_tracking_interval() == 200
    assert config.set_latency_tracking_interval(0).get_latency_tracking_interval() == 0
    assert env.get_job_config().metrics.latency_interval is None
    with pytest.raises(ConfigurationError):
        MetricsConfig(latency_interval=timedelta(0))
