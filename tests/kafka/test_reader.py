"""The reader against a real broker: what it reads, from where, to where, and what it says."""

from __future__ import annotations

import gc
import logging
import time
from ctypes import c_void_p
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from kafka_kit import Broker, Reading, Sent
from strom import ConnectorError, OutputTag
from strom.api.connectors.base import Wait
from strom.connectors.kafka import (
    JsonFormat,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaSource,
    KafkaTopicPartition,
    SimpleStringSchema,
    StringFormat,
)
from strom.connectors.kafka.librdkafka import library

pytestmark = pytest.mark.kafka

LATEST = KafkaOffsetsInitializer.latest()
ALL = ("key", "topic", "partition", "offset", "timestamp", "headers")


def bounded(broker: Broker, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(broker.servers, topic, **{"stop": LATEST, **options})


def test_every_part_of_a_record_comes_out(broker: Broker) -> None:
    topic = broker.topic(partitions=2)
    records = [
        Sent(b"one", b"k1", 0, 1000, (("h", b"1"), ("h", b"2"))),
        Sent(None, b"k2", 1, 2000),
        Sent(b"", None, 0, 3000, (("empty", b""), ("null", None), ("é", b"\xff"))),
        Sent(b"\xff\x00", b"", 1, 4000),
    ]
    broker.send(topic, records)
    reading = Reading(bounded(broker, topic, include=ALL))
    rows = sorted(reading.to_the_end(), key=lambda row: row.timestamp)
    assert [(row.value, row.key, row.partition, row.topic) for row in rows] == [
        (sent.value, sent.key, sent.partition, topic) for sent in records
    ]
    assert [row.offset for row in rows] == [0, 0, 1, 1]
    assert [round(row.timestamp.timestamp() * 1000) for row in rows] == [1000, 2000, 3000, 4000]
    assert [tuple((h["key"], h["value"]) for h in row.headers) for row in rows] == [
        sent.headers for sent in records
    ]
    assert sorted(reading.stamps) == [1000, 2000, 3000, 4000]
    assert sorted(reading.finished) == [f"{topic}-0", f"{topic}-1"]


def test_an_empty_topic_ends_at_once(broker: Broker) -> None:
    reading = Reading(bounded(broker, broker.topic(partitions=3)))
    assert reading.to_the_end() == []
    assert len(reading.finished) == 3


@pytest.fixture(scope="module")
def counted(broker: Broker) -> str:
    """A topic with the records 0..99 at 0..99 seconds, and a group that has committed 40."""
    from confluent_kafka import Consumer, TopicPartition

    topic = broker.topic()
    broker.send(topic, [Sent(b"%d" % n, timestamp=1000 + n * 1000) for n in range(100)])
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "forty"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)
    consumer.close()
    return topic


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (KafkaOffsetsInitializer.earliest(), 0),
        (LATEST, 100),
        (KafkaOffsetsInitializer.timestamp(1000 + 30_500), 31),
        (KafkaOffsetsInitializer.timestamp(10**12), 100),
        (KafkaOffsetsInitializer.committed_offsets(), 40),
        ({0: 77}, 77),
        ({}, 0),
    ],
)
def test_beginnings(broker: Broker, counted: str, start: Any, first: int) -> None:
    if isinstance(start, dict):
        start = KafkaOffsetsInitializer.offsets({(counted, p): o for p, o in start.items()})
    source = bounded(broker, counted, start=start, group_id="forty", value=StringFormat())
    rows = Reading(source).to_the_end()
    assert [int(row.value) for row in rows] == list(range(first, 100))


@pytest.mark.parametrize(
    ("stop", "behind"),
    [
        (KafkaOffsetsInitializer.timestamp(1000 + 20_000), 20),
        (KafkaOffsetsInitializer.committed_offsets(), 40),
        ({0: 55}, 55),
        ({0: 0}, 0),
    ],
)
def test_ends(broker: Broker, counted: str, stop: Any, behind: int) -> None:
    if isinstance(stop, dict):
        stop = KafkaOffsetsInitializer.offsets({(counted, p): o for p, o in stop.items()})
    source = bounded(broker, counted, stop=stop, group_id="forty", value=StringFormat())
    rows = Reading(source, batch_size=16).to_the_end()
    assert [int(row.value) for row in rows] == list(range(behind))


