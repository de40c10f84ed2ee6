"""Whole jobs whose tasks, or whose broker, die on the way: each result is in Kafka exactly once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from kafka_sink_kit import (
    SinkBroker,
    context,
    eventually,
    exactly_once,
    prepare,
    put,
    values,
)
from strom import (
    CheckpointConfig,
    ExponentialDelayRestart,
    JobCancelledError,
    JobConfig,
    StreamExecutionEnvironment,
)
from strom.connectors.datagen import DataGenSource
from strom.connectors.kafka import KafkaSink, StringEncoder
from strom.core.errors import ConnectorError
from strom.testing.kafka import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

COUNT = 3_000
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture(scope="module")
def fragile() -> Iterator[SinkBroker]:
    """A broker that tests may kill, and that drops transactions promptly."""
    prompt = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
    with KafkaCluster(settings=prompt) as cluster:
        yield SinkBroker(cluster)


def numbers(start: int, count: int) -> pa.RecordBatch:
    time.sleep(0.015)
    return pa.record_batch({"n": list(range(start, start + count))}, schema=SCHEMA)


def config(folder: Path, parallelism: int = 2, **more: Any) -> JobConfig:
    return JobConfig(
        parallelism=parallelism,
        batch_size=20,
        checkpoint=CheckpointConfig(
            interval=timedelta(milliseconds=150), storage=str(folder), retained=3
        ),
        restart=ExponentialDelayRestart(
            initial=timedelta(milliseconds=20), maximum=timedelta(milliseconds=200)
        ),
        **more,
    )


def build(env: Any, sink: KafkaSink, count: int = COUNT, through: Any = None) -> Any:
    stream = env.from_source(DataGenSource(numbers, count, splits=4, schema=SCHEMA, block=20))
    if through is not None:
        stream = stream.map_batches(through)
    stream.sink_to(sink).uid("kafka")
    return stream


def found(broker: SinkBroker, topic: str) -> Counter[int]:
    return Counter(int(value or b"") for value in values(broker.servers, topic))


def crashing(folder: Path) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Raises at a few records, once each."""

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        for n in batch.column(0).to_pylist():
            mark = folder / f"crashed-{n}"
            if n in (400, 1_100, 1_700, 2_600) and not mark.exists():
                mark.touch()
                raise RuntimeError(f"crash at {n}")
        return batch

    return call


def test_tasks_crash(broker: SinkBroker, tmp_path: Path) -> None:
    topic = broker.topic(3)
    env = StreamExecutionEnvironment.get_execution_environment(config(tmp_path))
    sink = exactly_once(broker.servers, topic, f"crashing-{topic}", value=StringEncoder("n"))
    build(env, sink, through=crashing(tmp_path))
    result = env.execute("crashing")
    assert result.restarts == 4
    assert found(broker, topic) == Counter(range(COUNT))


