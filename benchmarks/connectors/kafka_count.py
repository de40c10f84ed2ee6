"""Kafka, a keyed count, Kafka, exactly once with a checkpoint each second: two ways of it.

    running   a record comes out for each that comes in: the count of its key so far
    upsert    a record comes out for each key and batch: the newest count, which replaces the one
              before (what a compacted topic holds)

Records have keys of 12 bytes, 100,000 of them, and values of 100 bytes, which the job does not need
and leaves in the source; it writes the key, and the count as text. Source, hash exchange between
two tasks, keyed state and transactions work on columns only.

A plain reader of committed records then looks at all that was written: of `running` that each key
has the counts 1, 2, 3, ... once each and in order, of `upsert` that the counts of each key ascend;
of both that the last ones are those of the records that were read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import polars as pl
from strom import DataStream, StreamExecutionEnvironment, count
from strom.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaSink,
    KafkaSource,
    StringEncoder,
    StringFormat,
)

from ..measure import Setting, environment
from ..streams import mix, numbers
from .lines import Line, WrongResult, at_least, expect, peak_rss_mb, rates, tasks_cpu_s
from .reading import committed
from .systems import PARTITIONS, Systems
from .topics import KEYS

TARGET = 300_000
"""Records of 100 bytes a second, in."""

SIZE = 100

Way = Literal["running", "upsert"]
WAYS: tuple[Way, ...] = ("running", "upsert")


def measure_count(systems: Systems, events: int, parallelism: int, host: str) -> Iterator[Line]:
    """A line for each way."""
    for way in WAYS:
        line = count_keys(systems, way, events, parallelism, host)
        yield at_least(line, "records_per_s", TARGET)


def counted(records: DataStream, way: Way) -> DataStream:
    """Columns `key` and `n`."""
    keys = records.select("key")
    if way == "running":
        return keys.with_columns(n=pl.lit(1, pl.Int64)).key_by("key").sum("n")
    return keys.key_by("key").aggregate(n=count(), changelog="upsert")


def build(env: StreamExecutionEnvironment, servers: str, read: str, write: str, way: Way) -> None:
    """The whole job, as a user writes it."""
    source = KafkaSource(
        servers,
        read,
        key=StringFormat("key"),
        include=["key"],
        stop=KafkaOffsetsInitializer.latest(),
    )
    sink = KafkaSink(
        servers,
        write,
        key="key",
        value=StringEncoder("n"),
        changelog="upsert" if way == "upsert" else "refuse",
        delivery="exactly-once",
        transactional_id_prefix=write,
    )
    counted(env.from_source(source), way).sink_to(sink)


def count_keys(systems: Systems, way: Way, events: int, parallelism: int, host: str) -> Line:
    """One line. Raises WrongResult if what was written is not right."""
    read, write = systems.topic("keyed", SIZE, events), systems.new_topic(f"count-{way}")
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        env = environment(
            Setting("kafka_count", events, parallelism, host, checkpoint_interval=1.0), folder
        )
        build(env, systems.servers, read, write, way)
        broker = systems.broker_cpu_s()
        result = env.execute(f"benchmark kafka_count {way}")
        broker = systems.broker_cpu_s() - broker
    written = check(systems.servers, write, way, events)
    systems.drop_topic(write)
    seconds = result.net_runtime_ms / 1000
    return {
        "name": "kafka_count",
        "engine": "strom",
        "way": way,
        "delivery": "exactly-once",
        **rates(events, SIZE, seconds, tasks_cpu_s(result)),
        "written": written,
        "written_per_s": round(written / seconds),
        "keys": KEYS,
        "checkpoints": result.checkpoints,
        "checkpoint_interval_s": 1.0,
        "broker_cpu_s_per_m_records": round(broker / events * 1e6, 3),
        "peak_rss_mb": peak_rss_mb(result),
        "parallelism": parallelism,
        "host": host,
    }


def check(servers: str, topic: str, way: Way, events: int) -> int:
    """How many records were written, if they are the right ones: see the module."""
    newest: dict[bytes, int] = {}
    written = 0
    for messages in committed(servers, topic, PARTITIONS):
        for message in messages:
            key, n = message.key(), int(message.value())
            before = newest.get(key, 0)
            if n <= before or (way == "running" and n != before + 1):
                raise WrongResult(f"'{topic}': key {key!r} has {n} behind {before}")
            newest[key] = n
        written += len(messages)
    if way == "running":
        expect(written, events, f"committed records in '{topic}'")
    wrong = _differences(newest, expected(events))
    if wrong:
        raise WrongResult(f"'{topic}': the last counts of {wrong} keys are wrong")
    return written


def expected(events: int) -> Any:
    """How often each key occurs."""
    drawn = (mix(numbers(0, events)) % np.uint64(KEYS)).astype(np.int64)
    return np.bincount(drawn, minlength=KEYS)


def _differences(newest: dict[bytes, int], wanted: Any) -> int:
    found = np.zeros(KEYS, dtype=np.int64)
    for key, n in newest.items():
        found[int(key[-7:])] = n
    return int((found != wanted).sum())
