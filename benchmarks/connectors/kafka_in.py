"""How fast the native Kafka source makes columns of a topic that is there already."""

from __future__ import annotations

from collections.abc import Iterator

from strom import DiscardSink
from strom.connectors.kafka import (
    BytesFormat,
    Format,
    JsonFormat,
    KafkaOffsetsInitializer,
    KafkaSource,
)

from ..measure import Setting, environment
from .lines import Line, at_least, expect, peak_rss_mb, rates, tasks_cpu_s
from .systems import Systems
from .topics import JSON, Content

TARGET = 1_000_000
"""Records of 100 bytes a second, as bytes."""


def measure_source(systems: Systems, events: int, parallelism: int, host: str) -> Iterator[Line]:
    """A line for each size of records as bytes, and for JSON. `events`: of 100 bytes; of larger
    ones there are fewer."""
    yield at_least(read(systems, "bytes", 100, events, parallelism, host), "records_per_s", TARGET)
    yield read(systems, "bytes", 1000, max(1, events // 10), parallelism, host)
    yield read(systems, "json", 100, events, parallelism, host)


def read(
    systems: Systems, content: Content, size: int, count: int, parallelism: int, host: str
) -> Line:
    """One line: a job that reads a whole topic and drops the records."""
    topic = systems.topic(content, size, count)
    env = environment(Setting("kafka_native", count, parallelism, host))
    form: Format = JsonFormat(JSON) if content == "json" else BytesFormat()
    stop = KafkaOffsetsInitializer.latest()
    env.from_source(KafkaSource(systems.servers, topic, value=form, stop=stop)).sink_to(
        DiscardSink()
    )
    broker = systems.broker_cpu_s()
    result = env.execute("benchmark kafka_native")
    broker = systems.broker_cpu_s() - broker
    expect(result.metrics["operators"][0]["records_out"], count, f"records read of '{topic}'")
    return {
        "name": "kafka_native",
        "engine": "strom",
        "direction": "in",
        "values": content,
        **rates(count, size, result.net_runtime_ms / 1000, tasks_cpu_s(result)),
        "broker_cpu_s_per_m_records": round(broker / count * 1e6, 3),
        "peak_rss_mb": peak_rss_mb(result),
        "parallelism": parallelism,
        "host": host,
    }
