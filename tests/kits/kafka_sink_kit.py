"""What tests of the Kafka sink share: writers without an engine, readers, a scripted cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from strom.api.connectors.base import WriterContext
from strom.connectors.kafka import KafkaSink
from strom.connectors.kafka.librdkafka import Failure
from strom.connectors.kafka.owner import OwnerWatch
from strom.connectors.kafka.record_maker import RecordFormat
from strom.connectors.kafka.serialization import RawEncoder
from strom.connectors.kafka.transactions import (
    EMPTY,
    ONGOING,
    Described,
    TransactionCommittable,
    TransactionNames,
)
from strom.connectors.kafka.writer import Making, TransactionalWriter
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.clock import SystemClock
from strom.operators.base import run_to_end
from strom.testing.kafka import KafkaCluster


class SinkBroker:
    """A real cluster with what tests do to it."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.servers = cluster.bootstrap_servers
        self._names = count()

    def topic(self, partitions: int = 1, **configuration: Any) -> str:
        """A new topic."""
        name = f"sink-topic-{next(self._names)}"
        self.cluster.create_topic(name, partitions, **configuration)
        return name


@dataclass(frozen=True)
class Got:
    """A record as a plain consumer reads it."""

    key: bytes | None
    value: bytes | None
    partition: int
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def read(
    servers: str, topic: str, isolation: str = "read_committed", seconds: float = 30.0
) -> list[Got]:
    """All records of the topic that such a reader sees now, up to each partition's end. Where
    transactions come all the time nobody is told of an end: there, up to where it was at first."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=seconds).topics[topic].partitions
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions]
        ends = {p.partition: consumer.get_watermark_offsets(p, seconds)[1] for p in places}
        consumer.assign(places)
        found, ended = [], set()
        deadline = time.monotonic() + seconds
        while len(ended) < len(partitions):
            assert time.monotonic() < deadline, f"'{topic}' was not read in {seconds} s"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    headers = tuple(message.headers() or ())
                    stamp, partition = message.timestamp()[1], message.partition()
                    found.append(Got(message.key(), message.value(), partition, headers, stamp))
                    if message.offset() >= ends[partition]:
                        ended.add(partition)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        return found
    finally:
        consumer.close()


def values(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    return [record.value for record in read(servers, topic, isolation)]


def eventually(check: Callable[[], Any], seconds: float = 120.0) -> Any:
    """The first true value of `check`."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)
    return value


def context(
    subtask: int = 0,
    parallelism: int = 1,
    attempt: int = 0,
    job: str = "job",
    every_s: float | None = None,
) -> WriterContext:
    return WriterContext(
        "sink",
        "sink-id",
        job,
        subtask,
        parallelism,
        attempt,
        SystemClock(),
        lambda key, value: None,
        every_s is not None,
        every_s,
    )


def put(writer: Any, *records: Any) -> None:
    """Write objects."""
    run_to_end(writer.write(ObjectBatch(list(records))))


def put_columns(writer: Any, data: pa.RecordBatch, stamps: Sequence[int] | None = None) -> None:
    times = None if stamps is None else np.array(stamps, dtype=np.int64)
    run_to_end(writer.write(ColumnBatch(data, times)))


def prepare(writer: Any, checkpoint: int = 1) -> list[Any]:
    """The committables of a barrier, made as the snapshot's thread does."""
    made = writer.prepare_commit(checkpoint)
    return list(made() if callable(made) else made)


def exactly_once(servers: str, topic: str, prefix: str, **more: Any) -> KafkaSink:
    return KafkaSink(
        servers, topic, delivery="exactly-once", transactional_id_prefix=prefix, **more
    )


# --- a scripted cluster ---------------------------------------------------------------------------


@dataclass
class Id:
    """A transactional id at the scripted cluster."""

    producer_id: int
    epoch: int = 0
    state: str = EMPTY
    records: list[bytes] = field(default_factory=list)