def test_without_a_committed_offset_and_a_strategy(broker: Broker, counted: str) -> None:
    never = KafkaOffsetsInitializer.committed_offsets()
    source = bounded(broker, counted, start=never, group_id="nobody")
    with pytest.raises(ConnectorError, match="'nobody' has committed no offset"):
        Reading(source).to_the_end()
    latest = KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.LATEST)
    assert Reading(bounded(broker, counted, start=latest, group_id="nobody")).to_the_end() == []


def test_positions_are_exact_in_the_middle(broker: Broker, counted: str) -> None:
    source = bounded(broker, counted, value=SimpleStringSchema())
    rows: list[str] = []
    state = None
    while len(rows) < 100:
        reading = Reading(source, state, batch_size=7)
        if state is None:
            reading.ask()
        wanted = min(100 - len(rows), 21)
        reading.until(lambda reading=reading, wanted=wanted: len(reading.rows) >= wanted)
        rows += reading.rows
        state = reading.state()
        reading.close()
    assert [int(row) for row in rows] == list(range(100))


def test_transactions(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, [b"a", b"b"], transaction="commit")
    broker.send(topic, [b"c"], transaction="abort")
    broker.send(topic, [b"d"], transaction="commit")
    broker.send(topic, [b"e"], transaction="abort")
    rows = Reading(bounded(broker, topic, value=SimpleStringSchema())).to_the_end()
    assert rows == ["a", "b", "d"]
    dirty = {"isolation.level": "read_uncommitted"}
    source = bounded(broker, topic, value=SimpleStringSchema(), properties=dirty)
    assert Reading(source).to_the_end() == ["a", "b", "c", "d", "e"]


def test_new_partitions_and_topics_are_found(broker: Broker) -> None:
    from confluent_kafka.admin import NewPartitions

    name = broker.topic()
    source = KafkaSource(
        broker.servers,
        topic_pattern=f"{name}(-more)?",
        start=LATEST,
        discovery_interval=timedelta(milliseconds=50),
        value=SimpleStringSchema(),
    )
    broker.send(name, [b"before"])
    reading = Reading(source)
    assert reading.ask()
    assert reading.reader.asks_every_ms == 50
    broker.admin().create_partitions([NewPartitions(name, 2)])[name].result(30.0)
    broker.cluster.create_topic(f"{name}-more")
    reading.until(lambda: reading.ask() and len(reading.reader.snapshot()) == 3)
    broker.send(name, [Sent(b"grown", partition=1)])
    broker.send(f"{name}-more", [b"new"])
    reading.until(lambda: len(reading.rows) == 2)
    assert sorted(reading.rows) == ["grown", "new"]
    known, splits = reading.state()
    assert len(known.known) == 3
    assert not known.waiting
    assert len(splits) == 3
    reading.close()


def test_a_record_wakes_the_task(broker: Broker) -> None:
    topic = broker.topic()
    reading = Reading(KafkaSource(broker.servers, topic, value=SimpleStringSchema()))
    reading.ask()
    broker.send(topic, [b"0"])
    reading.until(lambda: reading.rows == ["0"])
    reading.until(lambda: isinstance(reading.poll(), Wait))
    woken = reading.woken
    broker.send(topic, [b"1"])
    deadline = time.monotonic() + 10
    while reading.woken == woken:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    reading.until(lambda: reading.rows == ["0", "1"])
    reading.close()


def test_the_group_hears_of_completed_checkpoints(broker: Broker, counted: str) -> None:
    source = KafkaSource(broker.servers, counted, group_id="watched", value=SimpleStringSchema())
    reading = Reading(source, batch_size=10)
    reading.ask()
    reading.until(lambda: len(reading.rows) >= 30)
    positions = reading.reader.snapshot()
    reading.until(lambda: len(reading.rows) == 100)
    reading.reader.notify_checkpoint_complete(1, positions)
    reading.close()
    assert broker.committed("watched", counted, 1) == [positions[0].position]


