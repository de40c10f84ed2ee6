"""The enumerator on a scripted cluster: what it looks for, when, and what a restore finds."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from strom.api.connectors.base import EnumeratorContext
from strom.connectors.kafka import KafkaOffsetsInitializer, KafkaTopicPartition
from strom.connectors.kafka.cluster import ClusterClient
from strom.connectors.kafka.enumerator import Discovery, EnumeratorState, KafkaEnumerator
from strom.connectors.kafka.offsets import KafkaSplit
from strom.connectors.kafka.settings import KafkaProperties
from strom.core.clock import VirtualClock
from strom.core.errors import ConfigurationError, ConnectorError

EARLIEST, LATEST = KafkaOffsetsInitializer.earliest(), KafkaOffsetsInitializer.latest()


class Cluster:
    """A topic whose partitions hold ten records each."""

    def __init__(self, partitions: int) -> None:
        self.count = partitions
        self.away = False
        self.topic_id: str | None = "one"

    def partitions(self, topics: Any, pattern: Any) -> list[KafkaTopicPartition]:
        if self.away:
            raise ConnectorError("no broker answers")
        return [KafkaTopicPartition("t", n) for n in range(self.count)]

    def offsets(
        self, of: KafkaOffsetsInitializer, places: Sequence[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        return dict.fromkeys(places, 0 if of.kind == "earliest" else 10)

    def topic_ids(
        self, topics: Sequence[str], timeout_s: float | None = None
    ) -> dict[str, str | None]:
        if self.away:
            raise ConnectorError("no broker answers")
        return dict.fromkeys(topics, self.topic_id)

    def close(self) -> None:
        """Nothing is open."""


def enumerator(
    cluster: Cluster,
    restored: EnumeratorState | None = None,
    start: KafkaOffsetsInitializer = EARLIEST,
    stop: KafkaOffsetsInitializer | None = None,
    clock: VirtualClock | None = None,
) -> KafkaEnumerator:
    wanted = Discovery(("t",), None, None, start, stop, None if stop is not None else 1000)
    context = EnumeratorContext("in", 1, "job")
    made: Any = lambda: cluster
    return KafkaEnumerator(context, wanted, made, clock or VirtualClock(), restored)


def test_a_checkpoint_before_the_first_question_asks_it_after_the_restore() -> None:
    """A bounded source reads all there is, and does not end at once with nothing."""
    cluster = Cluster(2)
    before = enumerator(cluster, stop=LATEST).snapshot()
    restored = enumerator(cluster, before, stop=LATEST)
    assert restored.next_splits(0) == [KafkaSplit("t", 0, 0, 10), KafkaSplit("t", 1, 0, 10)]
    assert restored.next_splits(0) is None


def test_a_checkpoint_before_the_first_question_keeps_the_beginning() -> None:
    """`start` is for the partitions that the first look finds; only later ones begin at 0."""
    cluster, clock = Cluster(1), VirtualClock()
    before = enumerator(cluster, start=LATEST).snapshot()
    restored = enumerator(cluster, before, start=LATEST, clock=clock)
    assert restored.next_splits(0) == [KafkaSplit("t", 0, 10)]
    cluster.count = 2
    clock.advance_ms(1000)
    assert restored.next_splits(0) == [KafkaSplit("t", 1, 0)]


@pytest.mark.parametrize("before_1970", [-1, -2, -86_400_000])
def test_a_time_that_means_something_else_to_a_broker_is_refused(before_1970: int) -> None:
    with pytest.raises(ConfigurationError, match=r"no times before 1970.*earliest\(\)"):
        KafkaOffsetsInitializer.timestamp(before_1970)


def test_a_first_look_that_fails_is_no_look() -> None:
    cluster = Cluster(1)
    cluster.away = True
    first = enumerator(cluster, start=LATEST)
    with pytest.raises(ConnectorError, match="no broker answers"):
        first.next_splits(0)
    cluster.away = False
    restored = enumerator(cluster, first.snapshot(), start=LATEST)
    assert restored.next_splits(0) == [KafkaSplit("t", 0, 10)]


def test_what_was_found_is_not_found_again() -> None:
    """Also nothing: the partitions of a topic that a pattern finds later are new."""
    cluster, clock = Cluster(0), VirtualClock()
    first = enumerator(cluster, start=LATEST)
    assert first.next_splits(0) == []
    cluster.count = 1
    restored = enumerator(cluster, first.snapshot(), start=LATEST, clock=clock)
    assert restored.next_splits(0) == [KafkaSplit("t", 0, 0)]
    again = enumerator(cluster, restored.snapshot(), start=LATEST)
    assert again.next_splits(0) == []


@pytest.mark.parametrize("stop", [None, LATEST])
def test_a_topic_made_anew_is_no_longer_read(stop: KafkaOffsetsInitializer | None) -> None:
    """Each restore finds it out anew, also one from a checkpoint that came after."""
    cluster, clock = Cluster(1), VirtualClock()
    first = enumerator(cluster, stop=stop, clock=clock)
    assert first.next_splits(0)
    cluster.topic_id = "two"
    clock.advance_ms(1000)
    for reading in (first, enumerator(cluster, first.snapshot(), stop=stop)):
        for _ in range(2):
            with pytest.raises(ConnectorError, match="topic 't' was deleted and made anew"):
                reading.next_splits(0)


def test_a_checkpoint_without_ids_takes_those_there_are() -> None:
    cluster, clock = Cluster(1), VirtualClock()
    old = EnumeratorState((KafkaTopicPartition("t", 0),), ())
    del old.__dict__["topic_ids"]
    restored = enumerator(cluster, pickle.loads(pickle.dumps(old)), clock=clock)
    assert restored.next_splits(0) == []
    assert restored.snapshot().topic_ids == (("t", "one"),)


def test_a_cluster_without_ids_is_read() -> None:
    cluster = Cluster(1)
    cluster.topic_id = None
    first = enumerator(cluster)
    assert first.next_splits(0)
    assert enumerator(cluster, first.snapshot()).next_splits(0) == []
    assert first.snapshot().topic_ids == ()


def test_a_cluster_that_is_away_is_waited_for_but_not_at_a_restore() -> None:
    cluster, clock = Cluster(1), VirtualClock()
    first = enumerator(cluster, clock=clock)
    assert first.next_splits(0)
    cluster.away = True
    clock.advance_ms(10_000)
    assert first.next_splits(0) == []
    with pytest.raises(ConnectorError, match="no broker answers"):
        enumerator(cluster, first.snapshot()).next_splits(0)
    cluster.away, cluster.topic_id = False, "two"
    clock.advance_ms(10_000)
    with pytest.raises(ConnectorError, match="made anew"):
        first.next_splits(0)


def test_a_client_that_may_not_describe_a_topic_hears_no_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    class Admin:
        def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
            futures: dict[str, Future[Any]] = {name: Future() for name in topics.topic_names}
            for future in futures.values():
                refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
                future.set_exception(KafkaException(refused))
            return futures

    client = ClusterClient(KafkaProperties({"bootstrap.servers": "127.0.0.1:1"}))
    client._admin = Admin()
    with caplog.at_level(logging.INFO, logger="strom"):
        for _ in range(2):
            assert client.topic_ids(["a", "b"]) == {"a": None, "b": None}
    assert caplog.text.count("does not tell the id of topic 'a'") == 1
    assert "topic 'b'" not in caplog.text
    client.close()
