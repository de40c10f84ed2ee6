"""A real broker with what tests do to it: topics of their own, plain clients; a reader without an
engine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom.api.connectors.base import Emit, EnumeratorContext, NeedSplit, ReaderContext, Wait
from strom.connectors.kafka import KafkaSource
from strom.core.clock import SystemClock
from strom.testing.kafka import KafkaCluster


@dataclass(frozen=True)
class Sent:
    """A record as a plain producer sends it."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Broker:
    """The cluster, with what tests do to it."""

    def __init__(self, cluster: KafkaCluster, client: dict[str, str] | None = None) -> None:
        """`client`: what a client must say to it."""
        self.cluster = cluster
        self._client = client or {}
        self._admin: Any = None
        self.servers = cluster.bootstrap_servers
        self._names = count()

    def topic(self, partitions: int = 1, **configuration: Any) -> str:
        """A new topic."""
        name = f"topic-{next(self._names)}"
        self.cluster.create_topic(name, partitions, **configuration)
        return name

    def make_anew(self, topic: str, partitions: int = 1) -> None:
        """Delete the topic, and make one of the same name."""
        self.admin().delete_topics([topic])[topic].result(30.0)
        deadline = time.monotonic() + 30.0
        while topic in self.admin().list_topics(timeout=30.0).topics:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        self.cluster.create_topic(topic, partitions)

    def send(
        self, topic: str, records: Iterable[Sent | bytes], transaction: str | None = None
    ) -> None:
        """All acknowledged when it returns; in a transaction that `transaction` says the end of:
        "commit" or "abort"."""
        from confluent_kafka import Producer

        settings: dict[str, Any] = {
            **self._client,
            "bootstrap.servers": self.servers,
            "linger.ms": 2,
        }
        if transaction is not None:
            settings["transactional.id"] = f"test-{topic}-{next(self._names)}"
        producer = Producer(settings)
        if transaction is not None:
            producer.init_transactions(30.0)
            producer.begin_transaction()
        for record in records:
            one = record if isinstance(record, Sent) else Sent(record)
            producer.produce(
                topic,
                value=one.value,
                key=one.key,
                partition=one.partition,
                timestamp=one.timestamp,
                headers=list(one.headers),
            )
        assert producer.flush(30.0) == 0
        if transaction == "commit":
            producer.commit_transaction(30.0)
        elif transaction == "abort":
            producer.abort_transaction(30.0)

    def committed(self, group: str, topic: str, partitions: int) -> list[int]:
        """What the group has committed of each partition; -1001: nothing."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({**self._client, "bootstrap.servers": self.servers, "group.id": group})
        try:
            places = [TopicPartition(topic, p) for p in range(partitions)]
            return [place.offset for place in consumer.committed(places, timeout=30.0)]
        finally:
            consumer.close()

    def log_of(self, topic: str, partition: int) -> Path:
        """Where the only broker keeps the partition's first records; it serves what is there."""
        data = self.cluster.brokers[0]._folder / "data"
        return data / f"{topic}-{partition}" / f"{0:020}.log"

    def admin(self) -> Any:
        """One client, kept: what a client was asked for ends with it."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({**self._client, "bootstrap.servers": self.servers})
        return self._admin


class Reading:
    """An enumerator and one reader of a source, driven by hand."""

    def __init__(self, source: KafkaSource, restored: Any = None, batch_size: int = 1000) -> None:
        self.woken = 0
        self.gauges: dict[str, float] = {}
        self.counts: Counter[str] = Counter()
        state, splits = restored or (None, [])
        self.enumerator = source.create_enumerator(EnumeratorContext("in", 1, "job"), state)
        clock = SystemClock()
        context = ReaderContext(
            "in", 0, 1, batch_size, clock, self._wake, self.gauges.__setitem__, self._count
        )
        self.reader = source.create_reader(context)
        self.rows: list[Any] = []
        self.stamps: list[int] = []
        self.side: list[Any] = []
        self.finished: list[str] = []
        if splits:
            self.reader.add_splits(splits)

    def _wake(self) -> None:
        self.woken += 1

    def _count(self, name: str, n: int) -> None:
        self.counts[name] += n

    def ask(self) -> bool:
        """Whether there will be more splits."""
        splits = self.enumerator.next_splits(0)
        if splits:
            self.reader.add_splits(splits)
        return splits is not None

    def poll(self) -> Any:
        polled = self.reader.poll()
        if isinstance(polled, Emit):
            self.rows += polled.batch.rows()
            if polled.batch.timestamps is not None:
                self.stamps += polled.batch.timestamps.tolist()
            self.side += [(tag, row) for tag, batch in polled.side for row in batch.rows()]
            if polled.finished:
                self.finished.append(polled.split_id)
        return polled

    def until(self, done: Callable[[], bool], timeout_s: float = 120.0) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < deadline, (len(self.rows), self.finished)
            if isinstance(self.poll(), Wait):
                time.sleep(0.002)

    def to_the_end(self) -> list[Any]:
        """All of a bounded source."""
        while self.ask():
            pass
        self.until(lambda: isinstance(self.poll(), NeedSplit))
        self.close()
        return self.rows

    def state(self) -> Any:
        return self.enumerator.snapshot(), list(self.reader.snapshot())

    def close(self) -> None:
        self.reader.close()
        self.enumerator.close()


def decoded(form: Any, values: list[bytes | None]) -> tuple[list[Any], list[bool], str]:
    """Rows, which of the values are malformed, and why the first is."""
    made = form.decode(pa.array(values, pa.binary()))
    bad = [False] * len(values) if made.bad is None else made.bad.tolist()
    assert made.data.num_rows == len(values) - sum(bad)
    assert made.data.schema.equals(form.schema)
    return made.data.to_pylist(), bad, made.why
