"""Exactly once into a real Kafka: a reader of committed records finds each once, whatever dies and
whenever. Writers are driven without an engine, so that they die between any two calls."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from kafka_sink_kit import (
    SinkBroker,
    context,
    eventually,
    exactly_once,
    prepare,
    put,
    values,
)
from strom.connectors.kafka.settings import KafkaProperties
from strom.connectors.kafka.transaction_admin import KafkaTransactions
from strom.connectors.kafka.transactions import OPEN_STATES
from strom.core.errors import ConfigurationError, ConnectorError

pytestmark = pytest.mark.kafka

NUMBERS = itertools.count()


class Attempts:
    """Writers of one sink over attempts. Those left behind are closed at the test's end only."""

    def __init__(self, broker: SinkBroker, topic: str, **more: Any) -> None:
        self.prefix = f"test-{next(NUMBERS)}"
        self.topic = topic
        self.servers = broker.servers
        self.sink = exactly_once(broker.servers, topic, self.prefix, **more)
        self.attempt = -1
        self.every: list[Any] = []
        self.writers: list[Any] = []

    def start(self, parallelism: int = 1, restored: list[Any] | None = None) -> list[Any]:
        """A new attempt; the committables are dealt out in turn."""
        self.attempt += 1
        self.writers = [
            self.sink.create_writer(context(s, parallelism, self.attempt))
            for s in range(parallelism)
        ]
        self.every += self.writers
        if self.attempt > 0:
            for subtask, writer in enumerate(self.writers):
                writer.recover((restored or [])[subtask::parallelism])
        return self.writers

    def seen(self, isolation: str = "read_committed") -> list[str]:
        return sorted((v or b"").decode() for v in values(self.servers, self.topic, isolation))

    def open(self) -> list[str]:
        """Transactions of this sink that the cluster has open."""
        with KafkaTransactions(
            KafkaProperties({"bootstrap.servers": self.servers}), 60_000
        ) as cluster:
            return [one for one in cluster.list(["Ongoing"]) if one.startswith(self.prefix)]

    def close(self) -> None:
        for writer in self.every:
            writer.close()


@pytest.fixture
def attempts(broker: SinkBroker) -> Iterator[Attempts]:
    made = Attempts(broker, broker.topic(2))
    yield made
    made.close()


def test_records_are_seen_when_their_checkpoint_is_complete(attempts: Attempts) -> None:
    [writer] = attempts.start()
    for n in range(3):
        put(writer, f"{n}-a", f"{n}-b")
        made = prepare(writer, n)
        assert attempts.seen() == [f"{i}-{x}" for i in range(n) for x in "ab"]
        writer.commit(made)
        assert len(attempts.seen()) == 2 * n + 2
    assert attempts.open() == []


def test_order_stays_from_one_transaction_to_the_next(broker: SinkBroker) -> None:
    slow = {"linger.ms": "200"}
    attempts = Attempts(broker, broker.topic(), properties=slow)
    [writer] = attempts.start()
    late: list[Any] = []
    for n in range(4):
        put(writer, *[f"{n}-{i}" for i in range(30)])
        late.append(writer.prepare_commit(n))
    for make in late:
        writer.commit(make())
    expected = [f"{n}-{i}".encode() for n in range(4) for i in range(30)]
    assert values(broker.servers, attempts.topic) == expected
    attempts.close()


def test_checkpoints_leave_no_threads_and_no_connections(attempts: Attempts) -> None:
    process = psutil.Process()
    [writer] = attempts.start()
    figures = []
    for n in range(20):
        put(writer, "a")
        writer.commit(prepare(writer, n))
        figures.append((process.num_threads(), process.num_fds()))
    assert max(t for t, _ in figures[12:]) <= max(t for t, _ in figures[:8]) + 6
    assert max(f for _, f in figures[12:]) <= max(f for _, f in figures[:8]) + 12


def test_what_an_idle_producer_says_does_not_pile_up(attempts: Attempts) -> None:
    [writer] = attempts.start()
    eventually(lambda: writer._spare.wait(0.1))
    spare = writer._spare.result()
    eventually(lambda: spare.unheard() > 8)
    assert prepare(writer) == []
    assert spare.unheard() <= 4
    eventually(lambda: spare.unheard() > 8)
    writer.tend()
    assert spare.unheard() <= 4


