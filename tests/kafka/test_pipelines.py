"""Whole jobs that read a real broker: exactly once through crashes, restarts and a broker's end."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import strom
from chaos_kit import config, environment, failure, gather, until, within
from kafka_kit import Broker, Sent
from strom import (
    FixedDelayRestart,
    JobFailedError,
    KeyedProcessFunction,
    NoRestart,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
)
from strom.connectors.kafka import (
    JsonFormat,
    JsonRowDeserializationSchema,
    KafkaOffsetsInitializer,
    KafkaSource,
    SimpleStringSchema,
    StringFormat,
)

pytestmark = pytest.mark.kafka

LATEST = KafkaOffsetsInitializer.latest()


def numbers(broker: Broker, count: int, partitions: int = 3) -> str:
    topic = broker.topic(partitions)
    broker.send(
        topic,
        [
            Sent(b'{"n": %d}' % n, partition=n % partitions, timestamp=1000 + n)
            for n in range(count)
        ],
    )
    return topic


def test_a_pyflink_program(broker: Broker) -> None:
    """As PyFlink's documentation writes it, but for the imports."""
    topic = broker.topic(2)
    broker.send(topic, [Sent(b"word-%d" % (n % 3), partition=n % 2) for n in range(30)])
    env = environment(config())
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(broker.servers)
        .set_topics(topic)
        .set_group_id("my-group")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .set_property("partition.discovery.interval.ms", "10000")
        .build()
    )
    words = env.from_source(source, WatermarkStrategy.no_watermarks(), "Kafka Source")
    assert Counter(gather(words)) == {f"word-{n}": 10 for n in range(3)}


def test_json_rows(broker: Broker) -> None:
    topic = numbers(broker, 100)
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = JsonRowDeserializationSchema.builder().type_info(row).build()
    source = KafkaSource(broker.servers, topic, value=schema, stop=LATEST)
    env = environment(config())
    read = env.from_source(source).map(lambda row: row.n)
    assert sorted(gather(read)) == list(range(100))


def test_skipped_records_are_counted_among_the_metrics(broker: Broker) -> None:
    topic = broker.topic()
    broker.send(topic, [b'{"n": 1}', b"broken", b'{"n": "text"}', b'{"n": 2}'])
    row = Types.ROW_NAMED(["n"], [Types.LONG()])
    schema = JsonRowDeserializationSchema.builder().type_info(row).ignore_parse_errors().build()
    source = KafkaSource(broker.servers, topic, value=schema)
    env = environment(config())
    with env.from_source(source).map(lambda row: row.n).execute_and_collect("read") as results:
        assert within(30.0, "the good ones", lambda: list(islice(results, 2))) == [1, 2]

        def skipped() -> int:
            every = results.client.metrics()["operators"]
            return sum(one["counters"].get("malformed_records", 0) for one in every)

        until(lambda: skipped() == 2, "the others are counted")


@pytest.mark.parametrize("when", [50, 400, 950])
def test_exactly_once_through_a_crash(broker: Broker, tmp_path: Path, when: int) -> None:
    topic = numbers(broker, 1000)
    source = KafkaSource(
        broker.servers, topic, value=JsonFormat(pa.schema([("n", pa.int64())])), stop=LATEST
    )
    marker = tmp_path / "crashed"

    def through(row: Any) -> int:
        time.sleep(0.0005)
        if row.n == when and not marker.exists():
            marker.touch()
            raise ValueError("once")
        return int(row.n)

    env = environment(config(tmp_path / "checkpoints", interval_ms=20, parallelism=2))
    read = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps())
    assert sorted(gather(read.map(through), 60.0)) == list(range(1000))
    assert marker.exists()


def test_event_time_of_each_partition(broker: Broker) -> None:
    """A partition far ahead of the others makes none of their records late."""
    topic = broker.topic(3)
    hour = 3_600_000
    for partition in range(3):
        stamps = range(partition * hour, partition * hour + 1000, 10)
        broker.send(topic, [Sent(b"x", partition=partition, timestamp=1 + t) for t in stamps])
    source = KafkaSource(
        broker.servers, topic, value=StringFormat(), stop=LATEST, include=("partition",)
    )
    env = environment(config(parallelism=1))
    windows = (
        env.from_source(source, WatermarkStrategy.for_monotonous_timestamps())
        .key_by("partition")
        .window(TumblingEventTimeWindows.of(timedelta(milliseconds=100)))
        .aggregate(n=count())
    )
    assert sum(row.n for row in gather(windows)) == 300