class ScriptedCluster:
    """A cluster in memory, with the coordinator's rules for one transaction an id. It is the
    `TransactionCluster` and makes the producers.

    Invariant: `log` holds the records of committed transactions, in order of their commits."""

    def __init__(self) -> None:
        self.ids: dict[str, Id] = {}
        self.log: list[bytes] = []
        self.fenced: list[str] = []
        self._producers = count(100)

    def making(self) -> Making:
        return Making(lambda name: ScriptedProducer(self, name), self.connect, AtOnce)

    def connect(self, going: Callable[[], bool]) -> AbstractContextManager[ScriptedCluster]:
        return nullcontext(self)

    def register(self, name: str) -> Id:
        assert name not in self.ids, f"{name} was used before"
        self.ids[name] = Id(next(self._producers))
        return self.ids[name]

    def finish(self, name: str, producer: tuple[int, int], committed: bool) -> str | None:
        """EndTxn: None, or the error."""
        one = self.ids.get(name)
        if one is None or one.producer_id != producer[0]:
            return "INVALID_PRODUCER_ID_MAPPING"
        if one.epoch != producer[1]:
            return "PRODUCER_FENCED"
        wanted = "CompleteCommit" if committed else "CompleteAbort"
        if one.state == ONGOING:
            one.state = wanted
            if committed:
                self.log += one.records
            return None
        return None if one.state == wanted else "INVALID_TXN_STATE"

    def expire(self, name: str) -> None:
        """The transaction was open for too long."""
        one = self.ids[name]
        assert one.state == ONGOING
        one.state, one.epoch = "CompleteAbort", one.epoch + 1

    # What a TransactionCluster is asked.

    def end(self, committable: TransactionCommittable) -> str | None:
        who = (committable.producer_id, committable.epoch)
        return self.finish(committable.transactional_id, who, True)

    def describe(self, transactional_ids: Iterable[str]) -> dict[str, Described]:
        return {
            name: Described(name, one.state, one.producer_id, one.epoch)
            for name in transactional_ids
            if (one := self.ids.get(name)) is not None
        }

    def list(self, states: Iterable[str]) -> list[str]:
        wanted = set(states)
        return [name for name, one in self.ids.items() if one.state in wanted]

    def fence(self, transactional_id: str) -> tuple[int, int]:
        new = transactional_id not in self.ids
        one = self.register(transactional_id) if new else self.ids[transactional_id]
        one.epoch += not new
        one.state = EMPTY
        self.fenced.append(transactional_id)
        return one.producer_id, one.epoch

    def open_transactions(self) -> list[str]:
        return self.list([ONGOING])


class ScriptedProducer:
    """A `TransactionalProducer` of the scripted cluster."""

    def __init__(self, cluster: ScriptedCluster, name: str) -> None:
        self.transactional_id = name
        self.cluster = cluster
        self.producer_id = self.epoch = -1
        self.records = 0
        self.age_s = 0.0

    def open(self, going: Callable[[], bool]) -> None:
        made = self.cluster.register(self.transactional_id)
        self.producer_id, self.epoch = made.producer_id, made.epoch

    def identify(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def begin(self) -> None:
        pass

    def listen(self) -> None:
        pass

    def write(self, records: Any) -> Any:
        one = self.cluster.ids[self.transactional_id]
        if one.epoch != self.epoch:
            raise Failure(-144, "fenced", True, False, False)
        assert one.state in (EMPTY, ONGOING)
        one.state = ONGOING
        one.records += records.held[0].to_pylist()
        self.records += len(records)
        yield

    def flush(self, seconds: float) -> bool:
        return True

    def commit(self, seconds: float) -> None:
        who = (self.producer_id, self.epoch)
        refused = self.cluster.finish(self.transactional_id, who, True)
        if refused is not None:
            raise Failure(-144, refused, True, False, False)

    def abort(self, seconds: float) -> None:
        self.cluster.finish(self.transactional_id, (self.producer_id, self.epoch), False)

    def close(self) -> None:
        pass


class AtOnce:
    """An Errand that is done before it is made."""

    def __init__(self, do: Callable[[], Any], name: str) -> None:
        self._result = do()

    def wait(self, seconds: float) -> bool:
        return True

    def result(self) -> Any:
        return self._result


RAW = RecordFormat("t", None, RawEncoder(), None, {}, None, False, "refuse")


def scripted_writer(
    cluster: ScriptedCluster,
    subtask: int = 0,
    parallelism: int = 1,
    attempt: int = 0,
    job: str = "job",
    skip_lost: bool = False,
    owner: OwnerWatch | None = None,
) -> TransactionalWriter:
    names = TransactionNames("p", job, "sink-id", subtask, parallelism, attempt)
    return TransactionalWriter(RAW, names, cluster.making(), 900_000, skip_lost, owner)
