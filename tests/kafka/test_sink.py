"""Records in columns into a real Kafka: where they arrive, and what is said if they do not."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import pyarrow as pa
import pytest
from kafka_sink_kit import (
    Got,
    SinkBroker,
    context,
    eventually,
    prepare,
    put,
    put_columns,
    read,
    values,
)
from strom import JobConfig, StreamExecutionEnvironment
from strom.connectors.kafka import JsonEncoder, KafkaSink, producer
from strom.connectors.kafka.librdkafka import Failure
from strom.connectors.kafka.record_maker import make_records
from strom.core.batch import ObjectBatch
from strom.core.errors import ConnectorError

pytestmark = pytest.mark.kafka


@pytest.fixture
def open_writer(request: pytest.FixtureRequest) -> Any:
    """Makes writers that are closed behind the test."""

    def make(sink: KafkaSink, **given: Any) -> Any:
        writer = sink.create_writer(context(**given))
        request.addfinalizer(writer.close)
        return writer

    return make


def test_keys_values_headers_timestamps_arrive(broker: SinkBroker, open_writer: Any) -> None:
    topic = broker.topic(3, retention_ms=-1)
    sink = KafkaSink(
        broker.servers,
        topic,
        value="v",
        key="k",
        headers={"from": "h"},
        partition="p",
        event_times=True,
    )
    writer = open_writer(sink)
    now = 1_900_000_000_000
    data = pa.record_batch(
        {
            "v": pa.array([b"1", None, b""], pa.binary()),
            "k": ["a", None, ""],
            "h": [None, "there", ""],
            "p": [2, 0, 2],
        }
    )
    put_columns(writer, data, [now - 2_000_000_000_00, 5, 1])
    prepare(writer)
    found = {(g.partition, g.value): g for g in read(broker.servers, topic)}
    assert found[2, b"1"] == Got(b"a", b"1", 2, (), now - 2_000_000_000_00)
    assert found[0, None] == Got(None, None, 0, (("from", b"there"),), 5)
    assert found[2, b""] == Got(b"", b"", 2, (("from", b""),), 1)
    assert len(found) == 3


def test_keys_go_where_javas_clients_send_them(broker: SinkBroker, open_writer: Any) -> None:
    from kafka.partitioner.default import murmur2

    topic = broker.topic(5)
    writer = open_writer(KafkaSink(broker.servers, topic, value="v", key="k"))
    keys = [f"key-{i}" for i in range(50)]
    put_columns(writer, pa.record_batch({"v": keys, "k": keys}))
    prepare(writer)
    found = {g.key: g.partition for g in read(broker.servers, topic)}
    assert found == {k.encode(): (murmur2(k.encode()) & 0x7FFFFFFF) % 5 for k in keys}


def test_records_without_keys_are_spread(broker: SinkBroker, open_writer: Any) -> None:
    topic = broker.topic(3)
    spread = {"sticky.partitioning.linger.ms": "0"}
    writer = open_writer(KafkaSink(broker.servers, topic, properties=spread))
    put(writer, *[str(i) for i in range(200)])
    prepare(writer)
    found = read(broker.servers, topic)
    assert {g.partition for g in found} == {0, 1, 2}
    assert sorted(int(g.value or b"") for g in found) == list(range(200))


def test_each_record_to_its_own_topic(broker: SinkBroker, open_writer: Any) -> None:
    one, two = broker.topic(), broker.topic()
    sink = KafkaSink(broker.servers, topic_column="t", value=JsonEncoder(["v"]))
    writer = open_writer(sink)
    put_columns(writer, pa.record_batch({"v": [1, 2, 3], "t": [one, two, one]}))
    prepare(writer)
    assert values(broker.servers, one) == [b'{"v":1}', b'{"v":3}']
    assert values(broker.servers, two) == [b'{"v":2}']


def test_a_full_queue_holds_the_stream_and_loses_nothing(
    broker: SinkBroker, open_writer: Any
) -> None:
    topic = broker.topic()
    small = {"queue.buffering.max.messages": "7"}
    writer = open_writer(KafkaSink(broker.servers, topic, properties=small))
    steps = sum(1 for _ in writer.write(ObjectBatch([str(i) for i in range(100)])))
    assert steps > 5, "the task hears its mail in between"
    prepare(writer)
    assert values(broker.servers, topic) == [str(i).encode() for i in range(100)]


def test_a_queue_that_empties_while_it_is_asked_is_no_error(
    open_writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(error: int) -> None:
        raise Failure(-184, "Local: Queue full", False, True, False)

    monkeypatch.setattr(producer, "check", full)
    writer = open_writer(KafkaSink("127.0.0.1:9", "t"))
    records = make_records(writer._format, ObjectBatch([b"x"]))
    monkeypatch.setattr(writer._producer, "unheard", lambda: 0)
    writer._producer._take(1, records, 0)


def test_a_record_given_up_on_fails_a_stream_that_writes_no_more(open_writer: Any) -> None:
    short = {"delivery.timeout.ms": "200", "linger.ms": "0"}
    writer = open_writer(KafkaSink("127.0.0.1:9", "t", properties=short))
    put(writer, "a")

    def failed() -> str:
        try:
            writer.tend()
        except ConnectorError as error:
            return str(error)
        return ""

    assert "1 record could not be written to Kafka topic 't'" in eventually(failed)


def test_without_a_guarantee_records_are_not_left_behind_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("strom.connectors.kafka.writer.DRAIN_S", 0.05)
    writer = KafkaSink("127.0.0.1:9", "t", delivery="none").create_writer(context())
    put(writer, "a", "b")
    with caplog.at_level(logging.WARNING):
        writer.close()
    assert re.search("up to ([2-9]|[0-9]{2,}) records are not acknowledged", caplog.text)


def test_a_barrier_waits_for_what_is_before_it_and_order_stays(
    broker: SinkBroker, open_writer: Any
) -> None:
    topic = broker.topic()
    writer = open_writer(KafkaSink(broker.servers, topic, properties={"linger.ms": "300"}))
    for n in range(5):
        put(writer, *[f"{n}-{i}" for i in range(20)])
        late = writer.prepare_commit(n)
        thread = threading.Thread(target=late)
        thread.start()
        put(writer, f"{n}-behind")
        thread.join()
        seen = values(broker.servers, topic)
        assert f"{n}-19".encode() in seen, "acknowledged before the checkpoint is"
    prepare(writer, 9)
    expected = [f"{n}-{i}".encode() for n in range(5) for i in [*range(20), "behind"]]
    assert values(broker.servers, topic) == expected


def test_what_is_too_large_is_said(broker: SinkBroker, open_writer: Any) -> None:
    topic = broker.topic(max_message_bytes=2_000)
    tight = open_writer(KafkaSink(broker.servers, topic, properties={"message.max.bytes": "1500"}))
    with pytest.raises(ConnectorError, match=rf"of 1600 bytes .* '{topic}': .*message\.max\.bytes"):
        put(tight, "x" * 1_600)
    loose = open_writer(KafkaSink(broker.servers, topic))
    put(loose, "x" * 3_000)
    with pytest.raises(ConnectorError, match=rf"'{topic}': it is larger than the topic allows"):
        prepare(loose)
    with pytest.raises(ConnectorError, match="larger than the topic"):
        put(loose, "small")
    queue = {"queue.buffering.max.kbytes": "1", "message.max.bytes": "100000"}
    short = open_writer(KafkaSink(broker.servers, topic, properties=queue))
    with pytest.raises(ConnectorError, match=r"larger than the queue; raise queue\.buffering"):
        put(short, "x" * 3_000)


def test_topics_and_partitions_that_do_not_exist_are_named(
    broker: SinkBroker, open_writer: Any
) -> None:
    quick = {"topic.metadata.propagation.max.ms": "500"}
    writer = open_writer(KafkaSink(broker.servers, "no-such-topic", properties=quick))
    put(writer, "a", "b")
    with pytest.raises(ConnectorError, match=r"2 records .* 'no-such-topic': it does not exist"):
        prepare(writer)
    topic = broker.topic(2)
    other = open_writer(KafkaSink(broker.servers, topic, value="v", partition="p"))
    put_columns(other, pa.record_batch({"v": ["a"], "p": [1]}))
    prepare(other)
    with pytest.raises(ConnectorError, match=f"to partition 7 of topic '{topic}': the topic has"):
        put_columns(other, pa.record_batch({"v": ["a"], "p": [7]}))


def test_a_topic_that_is_deleted_is_named(broker: SinkBroker, open_writer: Any) -> None:
    from confluent_kafka.admin import AdminClient

    topic = broker.topic()
    quick = {"topic.metadata.propagation.max.ms": "500"}
    writer = open_writer(KafkaSink(broker.servers, topic, properties=quick))
    put(writer, "a")
    prepare(writer)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    admin.delete_topics([topic])[topic].result(30)
    put(writer, "b")
    with pytest.raises(ConnectorError, match=f"'{topic}': .*(does not exist|was deleted)"):
        prepare(writer)


def test_a_cluster_that_does_not_answer_is_said(open_writer: Any) -> None:
    quick = {"delivery.timeout.ms": "1500"}
    writer = open_writer(KafkaSink("127.0.0.1:9", "anything", properties=quick))
    put(writer, "a")
    with pytest.raises(
        ConnectorError,
        match=r"'anything': .*delivery\.timeout\.ms=1500 \(the last trouble: .*efused",
    ):
        prepare(writer)


def test_without_a_guarantee_the_end_still_waits(broker: SinkBroker) -> None:
    topic = broker.topic()
    writer = KafkaSink(broker.servers, topic, delivery="none").create_writer(context())
    put(writer, "a", "b")
    assert prepare(writer) == []
    writer.close()
    assert values(broker.servers, topic) == [b"a", b"b"]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_whole_job(broker: SinkBroker, delivery: Any) -> None:
    topic = broker.topic(4)
    env = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    table = pa.table({"k": [f"k{i % 7}" for i in range(5_000)], "n": list(range(5_000))})
    prefix = f"job-{topic}" if delivery == "exactly-once" else None
    env.from_collection(table).sink_to(
        KafkaSink(
            broker.servers,
            topic,
            value=JsonEncoder(["n"]),
            key="k",
            delivery=delivery,
            transactional_id_prefix=prefix,
        )
    )
    env.execute("to Kafka")
    found = read(broker.servers, topic)
    assert sorted(g.value or b"" for g in found) == sorted(
        f'{{"n":{i}}}'.encode() for i in range(5_000)
    )
    assert len({(g.key, g.partition) for g in found}) == 7
