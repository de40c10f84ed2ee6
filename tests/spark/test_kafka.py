"""Kafka through Spark's executors: a real broker, exact replay, and what goes wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from strom import StreamExecutionEnvironment
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    WriterContext,
)
from strom.connectors.spark import SparkKafkaSink, SparkKafkaSource, from_streaming_dataframe
from strom.core.batch import ColumnBatch
from strom.core.clock import SystemClock
from strom.core.errors import ConfigurationError, ConnectorError, OperatorError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("gateway"),
]

START_MS = int(time.time()) // 3600 * 3_600_000 - 3_600_000
"""An hour or two ago: a broker removes records of long ago."""
SOON = timedelta(milliseconds=50)


def produce(
    kafka: Any, topic: str, numbers: Iterable[int], partition: int = 0, **settings: Any
) -> None:
    """One record for each number: key, value, a header, and a time a second apart."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    for n in numbers:
        producer.produce(
            topic,
            value=f"v{n}",
            key=f"k{n % 3}",
            partition=partition,
            timestamp=START_MS + n * 1000,
            headers=[("n", str(n).encode())],
        )
    assert producer.flush(30) == 0


def admin(kafka: Any) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def consumed(kafka: Any, topic: str, count: int) -> list[Any]:
    """At least `count` records of the topic, and what else is there."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "check",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
        }
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.consume(1000, 0.5)
    found += consumer.consume(1000, 0.5)
    consumer.close()
    return found


class Driver:
    """One reader and its enumerator, driven as a task drives them."""

    def __init__(
        self,
        until: Callable[..., Any],
        source: SparkKafkaSource,
        saved: Any = None,
        batch_size: int = 300,
    ) -> None:
        self._until = until
        state, splits = saved if saved is not None else (None, ())
        self.enumerator = source.create_enumerator(EnumeratorContext("in", 1, "job"), state)
        self.reader = source.create_reader(ReaderContext("in", 0, 1, batch_size, SystemClock()))
        self.reader.add_splits(splits)
        self._asked = 0.0

    def next(self) -> Emit | None:
        """The next batch, None at the end of the input."""
        return self._until(self._step, "a batch")[0]

    def all(self) -> list[Emit]:
        return list(iter(self.next, None))

    def values(self, count: int) -> list[str]:
        """So many values of an endless source, and no more than these."""
        found: list[str] = []
        while len(found) < count:
            emit = self.next()
            assert emit is not None
            found += values([emit])
        return found

    def saved(self) -> Any:
        return self.enumerator.snapshot(), self.reader.snapshot()

    def _step(self) -> tuple[Emit | None] | None:
        every = self.reader.asks_every_ms
        if every is not None and time.monotonic() - self._asked > every / 1000:
            return self._ask()
        match self.reader.poll():
            case Emit() as emit:
                return (emit,)
            case NeedSplit():
                return self._ask()
        return None

    def _ask(self) -> tuple[Emit | None] | None:
        self._asked = time.monotonic()
        given = self.enumerator.next_splits(0)
        if given is None:
            return (None,) if isinstance(self.reader.poll(), NeedSplit) else None
        self.reader.add_splits(given)
        return None


def values(emits: list[Emit]) -> list[str]:
    return [v.decode() for e in emits for v in e.batch.data.column("value").to_pylist()]


def source(kafka: Any, topics: Any = (), **settings: Any) -> SparkKafkaSource:
    settings.setdefault("look_every", SOON)
    return SparkKafkaSource(kafka.bootstrap_servers, topics, **settings)


def test_a_query_over_kafka_finds_its_jars(kafka: Any, tmp_path: Any) -> None:
    """First of all here: the running Spark has none of them yet."""
    kafka.create_topic("query", partitions=2)
    produce(kafka, "query", range(20), 0)
    produce(kafka, "query", range(20, 30), 1)
    servers = kafka.bootstrap_servers

    def build(spark: Any) -> Any:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        frame = reader.option("subscribe", "query").option("startingOffsets", "earliest").load()
        return frame.selectExpr("CAST(value AS STRING) AS value", "timestamp AS at")

    env = StreamExecutionEnvironment.get_execution_environment()
    stream = from_streaming_dataframe(
        env, build, tmp_path / "spool", trigger={"availableNow": True}
    )
    found = [row.value for row in stream.execute_and_collect()]
    assert sorted(found) == sorted(f"v{n}" for n in range(30))


def test_records_come_whole_and_in_order_of_their_partitions(until: Any, kafka: Any) -> None:
    kafka.create_topic("whole", partitions=2)
    produce(kafka, "whole", range(500), 0)
    produce(kafka, "whole", range(1000, 1200), 1)
    it = source(kafka, "whole", stop="latest", records_per_range=200)
    emits = Driver(until, it).all()
    rows = pa.Table.from_batches([e.batch.data for e in emits])
    assert rows.schema.equals(it.schema)
    for partition, start, count in ((0, 0, 500), (1, 1000, 200)):
        mine = [r for r in rows.to_pylist() if r["partition"] == partition]
        assert [r["offset"] for r in mine] == list(range(count))
        assert [r["value"] for r in mine] == [f"v{start + i}".encode() for i in range(count)]
        assert [r["key"] for r in mine] == [f"k{(start + i) % 3}".encode() for i in range(count)]
    last = rows.to_pylist()[-1]
    n = int(last["value"][1:])
    assert last["topic"] == "whole"
    assert last["headers"] == [{"key": "n", "value": str(n).encode()}]
    assert last["timestamp_type"] == 0
    assert last["timestamp"] == datetime.fromtimestamp(START_MS / 1000 + n, UTC)
    for emit in emits:
        times = [START_MS + int(v[1:]) * 1000 for v in values([emit])]
        assert emit.batch.timestamps is not None
        assert emit.batch.timestamps.tolist() == times


def test_a_restore_replays_from_the_offsets_of_the_checkpoint(until: Any, kafka: Any) -> None:
    kafka.create_topic("replay", partitions=2)
    produce(kafka, "replay", range(300), 0)
    produce(kafka, "replay", range(300, 600), 1)
    it = source(kafka, "replay", stop="latest", records_per_range=70)
    first = Driver(until, it, batch_size=40)
    read = [first.next() for _ in range(5)]
    saved = first.saved()
    lost = first.next()
    assert lost is not None
    produce(kafka, "replay", range(900, 950), 0)  # behind the end, which the checkpoint holds
    rest = Driver(until, it, saved, batch_size=33).all()
    found = values([*read, *rest])  # type: ignore[list-item]
    assert sorted(found) == sorted(f"v{n}" for n in range(600))


def test_where_a_source_begins_and_stops(until: Any, kafka: Any) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka.create_topic("where", partitions=1)
    produce(kafka, "where", range(20))

    def found(**settings: Any) -> list[str]:
        return values(Driver(until, source(kafka, "where", **settings)).all())

    def numbers(start: int, stop: int) -> list[str]:
        return [f"v{n}" for n in range(start, stop)]

    at = datetime.fromtimestamp(START_MS / 1000 + 12, UTC)
    assert found(start=at, stop="latest") == numbers(12, 20)
    assert found(stop=at) == numbers(0, 12)
    assert found(start={"where": {0: 5}}, stop={"where": {0: 9}}) == numbers(5, 9)
    assert found(start={"other": {0: 5}}, otherwise="latest", stop="latest") == []
    group = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "where"})
    group.commit(offsets=[TopicPartition("where", 0, 17)], asynchronous=False)
    group.close()
    assert found(start="committed", group="where", stop="latest") == numbers(17, 20)
    assert found(start="committed", group="new", stop="latest") == numbers(0, 20)
    endless = Driver(until, source(kafka, "where", start="latest"))
    until(lambda: endless._step() is None and endless.reader.snapshot(), "the splits")
    produce(kafka, "where", range(20, 23))
    assert endless.values(3) == numbers(20, 23)


def test_the_group_sees_what_checkpoints_cover(until: Any, kafka: Any) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka.create_topic("seen")
    produce(kafka, "seen", range(30))
    driver = Driver(until, source(kafka, "seen", group="watchers"), batch_size=10)
    driver.values(20)
    splits = driver.reader.snapshot()
    driver.reader.notify_checkpoint_complete(1, splits)

    def committed() -> bool:
        driver.reader.poll()
        group = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "watchers"})
        (found,) = group.committed([TopicPartition("seen", 0)], timeout=10)
        group.close()
        return bool(found.offset == 20)

    until(committed, "the committed offset")


def test_new_partitions_and_topics_are_found(until: Any, kafka: Any) -> None:
    from confluent_kafka.admin import NewPartitions

    kafka.create_topic("grow-a")
    produce(kafka, "grow-a", range(5))
    it = source(kafka, pattern="grow-.*", discover=timedelta(milliseconds=200), start="latest")
    driver = Driver(until, it)
    until(lambda: driver._step() is None and driver.reader.snapshot(), "the splits")
    client = admin(kafka)
    (grown,) = client.create_partitions([NewPartitions("grow-a", 2)]).values()
    grown.result(30)
    kafka.create_topic("grow-b")
    produce(kafka, "grow-b", range(10, 13))
    # From its beginning, though the source began at the end.
    produce(kafka, "grow-a", range(20, 23), 1)
    assert sorted(driver.values(6)) == sorted(f"v{n}" for n in (10, 11, 12, 20, 21, 22))
    known, left = driver.saved()[0].known, driver.saved()[0].left
    assert known == {("grow-a", 0), ("grow-a", 1), ("grow-b", 0)}
    assert left == ()


def test_records_of_aborted_transactions_are_no_records(until: Any, kafka: Any) -> None:
    from confluent_kafka import Producer

    kafka.create_topic("odd")
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "odd-writer"}
    )
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        for i in range(10):
            producer.produce("odd", f"v{n * 10 + i}", timestamp=START_MS)
        if n % 2:
            producer.flush()
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    it = source(kafka, "odd", stop="latest", records_per_range=7)
    expected = [f"v{n * 10 + i}" for n in (0, 2, 4) for i in range(10)]
    assert values(Driver(until, it).all()) == expected
    every = source(kafka, "odd", stop="latest", settings={"isolation.level": "read_uncommitted"})
    assert len(values(Driver(until, every).all())) == 60


def test_executors_evaluate_expressions(until: Any, kafka: Any) -> None:
    kafka.create_topic("json")
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for n in range(3):
        producer.produce("json", json.dumps({"id": n, "price": n / 2}))
    producer.flush()
    schema = pa.schema({"id": pa.int64(), "price": pa.float64()})
    parsed = "from_json(CAST(value AS STRING), 'id BIGINT, price DOUBLE')"
    select = [f"{parsed}.id AS id", f"{parsed}.price AS price"]
    it = source(kafka, "json", stop="latest", select=select, schema=schema)
    rows = pa.Table.from_batches([e.batch.data for e in Driver(until, it).all()])
    assert rows.to_pylist() == [{"id": n, "price": n / 2} for n in range(3)]
    wrong = source(kafka, "json", stop="latest", select=["offset"], schema=schema)
    with pytest.raises(ConnectorError, match=r"`select` makes the columns \['offset'\]"):
        Driver(until, wrong).all()


def test_records_that_expired_below_the_position_are_an_error(until: Any, kafka: Any) -> None:
    from confluent_kafka import TopicPartition

    kafka.create_topic("expired")
    produce(kafka, "expired", range(20))
    it = source(kafka, "expired")
    driver = Driver(until, it, batch_size=5)
    driver.values(5)
    saved = driver.saved()
    client = admin(kafka)
    (gone,) = client.delete_records([TopicPartition("expired", 0, 12)]).values()
    gone.result(30)
    text = (
        r"operator 'in', subtask 0: topic 'expired', partition 0: .* offset 5, "
        "and the log begins at 12: 7 records expired"
    )
    with pytest.raises(ConnectorError, match=text):
        Driver(until, it, saved).next()
    on = Driver(until, source(kafka, "expired", expired="skip"), saved)
    assert on.values(8) == [f"v{n}" for n in range(12, 20)]
    begun = Driver(until, source(kafka, "expired", stop="latest"))
    assert values(begun.all()) == [f"v{n}" for n in range(12, 20)]


def test_records_that_expire_ahead_of_the_reader_are_an_error(until: Any, kafka: Any) -> None:
    from confluent_kafka import TopicPartition

    kafka.create_topic("expires")
    produce(kafka, "expires", range(30))
    driver = Driver(until, source(kafka, "expires", records_per_range=3), batch_size=2)
    driver.values(2)
    client = admin(kafka)
    (gone,) = client.delete_records([TopicPartition("expires", 0, 27)]).values()
    gone.result(30)
    with pytest.raises(ConnectorError, match=r"operator 'in'.*the log begins at 27: \d+ records"):
        driver.values(30)


def test_a_topic_that_is_not_there_or_goes_away_is_named(until: Any, kafka: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"operator 'in'.*there is no topic 'nix'"):
        Driver(until, source(kafka, "nix")).next()
    kafka.create_topic("going")
    produce(kafka, "going", range(3))
    driver = Driver(until, source(kafka, "going"))
    driver.values(3)
    client = admin(kafka)
    (gone,) = client.delete_topics(["going"]).values()
    gone.result(30)
    with pytest.raises(ConnectorError, match="operator 'in', subtask 0: going-0 is gone"):
        driver.next()


def writer(sink: SparkKafkaSink) -> Any:
    context = WriterContext(
        "out", "op-1", "job", 0, 1, 0, SystemClock(), lambda key, value: None, True
    )
    return sink.create_writer(context)


def test_the_sink_has_produced_all_when_a_checkpoint_completes(kafka: Any) -> None:
    kafka.create_topic("out", partitions=2)
    it = writer(SparkKafkaSink(kafka.bootstrap_servers, "out", key="word", block_bytes=500))
    for start in range(0, 300, 50):
        ids = list(range(start, start + 50))
        it.write(ColumnBatch(pa.record_batch({"id": ids, "word": [f"w{i % 5}" for i in ids]})))
    prepared = it.prepare_commit(1)
    assert list(prepared()) == []
    found = consumed(kafka, "out", 300)
    rows = sorted((json.loads(m.value())["id"], m.key().decode()) for m in found)
    assert rows == [(i, f"w{i % 5}") for i in range(300)]
    assert list(it.prepare_commit(2)) == []
    it.close()


def test_records_say_their_topic_and_headers(kafka: Any) -> None:
    kafka.create_topic("one")
    kafka.create_topic("two")
    it = writer(SparkKafkaSink(kafka.bootstrap_servers))
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    headers = pa.array([[{"key": "h", "value": b"1"}], None], kind)
    rows = pa.record_batch(
        {"value": [b"a", b"b"], "topic": ["one", "two"], "key": [None, b"k"], "headers": headers}
    )
    # As of records that were read from elsewhere.
    rows = rows.append_column("partition", pa.array([7, 7], pa.int32()))
    it.write(ColumnBatch(rows))
    it.prepare_commit(1)()
    (one,) = consumed(kafka, "one", 1)
    (two,) = consumed(kafka, "two", 1)
    assert (one.value(), one.key(), one.headers()) == (b"a", None, [("h", b"1")])
    assert (two.value(), two.key(), two.headers()) == (b"b", b"k", None)
    it = writer(SparkKafkaSink(kafka.bootstrap_servers))
    it.write(ColumnBatch(rows.select(["value"])))
    with pytest.raises(OperatorError, match="no topic, and the stream no column 'topic'"):
        it.prepare_commit(1)


def test_from_kafka_to_kafka_on_ray(kafka: Any, tmp_path: Any) -> None:
    kafka.create_topic("words", partitions=2)
    kafka.create_topic("counts")
    for partition in (0, 1):
        produce(kafka, "words", range(400), partition)
    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.set_parallelism(2)
    env.enable_checkpointing(timedelta(milliseconds=300), storage=str(tmp_path))
    words = env.from_source(source(kafka, "words", stop="latest"), source_name="words")
    counts = words.map(lambda r: (r.key.decode(), 1)).key_by(lambda pair: pair[0]).sum(1)
    column = pa.schema([("value", pa.string())])
    lines = counts.map(lambda pair: (f"{pair[0]}:{pair[1]}",), output_type=column)
    lines.sink_to(SparkKafkaSink(kafka.bootstrap_servers, "counts"))
    assert "at least once" in env.explain()
    env.execute("counts")
    found = [m.value().decode() for m in consumed(kafka, "counts", 800)]
    most: dict[str, int] = {}
    for word, n in (line.split(":") for line in found):
        most[word] = max(most.get(word, 0), int(n))
    assert most == {"k0": 268, "k1": 266, "k2": 266}
    assert len(found) == 800


@pytest.mark.soak
def test_a_broker_that_dies_and_comes_back_is_waited_for(until: Any, kafka: Any) -> None:
    kafka.create_topic("patience")
    produce(kafka, "patience", range(10))
    driver = Driver(until, source(kafka, "patience", records_per_range=4))
    driver.values(10)
    broker = kafka.brokers[0]
    broker.kill()
    for _ in range(20):
        assert not isinstance(driver.reader.poll(), Emit)
        time.sleep(0.05)
    broker.start()
    broker.wait()
    until(lambda: admin(kafka).list_topics("patience", timeout=5).topics, "the broker")
    produce(kafka, "patience", range(10, 14))
    assert driver.values(4) == [f"v{n}" for n in range(10, 14)]
