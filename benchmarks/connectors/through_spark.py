"""How fast strom's Spark connectors are: Kafka in and out, Parquet in. Spark runs inside Ray, with
one executor of two cores, and has done the same once before, for its compiler; the CPU of its JVMs
and of the gateway is counted with the tasks'."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from strom import DiscardSink, JobExecutionResult, Sink, Source

from ..measure import Setting, environment
from .kafka_out import source as generated
from .lines import Line, at_least, expect, peak_rss_mb, rates, tasks_cpu_s
from .parquet_native import write_files
from .systems import Systems

PARQUET_TARGET = 2_000_000
"""Rows a second, of two columns."""

INTERVAL_S = 1.0
"""Between checkpoints of jobs that write."""

WARM_UP = 10
"""One in so many records is read, or written, beforehand."""

SIZES = (100, 1000)

VALUE = pa.schema([("value", pa.binary())])


@dataclass(frozen=True)
class Taken:
    """A job that ran, and the CPU that Spark used meanwhile."""

    result: JobExecutionResult
    spark_cpu_s: float

    @property
    def read(self) -> int:
        """Records that its source gave."""
        return int(self.result.metrics["operators"][0]["records_out"])


def kafka_spark(
    systems: Systems, events: int, parallelism: int, sizes: Sequence[int] = SIZES, warm: bool = True
) -> Iterator[Line]:
    """A line for each direction and size. `events`: of 100 bytes."""
    counts = {size: max(1, events * 100 // size) for size in sizes}
    few = max(1, events // WARM_UP)
    if warm:
        _read(systems, SIZES[0], few, parallelism)
    for size, count in counts.items():
        taken = _read(systems, size, count, parallelism)
        yield _line("kafka_spark", "in", taken, count, size, parallelism)
    if warm:
        _write(systems, SIZES[0], few, parallelism)
    for size, count in counts.items():
        taken = _write(systems, size, count, parallelism)
        line = _line("kafka_spark", "out", taken, count, size, parallelism)
        yield {**line, "delivery": "at-least-once", "checkpoints": taken.result.checkpoints}


def parquet_spark(systems: Systems, rows: int, parallelism: int, warm: bool = True) -> Line:
    """One line: rows of an int64 and a string of 12 bytes. record_bytes: of both in memory."""
    for count in (max(1, rows // WARM_UP), rows) if warm else (rows,):
        with tempfile.TemporaryDirectory(prefix="strom-parquet-") as folder:
            _, memory = write_files(Path(folder), count, parallelism)
            taken = _read_parquet(systems, folder, count, parallelism)
    line = _line("parquet_spark", "in", taken, rows, round(memory / rows), parallelism)
    return at_least(line, "records_per_s", PARQUET_TARGET)


def _read(systems: Systems, size: int, count: int, parallelism: int) -> Taken:
    from strom.connectors.spark import SparkKafkaSource

    topic = systems.topic("bytes", size, count)
    source = SparkKafkaSource(systems.servers, topic, stop="latest", select=["value"], schema=VALUE)
    taken = _run(systems, source, DiscardSink(), parallelism)
    expect(taken.read, count, f"records that Spark read of '{topic}'")
    return taken


def _write(systems: Systems, size: int, count: int, parallelism: int) -> Taken:
    from strom.connectors.spark import SparkKafkaSink

    topic = systems.new_topic(f"spark-{size}")
    sink = SparkKafkaSink(systems.servers, topic, value="v")
    taken = _run(systems, generated(size, count), sink, parallelism, INTERVAL_S)
    systems.check_written(topic, count)
    systems.drop_topic(topic)
    return taken


def _read_parquet(systems: Systems, folder: str, rows: int, parallelism: int) -> Taken:
    from strom.connectors.spark import SparkParquetSource

    taken = _run(systems, SparkParquetSource(folder), DiscardSink(), parallelism)
    expect(taken.read, rows, "rows that Spark read of Parquet files")
    return taken


def _run(
    systems: Systems, source: Source, sink: Sink, parallelism: int, interval_s: float | None = None
) -> Taken:
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        setting = Setting("connectors", 0, parallelism, "ray", interval_s)
        used = systems.spark_cpu_s()
        env = environment(setting, folder)
        env.from_source(source).sink_to(sink)
        result = env.execute(f"benchmark {type(source).__name__} to {type(sink).__name__}")
        return Taken(result, systems.spark_cpu_s() - used)


def _line(name: str, direction: str, taken: Taken, count: int, size: int, parallelism: int) -> Line:
    cpu = tasks_cpu_s(taken.result) + taken.spark_cpu_s
    return {
        "name": name,
        "engine": "strom",
        "direction": direction,
        **rates(count, size, taken.result.net_runtime_ms / 1000, cpu),
        "spark_cpu_s_per_m_records": round(taken.spark_cpu_s / count * 1e6, 3),
        "peak_rss_mb": peak_rss_mb(taken.result),
        "parallelism": parallelism,
        "host": "ray",
    }