def test_a_broker_that_restarts(own_broker: Callable[..., Broker], tmp_path: Path) -> None:
    """The source waits for it, and goes on where it was; nothing is lost or doubled."""
    broker = own_broker()
    topic = broker.topic(2)
    broker.send(topic, [Sent(b"%d" % n, partition=n % 2) for n in range(100)])
    source = KafkaSource(broker.servers, topic, value=SimpleStringSchema())
    env = environment(config(tmp_path, interval_ms=50, restart=NoRestart()))
    with env.from_source(source).execute_and_collect("reading") as results:
        found = within(30.0, "the first records", lambda: list(islice(results, 100)))
        [node] = broker.cluster.brokers
        node.kill()
        time.sleep(1.0)
        node.start()
        node.wait()
        broker.send(topic, [Sent(b"%d" % n, partition=n % 2) for n in range(100, 200)])
        found += within(60.0, "the others", lambda: list(islice(results, 100)))
    assert sorted(map(int, found)) == list(range(200))


def test_a_topic_that_is_deleted_fails_the_job(broker: Broker) -> None:
    topic = numbers(broker, 10)
    quick = {"topic.metadata.refresh.interval.ms": 300, "topic.metadata.propagation.max.ms": 500}
    source = KafkaSource(broker.servers, topic, value=SimpleStringSchema(), properties=quick)
    env = environment(config(restart=NoRestart()))
    with env.from_source(source).execute_and_collect("reading") as results:
        within(30.0, "the records", lambda: list(islice(results, 10)))
        broker.admin().delete_topics([topic])[topic].result(30.0)
        with pytest.raises(JobFailedError, match="was the topic deleted"):
            within(60.0, "the failure", lambda: next(results))


def test_a_topic_that_is_made_anew_fails_the_job_for_good(broker: Broker, tmp_path: Path) -> None:
    """Under the running job, with its offset in the new topic again at once: no restart goes on."""
    topic = broker.topic()
    broker.send(topic, [b"old%d" % n for n in range(5)])
    source = KafkaSource(
        broker.servers,
        topic,
        value=SimpleStringSchema(),
        discovery_interval=timedelta(milliseconds=200),
    )
    settings = config(
        tmp_path / "checkpoints",
        interval_ms=50,
        parallelism=1,
        restart=FixedDelayRestart(3, timedelta(milliseconds=50)),
    )
    with environment(settings).from_source(source).execute_and_collect("read") as results:
        old = within(30.0, "the old ones", lambda: list(islice(results, 5)))
        assert old == [f"old{n}" for n in range(5)]
        checkpoints = lambda: results.client.metrics()["checkpoints"]["completed"]
        before = checkpoints()
        until(lambda: checkpoints() > before + 1, "a checkpoint behind them")
        broker.make_anew(topic)
        broker.send(topic, [b"new%d" % n for n in range(12)])
        with pytest.raises(JobFailedError, match=f"'{topic}' was deleted and made anew"):
            within(60.0, "the end", lambda: list(results))


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strom.connectors.kafka.cluster.TIMEOUT_S", 2.0)
    source = KafkaSource("127.0.0.1:1", "topic")
    said = failure(environment(config(restart=NoRestart())).from_source(source), 60.0)
    assert "cannot list topics at the Kafka cluster '127.0.0.1:1'" in said