def test_a_record_that_no_partition_gets_is_not_dropped(broker: Broker) -> None:
    """Each partition has a queue of its own; what came to the client's would be in no batch."""
    topic = broker.topic()
    reading = Reading(KafkaSource(broker.servers, topic, value=SimpleStringSchema()))
    reading.ask()
    of, handle = library(), reading.reader._client.handle
    of.rd_kafka_queue_get_consumer.restype = c_void_p
    clients = of.rd_kafka_queue_get_consumer(c_void_p(handle))
    [held] = reading.reader._held
    own, held.queue = held.queue, of.rd_kafka_queue_new(handle)
    of.rd_kafka_queue_forward(own, clients)
    broker.send(topic, [b"astray"])
    with pytest.raises(ConnectorError, match="subtask 0: a Kafka record came of no partition"):
        reading.until(lambda: bool(reading.rows), 10.0)
    for queue in (own, clients):
        of.rd_kafka_queue_destroy(queue)
    reading.close()


def test_lag_is_reported(broker: Broker, counted: str) -> None:
    reading = Reading(KafkaSource(broker.servers, counted), batch_size=10)
    reading.ask()
    reading.until(lambda: len(reading.rows) >= 10)
    reading.reader._lag_at = 0
    reading.reader._serve(reading.reader._context.clock.now_ms())
    assert reading.gauges["pending_records"] == 100 - len(reading.rows)
    assert reading.gauges[f"lag.{counted}-0"] == 100 - len(reading.rows)
    reading.close()


def test_malformed_records_fail_or_go_aside(broker: Broker) -> None:
    topic = broker.topic()
    values = [b'{"n": 1}', b"broken", b'{"n": 3}', b'{"n": "four"}']
    broker.send(topic, [Sent(v, key=b"k", timestamp=10 + i) for i, v in enumerate(values)])
    form = JsonFormat(pa.schema([("n", pa.int64())]))
    with pytest.raises(ConnectorError, match=f"offset 1 of Kafka partition {topic}-0 is malformed"):
        Reading(bounded(broker, topic, value=form)).to_the_end()
    tag = OutputTag("dead")
    reading = Reading(bounded(broker, topic, value=form, include=("offset",), malformed=tag))
    rows = reading.to_the_end()
    assert [tuple(row) for row in rows] == [(1, 0), (3, 2)]
    assert [(tag, row.offset, row.key, row.value) for tag, row in reading.side] == [
        ("dead", 1, b"k", b"broken"),
        ("dead", 3, b"k", b'{"n": "four"}'),
    ]
    broken, text = (row.error for _, row in reading.side)
    assert broken == "the value is not exactly one JSON object"
    assert "Column(/n)" in text
    assert reading.counts == {"malformed_records": 2}
    skipping = Reading(bounded(broker, topic, value=form, malformed="skip"), batch_size=1)
    assert [tuple(row) for row in skipping.to_the_end()] == [(1,), (3,)]
    assert skipping.counts == {"malformed_records": 2}, "dropped, and not in silence"


def test_keys_have_a_format_too(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, [Sent(b"a", b"1"), Sent(b"b", b"\xff"), Sent(b"c", None)])
    source = bounded(
        broker,
        topic,
        value=StringFormat(),
        key=StringFormat("id"),
        include={"key": "name"},
        malformed=OutputTag("dead"),
    )
    reading = Reading(source)
    assert [tuple(row) for row in reading.to_the_end()] == [("a", "1"), ("c", None)]
    assert [row.value for _, row in reading.side] == [b"b"]


def test_the_reason_is_of_the_record_that_is_named(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, [Sent(b"a", b"1"), Sent(b"b", b"\xff"), Sent(b"\xfe", b"3")])
    source = bounded(
        broker, topic, value=StringFormat(), key=StringFormat("id"), include={"key": "name"}
    )
    with pytest.raises(ConnectorError, match=r"at offset 1 .* malformed: key: not UTF-8.* is b'b'"):
        Reading(source).to_the_end()


def test_a_topic_that_does_not_exist(broker: Broker) -> None:
    with pytest.raises(ConnectorError, match="topic 'nowhere' does not exist"):
        Reading(bounded(broker, "nowhere")).to_the_end()
    source = KafkaSource(broker.servers, partitions=[KafkaTopicPartition(broker.topic(), 5)])
    with pytest.raises(ConnectorError, match="no partitions"):
        Reading(source).ask()


