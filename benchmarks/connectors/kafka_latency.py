"""How long a record takes from Kafka through a job into Kafka: from when a producer hands it to its
client to when a consumer in this process has it.

A line without a job says what producer, broker and consumer take by themselves. The job passes
records on as they are: at least once, exactly once with a checkpoint every `COMMIT_S`, which is how
long a transaction is open, and with Spark's source and sink in place of the native ones, at a tenth
of the rate.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from strom import JobClient, Sink, Source
from strom.connectors.kafka import KafkaSink, KafkaSource
from strom.connectors.kafka.sink_builder import Delivery

from ...core.arrays import Int64s
from ..delays import percentiles
from ..measure import Setting, environment, processes_of
from .lines import Line, WrongResult
from .systems import PARTITIONS, Systems

SIZE: Final = 100
COMMIT_S: Final = 0.1
FLUSH_S: Final = 1.0
DELIVERIES: Final[tuple[tuple[Delivery, float], ...]] = (
    ("at-least-once", FLUSH_S),
    ("exactly-once", COMMIT_S),
)
WARM_UP: Final = 0.2
"""This part of the records, from the beginning, is left out."""
STAMP: Final = 19
"""Digits of a time in ns."""
LATE_S: Final = 60.0
"""A record that takes longer is taken for lost."""
SPARK_SLOWER: Final = 10


@dataclass(frozen=True)
class Load:
    """Records a second, and how many."""

    rate: int
    count: int


def measure_latency(
    systems: Systems, rate: int, seconds: float, parallelism: int, host: str
) -> Iterator[Line]:
    """A line without a job and one for each kind of delivery."""
    load = Load(rate, max(1, round(rate * seconds)))
    yield through_nothing(systems, load)
    for delivery, interval in DELIVERIES:
        read, write = systems.new_topic("latency-in"), systems.new_topic("latency-out")
        prefix = write if delivery == "exactly-once" else None
        sink = KafkaSink(
            systems.servers,
            write,
            value="value",
            delivery=delivery,
            transactional_id_prefix=prefix,
        )
        setting = Setting("kafka_latency", load.count, parallelism, host, interval)
        source = KafkaSource(systems.servers, read)
        line = through_job(systems, source, sink, (read, write), load, setting)
        yield {**line, "delivery": delivery}


def measure_spark_latency(systems: Systems, rate: int, seconds: float, parallelism: int) -> Line:
    """The line of Spark's source and sink: at least once."""
    from strom.connectors.spark import SparkKafkaSink, SparkKafkaSource

    slower = max(1, rate // SPARK_SLOWER)
    load = Load(slower, max(1, round(slower * seconds)))
    read, write = systems.new_topic("latency-in"), systems.new_topic("latency-out")
    source = SparkKafkaSource(
        systems.servers, read, select=["value"], schema=pa.schema([("value", pa.binary())])
    )
    sink = SparkKafkaSink(systems.servers, write, value="value")
    setting = Setting("kafka_latency", load.count, parallelism, "ray", FLUSH_S)
    line = through_job(systems, source, sink, (read, write), load, setting)
    return {**line, "name": "kafka_spark", "direction": "latency", "delivery": "at-least-once"}


def through_nothing(systems: Systems, load: Load) -> Line:
    """Producer to consumer."""
    topic = systems.new_topic("latency-none")
    with watching(systems.servers, topic) as consumer:
        delays = sent(systems.servers, topic, load, consumer)
    return _line("kafka", load, delays)


def through_job(
    systems: Systems,
    source: Source,
    sink: Sink,
    topics: tuple[str, str],
    load: Load,
    setting: Setting,
) -> Line:
    """Producer, first topic, job, second topic, consumer."""
    read, write = topics
    with (
        tempfile.TemporaryDirectory(prefix="strom-bench-") as folder,
        watching(systems.servers, write) as consumer,
    ):
        env = environment(setting, folder)
        env.from_source(source).sink_to(sink)
        client = env.execute_async("benchmark kafka_latency")
        try:
            wait_until_it_flows(systems.servers, read, consumer, client)
            before = _cpu_s(client)
            delays = sent(systems.servers, read, load, consumer)
            cpu = _cpu_s(client) - before
        finally:
            client.cancel()
    line = _line("strom", load, delays)
    return {
        **line,
        "cpu_s_per_m_records": round(cpu / load.count * 1e6, 3),
        "checkpoint_interval_s": setting.checkpoint_interval,
        "parallelism": setting.parallelism,
        "host": setting.host,
    }


@contextmanager
def watching(servers: str, topic: str) -> Iterator[Any]:
    """A consumer of what comes into a topic, committed."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, part, 0) for part in range(PARTITIONS)])
        yield consumer
    finally:
        consumer.close()


def wait_until_it_flows(servers: str, topic: str, consumer: Any, client: JobClient) -> None:
    """Sends a record now and then until one has come through, and then all have. They are no times:
    zeros."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    given, came = 0, 0
    deadline = time.monotonic() + LATE_S
    while came < given or not given:
        if client.get_job_status().is_terminal:
            client.get_job_execution_result()  # raises why
        if time.monotonic() > deadline:
            raise WrongResult(f"{came} of {given} records came through within {LATE_S:.0f} s")
        if not came:
            for part in range(PARTITIONS):
                producer.produce(topic, b"0" * SIZE, partition=part)
            given += PARTITIONS
            producer.flush()
        came += len(consumer.consume(1_000, 0.5))


def sent(servers: str, topic: str, load: Load, consumer: Any) -> Int64s:
    """Has the records produced, and takes them from the consumer: how old each was (ns)."""
    script = Path(__file__).with_name("paced_producer.py")
    words = [servers, topic, PARTITIONS, load.rate, load.count, SIZE]
    producer = subprocess.Popen([sys.executable, str(script), *map(str, words)])
    parts: list[Int64s] = []
    came = 0
    deadline = time.monotonic() + load.count / load.rate + LATE_S
    try:
        while came < load.count:
            if time.monotonic() > deadline:
                raise WrongResult(f"{came} of {load.count} records came through in time")
            messages = [*consumer.consume(1, 0.5), *consumer.consume(10_000, 0)]
            now = time.time_ns()
            stamps = [int(m.value()[:STAMP]) for m in messages if m.error() is None]
            parts.append(now - np.array(stamps, dtype=np.int64))
            came += len(stamps)
    finally:
        producer.kill() if came < load.count else producer.wait()
    if came > load.count:
        raise WrongResult(f"{came} records came through, {load.count} were sent")
    return np.concatenate(parts)


def _line(engine: str, load: Load, delays: Int64s) -> Line:
    return {
        "name": "kafka_latency",
        "engine": engine,
        "record_bytes": SIZE,
        "records": load.count,
        "rate": load.rate,
        **percentiles(delays[round(len(delays) * WARM_UP) :]),
    }


def _cpu_s(client: JobClient) -> float:
    metrics = client.metrics()
    return float(sum(p["cpu_s"] for p in processes_of(metrics)))