def test_what_the_others_say_is_heard_while_one_is_written_to(attempts: Attempts) -> None:
    #  a |1 (prepared) b, and the spare: each says something five times a second
    [writer] = attempts.start()
    put(writer, "a")
    prepared = writer._current
    made = prepare(writer)
    put(writer, "b")
    current = writer._current
    eventually(lambda: writer._spare.wait(0.1))
    every = [prepared, current, writer._spare.result()]
    eventually(lambda: min(one.unheard() for one in every) > 8)
    put(writer, "c")
    assert max(one.unheard() for one in every if one is not current) <= 4
    eventually(lambda: current.unheard() > 8)
    writer.tend()
    assert current.unheard() <= 4
    writer.commit(made)
    assert attempts.seen() == ["a"]


def test_a_committable_says_what_the_cluster_says(attempts: Attempts) -> None:
    [writer] = attempts.start()
    put(writer, "a")
    [made] = prepare(writer)
    properties = KafkaProperties({"bootstrap.servers": attempts.servers})
    with KafkaTransactions(properties, 60_000) as cluster:
        found = cluster.describe([made.transactional_id, "nobody"])
        assert set(found) == {made.transactional_id}
        one = found[made.transactional_id]
        assert (one.producer_id, one.epoch, one.state) == (
            made.producer_id,
            made.epoch,
            "Ongoing",
        )
        assert made.transactional_id in list(cluster.list(OPEN_STATES))
    assert made.records == 1


def test_a_task_dies_before_the_barrier(attempts: Attempts) -> None:
    [writer] = attempts.start()
    put(writer, "a", "b")
    eventually(lambda: attempts.seen("read_uncommitted") == ["a", "b"])
    [again] = attempts.start()
    put(again, "a", "b")
    again.commit(prepare(again))
    assert attempts.seen("read_uncommitted") == ["a", "a", "b", "b"]
    eventually(lambda: attempts.seen() == ["a", "b"])
    eventually(lambda: attempts.open() == [])


def test_a_task_dies_behind_the_barrier(attempts: Attempts) -> None:
    [writer] = attempts.start()
    put(writer, "a", "b")
    made = prepare(writer)
    put(writer, "behind")
    [again] = attempts.start(restored=made)
    assert attempts.seen() == ["a", "b"]
    put(again, "behind")
    again.commit(prepare(again, 2))
    eventually(lambda: attempts.seen() == ["a", "b", "behind"])
    writer.commit(made)
    assert attempts.seen() == ["a", "b", "behind"], "committed is committed"


def test_a_task_dies_behind_its_commit(attempts: Attempts) -> None:
    [writer] = attempts.start()
    put(writer, "a")
    made = prepare(writer)
    writer.commit(made)
    attempts.start(restored=made)
    attempts.start(restored=made)
    assert attempts.seen() == ["a"]


def test_tasks_die_in_the_middle_of_commits(attempts: Attempts) -> None:
    writers = attempts.start(3)
    for i, writer in enumerate(writers):
        put(writer, f"{i}")
    made = [one for writer in writers for one in prepare(writer)]
    writers[1].commit(made[1:2])
    attempts.start(3, restored=made)
    assert attempts.seen() == ["0", "1", "2"]


def test_a_job_is_rescaled(attempts: Attempts) -> None:
    #  4 subtasks |1 ... dead -> 2 |2 ... dead -> 3 |3
    written = itertools.count()
    made: list[Any] = []
    expected: list[str] = []
    for parallelism in (4, 2, 3):
        writers = attempts.start(parallelism, restored=made)
        names = [f"{next(written):03}" for _ in range(parallelism)]
        for name, writer in zip(names, writers, strict=True):
            put(writer, name)
        made = [one for writer in writers for one in prepare(writer, parallelism)]
        expected += names
        for writer in writers:
            put(writer, "in no checkpoint")
    for writer in attempts.writers:
        writer.commit([])
    attempts.start(1, restored=made)
    eventually(lambda: attempts.seen() == expected)
    eventually(lambda: attempts.open() == [])


def write_on(writer: Any) -> None:
    put(writer, "zombie")
    prepare(writer)


def test_a_zombie_writes_no_more(attempts: Attempts) -> None:
    [writer] = attempts.start()
    put(writer, "zombie")
    eventually(lambda: attempts.seen("read_uncommitted") == ["zombie"])
    [again] = attempts.start()
    eventually(lambda: all(one.wait(0.1) for one in again._errands))
    assert attempts.open() == []
    with pytest.raises(ConnectorError, match="same transactional_id_prefix took over"):
        write_on(writer)
    assert attempts.seen() == []


