"""The benchmarks of the Spark connectors and of the bridge: a line each, of what they have
checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from strom.benchmarks.connectors import bridge, peers, through_spark
from strom.benchmarks.connectors.systems import Systems
from strom.connectors.spark import kafka_jars
from strom.connectors.spark.launch import add_jars, see_added_jars

pytestmark = [pytest.mark.soak, pytest.mark.spark, pytest.mark.timeout(600)]

EVENTS = 2_000


@pytest.fixture(scope="module")
def systems(kafka: Any, gateway: Any, spark: Any) -> Iterator[Systems]:
    with Systems(kafka, gateway, spark) as made:
        yield made


def test_kafka(systems: Systems) -> None:
    lines = list(through_spark.kafka_spark(systems, EVENTS, 1, (100,), warm=False))
    assert [(one["direction"], one["record_bytes"], one["records"]) for one in lines] == [
        ("in", 100, EVENTS),
        ("out", 100, EVENTS),
    ]
    assert all(one["spark_cpu_s_per_m_records"] > 0 for one in lines)


def test_parquet(systems: Systems) -> None:
    line = through_spark.parquet_spark(systems, EVENTS, 1, warm=False)
    assert line["records"] == EVENTS
    assert line["target"] == 2_000_000


def test_sparks_own(systems: Systems) -> None:
    add_jars(systems.session, kafka_jars().split(","))
    see_added_jars(systems.session)
    topic = systems.topic("bytes", 100, EVENTS)
    batch = peers.spark_batch(systems, topic, EVENTS)
    stream = peers.spark_stream(systems, topic, EVENTS)
    assert [one["engine"] for one in (batch, stream)] == ["spark", "spark"]
    assert batch["records"] == stream["records"] == EVENTS


def test_bridge(systems: Systems) -> None:
    line = bridge.measure_overhead(systems, 6)
    assert line["target"] == 300
    assert line["spark_ms"] > 0
    assert line["arrived_ms"] >= line["spooled_ms"]


def test_soak(systems: Systems) -> None:
    line = bridge.measure_soak(systems, 4)
    assert [sample["micro_batch"] for sample in line["samples"]] == [1, 2, 4]
    assert all(sample["jvm_mb"] > 0 for sample in line["samples"])