@pytest.mark.soak
def test_a_leader_that_goes_and_one_that_hangs(own_broker: Callable[..., Broker]) -> None:
    """Its replica leads, and the source reads on from there; a follower's pause goes unseen."""
    broker = own_broker(brokers=2)
    topic = broker.topic(4, replicas=2)
    broker.send(topic, [Sent(b"%d" % n, partition=n % 4) for n in range(100)])
    source = KafkaSource(broker.servers, topic, value=SimpleStringSchema())
    env = environment(config(restart=NoRestart()))
    with env.from_source(source).execute_and_collect("reading") as results:
        found = within(30.0, "the first records", lambda: list(islice(results, 100)))
        second = broker.cluster.brokers[1]
        second.kill()
        broker.send(topic, [Sent(b"%d" % n, partition=n % 4) for n in range(100, 200)])
        found += within(60.0, "from the other leader", lambda: list(islice(results, 100)))
        second.start()
        second.wait()
        broker.send(topic, [Sent(b"%d" % n, partition=n % 4) for n in range(200, 300)])
        found += within(60.0, "after its return", lambda: list(islice(results, 100)))
    assert sorted(map(int, found)) == list(range(300))


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_exactly_once_through_the_death_of_a_task(broker: Broker, tmp_path: Path) -> None:
    """A task actor on Ray is killed while it reads: no record is lost, none counts twice."""
    topic = numbers(broker, 3000, partitions=4)
    source = KafkaSource(
        broker.servers,
        topic,
        value=JsonFormat(pa.schema([("n", pa.int64())])),
        stop=LATEST,
        group_id="ray-readers",
    )

    def slowly(row: Any) -> int:
        time.sleep(0.002)
        return int(row.n)

    env = environment(config(tmp_path, interval_ms=200), "ray")
    with env.from_source(source).map(slowly).execute_and_collect("reading") as results:
        found = within(120.0, "some records", lambda: list(islice(results, 300)))
        [pid, *_] = {task["pid"] for task in results.client.metrics()["tasks"]}
        os.kill(pid, signal.SIGKILL)
        found += within(120.0, "the others", lambda: list(results))
    assert sorted(found) == list(range(3000))
    # Of a partition that was read to its end, the last commit may have died with its reader.
    committed = broker.committed("ray-readers", topic, 4)
    assert max(committed) == 750


class Counting(KeyedProcessFunction):
    """(partition, how many, last number) of each partition: state shows doubles and gaps."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield value.partition, count, value.n


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rescaled_from_a_checkpoint_while_the_topic_grew(
    broker: Broker, tmp_path: Path, parallelism: int
) -> None:
    """Two subtasks stop midway; one or three go on from the checkpoint, and two more partitions."""
    from confluent_kafka.admin import NewPartitions

    topic = numbers(broker, 2000, partitions=4)
    form = JsonFormat(pa.schema([("n", pa.int64())]))
    bounds = {"start": KafkaOffsetsInitializer.earliest(), "stop": None}

    def counted(settings: Any) -> Any:
        source = KafkaSource(
            broker.servers,
            topic,
            value=form,
            include=("partition",),
            discovery_interval=timedelta(milliseconds=100),
            **bounds,
        )
        env = environment(settings)
        read = env.from_source(source, source_name="read").uid("read")
        slow = read.map(_slowly, output_type=_ROW).uid("slow")
        return slow.key_by("partition").process(Counting()).uid("count")

    first = config(tmp_path / "one", interval_ms=20, parallelism=2, batch_size=50)
    with counted(first).execute_and_collect("first") as results:
        within(30.0, "some records", lambda: list(islice(results, 600)))
        until(lambda: results.client.metrics()["checkpoints"]["completed"] > 3, "checkpoints")
    kept = max((tmp_path / "one").glob("*/chk-*"), key=lambda path: int(path.name[4:]))
    broker.admin().create_partitions([NewPartitions(topic, 6)])[topic].result(30.0)
    more = [Sent(b'{"n": %d}' % n, partition=4 + n % 2) for n in range(2000, 2200)]
    broker.send(topic, more)
    second = config(
        tmp_path / "two", interval_ms=20, parallelism=parallelism, restore_from=str(kept)
    )
    # Of a partition that was read to its end nothing more comes.
    seen = strom.state.open(str(kept)).table("count", "seen").to_pylist()
    last: dict[int, int] = {row["key"]: row["value"] for row in seen}
    with counted(second).execute_and_collect("second") as results:

        def all_read() -> bool:
            for partition, count, number in results:
                last[partition] = count
                assert number == (count - 1) * (4 if partition < 4 else 2) + (
                    partition if partition < 4 else 1996 + partition
                ), "each record once, in order"
                if sum(last.values()) == 2200:
                    return True
            return False

        assert within(60.0, "all records", all_read)
    assert last == {0: 500, 1: 500, 2: 500, 3: 500, 4: 100, 5: 100}


_ROW = pa.schema([("n", pa.int64()), ("partition", pa.int32())])


def _slowly(row: Any) -> Any:
    time.sleep(0.0003)
    return row
