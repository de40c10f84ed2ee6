"""How fast the native Kafka sink writes: a job that does nothing else, in this process, into a real
broker on this machine. Rates are over the whole job, its last commit included, CPU is that of this
process with its client's threads."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta

import pyarrow as pa
from strom import CheckpointConfig, JobConfig, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource
from strom.connectors.kafka import KafkaSink
from strom.connectors.kafka.sink_builder import Delivery

from .lines import Line, at_least, rates
from .systems import Systems

TARGET = 400_000
"""Records of 100 bytes a second, exactly once."""

SCHEMA = pa.schema([("v", pa.binary())])

BLOCK = 16_384


def measure_sink(systems: Systems, events: int) -> Iterator[Line]:
    """A line for each size of records and guarantee. `events`: of 100 bytes; of larger ones there
    are fewer."""
    deliveries: tuple[Delivery, ...] = ("exactly-once", "at-least-once")
    for delivery in deliveries:
        for size in (100, 1000):
            line = write(systems, size, max(1, events * 100 // size), delivery)
            aimed = size == 100 and delivery == "exactly-once"
            yield at_least(line, "records_per_s", TARGET) if aimed else line


def source(size: int, count: int) -> DataGenSource:
    """`count` records of `size` bytes, made of one block over and over."""
    texts = pa.array([bytes([65 + i % 26]) * size for i in range(BLOCK)], pa.binary())

    def make(start: int, length: int) -> pa.RecordBatch:
        return pa.record_batch({"v": texts[:length]}, schema=SCHEMA)

    return DataGenSource(make, count, splits=1, schema=SCHEMA, block=BLOCK)


def write(
    systems: Systems, size: int, count: int, delivery: Delivery, interval_s: float = 1.0
) -> Line:
    """One line: `count` records of `size` bytes, with a checkpoint every `interval_s`."""
    topic = systems.new_topic(f"out-{size}-{delivery}")
    sink = KafkaSink(
        systems.servers,
        topic,
        delivery=delivery,
        transactional_id_prefix=topic if delivery == "exactly-once" else None,
    )
    with tempfile.TemporaryDirectory(prefix="strom-benchmark-") as folder:
        config = JobConfig(
            batch_size=BLOCK,
            checkpoint=CheckpointConfig(interval=timedelta(seconds=interval_s), storage=folder),
        )
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.from_source(source(size, count)).sink_to(sink)
        broker, cpu, started = systems.broker_cpu_s(), _cpu_s(), time.perf_counter()
        result = env.execute(topic)
        took, cpu = time.perf_counter() - started, _cpu_s() - cpu
        broker = systems.broker_cpu_s() - broker
    transactions = result.checkpoints if delivery == "exactly-once" else 0
    systems.check_written(topic, count, transactions)
    systems.drop_topic(topic)
    return {
        "name": "kafka_native",
        "engine": "strom",
        "direction": "out",
        "delivery": delivery,
        **rates(count, size, took, cpu),
        "broker_cpu_s_per_m_records": round(broker / count * 1e6, 3),
        "checkpoints": result.checkpoints,
        "checkpoint_interval_s": interval_s,
        "parallelism": 1,
        "host": "local",
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
