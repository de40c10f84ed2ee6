"""What outlives a task's process on Ray: accumulators in a job's result, metrics for reporters, and
cached streams. One Ray instance for all."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
from chaos_kit import until
from shared_ray import ray_of
from strom import (
    DiscardSink,
    JobConfig,
    JobFailedError,
    LongCounter,
    MapFunction,
    MetricsConfig,
    NoRestart,
    StreamExecutionEnvironment,
)
from strom.api.connectors.base import WriterContext
from strom.api.connectors.cached_parts import Spoilt
from strom.connectors.datagen import DataGenSource
from strom.core.batch import ObjectBatch
from strom.core.clock import VirtualClock
from strom.engine.hosts.ray_cache import RayCache

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of():
        yield


def environment(**options: Any) -> Any:
    config = JobConfig(parallelism=2, restart=NoRestart(), **options)
    return StreamExecutionEnvironment.get_execution_environment(config, host="ray")


class Counting(MapFunction):
    """Defined here, so that it travels by value; so do its accumulators."""

    def open(self, runtime_context):
        class Own(LongCounter):
            """The coordinator has no such class."""

        self.own = Own()
        runtime_context.add_accumulator("own", self.own)
        self.seen = runtime_context.get_metrics_group().add_group("city", "berlin").counter("seen")

    def map(self, value):
        self.own.add(2)
        self.seen.inc()
        return value


def test_accumulators_come_back_from_the_tasks() -> None:
    env = environment()
    env.from_collection(list(range(100))).map(Counting()).name("Shop").sink_to(DiscardSink())
    client = env.execute_async()
    result = client.get_job_execution_result()
    assert result.get_all_accumulator_results() == client.get_accumulators() == {"own": 200}
    assert result.metrics["metrics"]["Shop.city.berlin.seen"] == 100
    assert client.prometheus_address is None


def test_a_running_job_tells_its_endpoint_and_hands_its_metrics_to_ray() -> None:
    metrics = MetricsConfig(prometheus_port=0, ray_interval=timedelta(seconds=1))
    env = environment(metrics=metrics)
    source = DataGenSource(lambda start, n: list(range(start, start + n)))
    env.from_source(source).map(Counting()).sink_to(DiscardSink())
    client = env.execute_async()
    try:
        address = client.prometheus_address
        assert address.startswith("127.0.0.1:")

        def read(address: str) -> str:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                return answer.read().decode()

        until(lambda: "\nstrom_operator_city_seen{" in read(address), "a report")
        rays = f"127.0.0.1:{ray.nodes()[0]['MetricsExportPort']}"
        until(lambda: "\nray_strom_operator_city_seen{" in read(rays), "a report of Ray's", 60.0)
        until(lambda: client.get_accumulators().get("own"), "an accumulator")
    finally:
        client.cancel()


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """An environment with a cached stream, and how often its function was called."""
    calls = tmp_path / "calls"
    calls.write_text("")

    def doubled(value: int) -> int:
        with open(calls, "a") as file:
            file.write("x")
        return value * 2

    with environment() as env:
        cached = env.from_collection(list(range(100))).map(doubled).cache()
        yield env, cached, lambda: len(calls.read_text())


EXPECTED = list(range(0, 200, 2))


def collected(stream: Any) -> list[Any]:
    return sorted(stream.execute_and_collect())


def test_a_stream_is_made_once_outlives_its_tasks_and_is_made_anew_when_it_is_lost(
    made: Any,
) -> None:
    env, cached, calls = made
    assert collected(cached) == EXPECTED
    assert collected(cached.map(lambda v: v + 1)) == [v + 1 for v in EXPECTED]
    assert calls() == 100

    env.set_parallelism(1)
    cached.set_parallelism(1).sink_to(DiscardSink())
    reads = env.get_job_graph("reads")
    store = env._caches._store
    ray.kill(store._keeper)
    with pytest.raises(JobFailedError, match=r"cached stream cannot be read .*makes it anew"):
        env._submit(reads).get_job_execution_result()

    assert collected(cached) == EXPECTED
    assert calls() == 200
    token = env._caches._entries[cached._operator.id].producer[0]
    assert store.holds(token)
    cached.invalidate()
    assert not store.holds(token)
    env.close()
    assert not store._lives()


def test_what_a_subtask_has_given_up_is_freed_and_never_complete() -> None:
    store = RayCache()
    store.prepare()
    clock = VirtualClock(0)
    try:
        writer, other = (
            store.sink("token", 1).create_writer(
                WriterContext("cache", "c", "job", at, 2, 0, clock, print, True)
            )
            for at in range(2)
        )
        other.write(ObjectBatch([1], None))
        kept = list(other.prepare_commit(1))
        other.commit(kept)
        writer.write(ObjectBatch([threading.Lock()], None))
        for one in (writer, other):
            one.finish()
        ended = list(other.prepare_commit(2))
        other.commit(ended)
        spoilt = list(writer.prepare_commit(2))
        assert spoilt == [Spoilt(0)]
        writer.commit(spoilt)
        assert not store.holds("token")
        with pytest.raises(KeyError):
            store.sink("token", 1).access.open().get("token", kept[0].part)
    finally:
        store.close()