def test_expired_records_are_not_passed_over_in_silence(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka import TopicPartition

    topic = broker.topic()
    broker.send(topic, [b"%d" % n for n in range(50)])
    source = KafkaSource(broker.servers, topic, value=SimpleStringSchema())
    reading = Reading(source, batch_size=10)
    reading.ask()
    reading.until(lambda: len(reading.rows) >= 10)
    _, splits = reading.state()
    enumerated = reading.enumerator.snapshot()
    reading.close()
    place = TopicPartition(topic, 0, 45)
    [done] = broker.admin().delete_records([place]).values()
    done.result(30.0)
    behind = [type(splits[0])(topic, 0, 20)]
    again = Reading(source, (enumerated, behind))
    with pytest.raises(ConnectorError, match="no longer has the records from offset 20 on"):
        again.until(lambda: len(again.rows) >= 1)
    again.close()
    told = KafkaSource(
        broker.servers,
        topic,
        value=SimpleStringSchema(),
        properties={"auto.offset.reset": "earliest"},
    )
    going_on = Reading(told, (enumerated, behind))
    with caplog.at_level(logging.WARNING):
        going_on.until(lambda: len(going_on.rows) == 5)
        going_on.reader._serve(going_on.reader._context.clock.now_ms())
    assert "source 'in', subtask 0" in caplog.text
    assert "offset reset (at offset 20" in caplog.text
    assert going_on.rows == ["45", "46", "47", "48", "49"]
    going_on.close()


@pytest.mark.parametrize("interval", [None, timedelta(hours=1)])
def test_a_topic_made_anew_after_the_checkpoint_is_not_read_from_the_old_offset(
    broker: Broker, interval: timedelta | None
) -> None:
    topic = broker.topic()
    broker.send(topic, [b"old%d" % n for n in range(5)])
    source = KafkaSource(
        broker.servers, topic, value=SimpleStringSchema(), discovery_interval=interval
    )
    reading = Reading(source)
    reading.ask()
    reading.until(lambda: len(reading.rows) == 5)
    state = reading.state()
    reading.close()
    broker.make_anew(topic)
    broker.send(topic, [b"new%d" % n for n in range(12)])
    for _ in range(2):
        again = Reading(source, state)
        with pytest.raises(ConnectorError, match=f"'{topic}' was deleted and made anew"):
            again.ask()
        again.close()
    fresh = Reading(source)
    fresh.ask()
    fresh.until(lambda: len(fresh.rows) == 12)
    fresh.close()


def test_what_is_fetched_ahead_is_bounded(broker: Broker) -> None:
    """A reader that is not polled takes no more than its budget, however much there is."""
    topic = broker.topic(4)
    for partition in range(4):
        broker.send(topic, [Sent(b"x" * 100_000, partition=partition)] * 300)
    budget = {"queued.max.messages.kbytes": 1024, "fetch.message.max.bytes": 200_000}
    reading = Reading(KafkaSource(broker.servers, topic, properties=budget), batch_size=1000)
    process = psutil.Process()
    before = process.memory_info().rss
    reading.ask()
    reading.until(lambda: len(reading.rows) > 0)
    time.sleep(1.0)
    assert process.memory_info().rss - before < 60e6, "of 120 MB that are there"
    reading.until(lambda: len(reading.rows) == 1200)
    reading.close()


def test_a_reader_that_nobody_closed_leaves_no_thread_that_calls_it(broker: Broker) -> None:
    """A partition's queue calls Python from a thread of the client, whatever became of the reader:
    the client ends with it."""
    topic = broker.topic(partitions=2)
    broker.send(topic, [Sent(b"%d" % n, partition=n % 2) for n in range(10)])
    gc.collect()
    before = client_threads()
    for _ in range(3):
        reading = Reading(KafkaSource(broker.servers, topic))
        reading.ask()
        reading.until(lambda reading=reading: len(reading.rows) == 10)
        assert client_threads() > before
        reading.enumerator.close()
        del reading
        gc.collect()
        assert client_threads() <= before


def client_threads() -> int:
    """Of librdkafka, in this process."""
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("rdk:") for name in names)
