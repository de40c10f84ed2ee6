"""The benchmarks of the native Kafka connectors: a line each, of what they have checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_kit import Broker, Sent
from strom.benchmarks.connectors import kafka_count, kafka_in, kafka_latency, kafka_out
from strom.benchmarks.connectors.lines import WrongResult
from strom.benchmarks.connectors.systems import PARTITIONS, Systems

pytestmark = pytest.mark.kafka

EVENTS = 2_000


@pytest.fixture(scope="module")
def systems(broker: Broker) -> Iterator[Systems]:
    with Systems(kafka=broker.cluster) as made:
        yield made


def test_in(systems: Systems) -> None:
    lines = list(kafka_in.measure_source(systems, EVENTS, 2, "local"))
    assert [(one["values"], one["record_bytes"], one["records"]) for one in lines] == [
        ("bytes", 100, EVENTS),
        ("bytes", 1000, EVENTS // 10),
        ("json", 100, EVENTS),
    ]
    assert [one.get("target") for one in lines] == [1_000_000, None, None]
    assert all(one["records_per_s"] > 0 for one in lines)


def test_out(systems: Systems) -> None:
    lines = list(kafka_out.measure_sink(systems, EVENTS))
    assert [(one["delivery"], one["record_bytes"]) for one in lines] == [
        ("exactly-once", 100),
        ("exactly-once", 1000),
        ("at-least-once", 100),
        ("at-least-once", 1000),
    ]
    assert [one.get("target") for one in lines] == [400_000, None, None, None]


def test_count(systems: Systems) -> None:
    running, upsert = kafka_count.measure_count(systems, EVENTS, 2, "local")
    assert (running["way"], running["written"]) == ("running", EVENTS)
    assert upsert["way"] == "upsert"
    assert upsert["written"] <= EVENTS
    assert running["target"] == upsert["target"] == 300_000


@pytest.mark.parametrize(
    ("counts", "what"), [([1, 1], "1 behind 1"), ([1, 3], "3 behind 1"), ([1], "instead of 2")]
)
def test_a_count_that_is_wrong_is_found(broker: Broker, counts: list[int], what: str) -> None:
    topic = broker.topic(PARTITIONS)
    broker.send(topic, [Sent(str(n).encode(), b"user-0000001") for n in counts])
    with pytest.raises(WrongResult, match=what):
        kafka_count.check(broker.servers, topic, "running", 2)


def test_records_that_are_missing_are_found(broker: Broker, systems: Systems) -> None:
    topic = broker.topic(PARTITIONS)
    broker.send(topic, [b"one", b"two"])
    broker.send(topic, [b"three"], transaction="commit")
    systems.check_written(topic, 2, transactions=1)
    systems.check_written(topic, 3, transactions=1)
    for wanted, transactions in ((5, 1), (2, 0)):
        with pytest.raises(WrongResult, match="committed offsets"):
            systems.check_written(topic, wanted, transactions)


def test_latency(systems: Systems) -> None:
    lines = list(kafka_latency.measure_latency(systems, 500, 0.4, 2, "local"))
    assert [(one["engine"], one.get("delivery")) for one in lines] == [
        ("kafka", None),
        ("strom", "at-least-once"),
        ("strom", "exactly-once"),
    ]
    assert all(0 < one["p50_ms"] <= one["p99_ms"] < 60_000 for one in lines)