def test_a_zombies_spare_begins_no_transaction(attempts: Attempts) -> None:
    [writer] = attempts.start()
    eventually(lambda: writer._spare.wait(0.1))
    [again] = attempts.start()
    eventually(lambda: all(one.wait(0.1) for one in again._errands))
    with pytest.raises(ConnectorError, match="same transactional_id_prefix took over"):
        write_on(writer)
    assert attempts.seen() == []


def test_a_job_that_starts_anew_does_not_wait_for_the_old_ones_time_out(
    attempts: Attempts,
) -> None:
    [writer] = attempts.start()
    put(writer, "of a job that is gone")
    made = prepare(writer)
    other = attempts.sink.create_writer(context(job="another"))
    attempts.every.append(other)
    put(other, "new")
    other.commit(prepare(other))
    eventually(lambda: all(one.wait(0.1) for one in other._errands))
    eventually(lambda: attempts.seen() == ["new"])
    with pytest.raises(ConnectorError, match="same transactional_id_prefix took over"):
        writer.commit(made)


def test_a_closed_writer_aborts_at_once(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patience in ("ABORT_S", "CLOSE_S"):
        monkeypatch.setattr(f"strom.connectors.kafka.writer.{patience}", 60.0)
    [writer] = attempts.start()
    put(writer, "a")
    made = prepare(writer)
    put(writer, "b")
    writer.close()
    assert attempts.open() == [made[0].transactional_id]
    attempts.start(restored=made)
    eventually(lambda: attempts.seen() == ["a"])


def test_a_time_out_beyond_the_clusters_is_refused(broker: SinkBroker) -> None:
    sink = exactly_once(
        broker.servers, broker.topic(), "long", properties={"transaction.timeout.ms": 3_600_000}
    )
    writer = sink.create_writer(context())
    try:
        with pytest.raises(
            ConfigurationError,
            match=r"transaction\.timeout\.ms=3600000 is more than .*transaction\.max\.timeout\.ms",
        ):
            put(writer, "a")
    finally:
        writer.close()


def test_a_time_out_below_the_checkpoints_interval_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sink = exactly_once("h:1", "t", "p", properties={"transaction.timeout.ms": 30_000})
    with pytest.raises(ConfigurationError, match="every transaction before it is committed"):
        sink.create_writer(context(every_s=30))
    writer = sink.create_writer(context(every_s=10))
    writer.close()
    assert "an outage of more than 20 s loses records" in caplog.text


def test_no_secret_is_logged(
    broker: SinkBroker, attempts: Attempts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    attempts.sink = exactly_once(
        broker.servers,
        attempts.topic,
        attempts.prefix,
        properties={"sasl.password": "hidden-word", "sasl.username": "me", "debug": "security"},
    )
    [writer] = attempts.start()
    put(writer, "a")
    made = prepare(writer)
    attempts.start(restored=made)
    assert attempts.seen() == ["a"]
    assert len(caplog.records) > 0
    assert "hidden-word" not in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_failures(attempts: Attempts, seed: int) -> None:
    """Writes, barriers, completions and deaths at random, at changing parallelism."""
    chance = random.Random(seed)
    position, made = 0, []
    completed: tuple[int, list[Any]] = (0, [])
    attempts.start(chance.choice([1, 2]))
    for n in range(14):
        writer = chance.choice(attempts.writers)
        put(writer, f"{position:03}")
        position += 1
        choice = chance.random()
        if choice < 0.5:
            made = [one for each in attempts.writers for one in prepare(each, n)]
            mine = {one.transactional_id: each for each in attempts.writers for one in made}
            assert len(mine) == len(made)
            completed = (position, made)
            if choice < 0.35:
                for each in attempts.writers:
                    own = [one for one in made if one.transactional_id in each._prepared]
                    each.commit(own)
                    if chance.random() < 0.2:
                        break
                else:
                    continue
            position, made = completed
            attempts.start(chance.choice([1, 2, 3]), restored=made)
        elif choice < 0.65:
            position, made = completed
            attempts.start(chance.choice([1, 2, 3]), restored=made)
    position, made = completed
    attempts.start(1, restored=made)
    expected = [f"{i:03}" for i in range(position)]
    eventually(lambda: attempts.open() == [])
    assert attempts.seen() == expected