def slow_until(mark: Path, count: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """The second half of each split of `count` numbers takes its time as long as there is no such
    file: the job is still there to be stopped, however slow the test itself is."""

    def call(batch: pa.RecordBatch) -> pa.RecordBatch:
        part = count // 4
        if batch.column(0)[0].as_py() % part >= part // 2 and not mark.exists():
            time.sleep(1.0)
        return batch

    return call


@pytest.mark.soak
def test_a_job_is_stopped_and_restored_at_another_parallelism(
    broker: SinkBroker, tmp_path: Path
) -> None:
    topic = broker.topic(3)
    sink = exactly_once(broker.servers, topic, f"rescaled-{topic}", value=StringEncoder("n"))
    env = StreamExecutionEnvironment.get_execution_environment(config(tmp_path, 4))
    slow = slow_until(tmp_path / "stopped", 2 * COUNT)
    build(env, sink, 2 * COUNT, slow)
    client = env.execute_async("first")
    eventually(lambda: sum(found(broker, topic).values()) > COUNT // 10)
    client.cancel()
    with pytest.raises(JobCancelledError):
        client.get_job_execution_result(timedelta(seconds=30))
    kept = sorted(tmp_path.glob("*/chk-*"), key=lambda folder: int(folder.name.split("-")[1]))
    env = StreamExecutionEnvironment.get_execution_environment(
        config(tmp_path, 3, restore_from=str(kept[-1]))
    )
    (tmp_path / "stopped").touch()
    build(env, sink, 2 * COUNT, slow)
    env.execute("second")
    eventually(lambda: found(broker, topic) == Counter(range(2 * COUNT)))


def test_the_broker_is_killed_and_comes_back(fragile: SinkBroker, tmp_path: Path) -> None:
    topic = fragile.topic(2)
    env = StreamExecutionEnvironment.get_execution_environment(config(tmp_path))
    sink = exactly_once(fragile.servers, topic, f"killed-{topic}", value=StringEncoder("n"))
    mark = tmp_path / "killed"
    build(env, sink, 3 * COUNT, slow_until(mark, 3 * COUNT))
    client = env.execute_async("killed broker")
    eventually(lambda: sum(found(fragile, topic).values()) > COUNT // 10)
    [broker] = fragile.cluster.brokers
    assert not client.get_job_status().is_terminal
    broker.kill()
    mark.touch()
    time.sleep(1.0)
    broker.start()
    broker.wait()
    client.get_job_execution_result(timedelta(seconds=120))
    assert found(fragile, topic) == Counter(range(3 * COUNT))


def test_a_transaction_that_timed_out_is_an_error_that_says_so(fragile: SinkBroker) -> None:
    topic = fragile.topic()
    short = {"transaction.timeout.ms": "1500"}
    sink = exactly_once(fragile.servers, topic, "short", properties=short)
    writer = sink.create_writer(context())
    put(writer, "a", "b")
    made = prepare(writer)
    time.sleep(4.0)
    lost = r"2 records of a completed checkpoint .*transaction\.timeout\.ms=1500"
    with pytest.raises(ConnectorError, match=lost):
        writer.commit(made)
    writer.close()
    again = sink.create_writer(context(attempt=1))
    with pytest.raises(ConnectorError, match=lost):
        again.recover(made)
    again.close()
    skipping = exactly_once(
        fragile.servers, topic, "short", properties=short, on_lost_transaction="skip"
    ).create_writer(context(attempt=2))
    skipping.recover(made)
    put(skipping, "c")
    skipping.commit(prepare(skipping))
    skipping.close()
    assert values(fragile.servers, topic) == [b"c"]


def test_a_barrier_waits_for_a_broker_that_hangs(fragile: SinkBroker) -> None:
    topic = fragile.topic()
    writer = exactly_once(fragile.servers, topic, "hangs").create_writer(context())
    put(writer, "a")
    prepared = writer.prepare_commit(1)
    [broker] = fragile.cluster.brokers
    put(writer, "b")
    late = writer.prepare_commit(2)
    broker.pause()
    try:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.extend([*prepared(), *late()]))
        thread.start()
        thread.join(1.0)
        assert thread.is_alive(), "nothing can be acknowledged now"
    finally:
        broker.resume()
    thread.join(30.0)
    writer.commit(made)
    assert values(fragile.servers, topic) == [b"a", b"b"]
    writer.close()


@pytest.mark.ray
def test_a_task_actor_is_killed(broker: SinkBroker, tmp_path: Path) -> None:
    import ray
    from strom.engine.hosts.ray_host import connect_to_ray

    connect_to_ray(num_cpus=4, log_to_driver=False)
    try:
        topic = broker.topic(3)
        env = StreamExecutionEnvironment.get_execution_environment(config(tmp_path), host="ray")
        sink = exactly_once(broker.servers, topic, f"ray-{topic}", value=StringEncoder("n"))
        mark = tmp_path / "killed"
        build(env, sink, 4 * COUNT, slow_until(mark, 4 * COUNT))
        client = env.execute_async("killed task")
        eventually(lambda: sum(found(broker, topic).values()) > COUNT // 10, 60)
        os.kill(_task_processes()[0], signal.SIGKILL)
        mark.touch()
        result = client.get_job_execution_result(timedelta(seconds=120))
        assert result.restarts >= 1
        eventually(lambda: found(broker, topic) == Counter(range(4 * COUNT)))
    finally:
        ray.shutdown()


def _task_processes() -> list[int]:
    """Processes below this one that run a task."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if "TaskActor" in " ".join(one.cmdline()):
                found.append(one.pid)
    return found
