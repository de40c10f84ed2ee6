"""`KafkaSink`: a stream into Kafka topics, exactly once, at least once or without a guarantee.

How records are made is in `serialization` and `record_maker`, how they are written in `writer`,
what makes it exactly once in `transactions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, get_args

from ...api.connectors.base import OutputClaim, Sink, SinkWriter, WriterContext
from ...core.errors import ConfigurationError
from .record_maker import Changelog, RecordFormat, TopicOf
from .serialization import Encoder, RawEncoder, encoder
from .settings import KafkaProperties
from .sink_builder import Delivery, KafkaSinkBuilder
from .transaction_admin import TIMEOUT_S, KafkaTransactions, admin_settings
from .transactions import TransactionCluster, TransactionNames

log = logging.getLogger("strom")

OnLost = Literal["fail", "skip"]

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The most that a cluster allows unless it is told otherwise."""

RECOVERY_S: Final = 60.0
"""What a transaction should outlive its checkpoint by, so that a restart can commit it."""

ASK_S: Final = 10.0
"""How long a cluster may take to say whose a prefix is, before the commit waits its turn again."""

_TIMEOUT: Final = "transaction.timeout.ms"


@dataclass(frozen=True)
class KafkaSinkConfig:
    """What a writer needs to know; shows no secret."""

    properties: KafkaProperties
    format: RecordFormat
    delivery: Delivery
    prefix: str | None
    on_lost: OnLost

    @property
    def timeout_ms(self) -> int:
        return int(self.properties.get(_TIMEOUT, TRANSACTION_TIMEOUT_MS))


class KafkaSink(Sink):
    """Records become values (and keys, headers) of a topic.

        KafkaSink(servers, "results", value=JsonEncoder(), key="user", delivery="exactly-once",
                  transactional_id_prefix="results-of-prod")

    topic: of all records; topic_column (or a function of a record) has each record's own instead.
    value, key: an encoder, or
    the name of a column of bytes or text; without `value` the only column, or records that are
    bytes or str. headers: names, and the columns of bytes or text they come from; a null is left
    out. partition: a column of numbers; without it, or where it is null, the hash of the key
    chooses as Java's clients do, and records without a key are spread. event_times: event times
    become the records' timestamps; a topic drops what is older than its retention.

    changelog: "upsert" writes a changelog as records that replace each other by key: null for a
    deleted row. "refuse" takes streams that only insert.

    delivery: see the documentation's page on connectors. "exactly-once" needs a prefix that no
    other sink that runs has, and readers with isolation.level=read_committed. on_lost_transaction:
    whether a job fails whose completed checkpoint has a transaction that the cluster dropped, or
    goes on without those records.

    properties: of librdkafka or of Java's producer. ConfigurationError for what does not fit.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str | None = None,
        value: Encoder | str | None = None,
        key: Encoder | str | None = None,
        headers: Mapping[str, str] | None = None,
        partition: str | None = None,
        topic_column: TopicOf | None = None,
        event_times: bool = False,
        changelog: Changelog = "refuse",
        delivery: Delivery = "at-least-once",
        transactional_id_prefix: str | None = None,
        on_lost_transaction: OnLost = "fail",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        form = RecordFormat(
            topic,
            topic_column,
            encoder(value, "value") or RawEncoder(),
            encoder(key, "key"),
            dict(headers or {}),
            partition,
            event_times,
            changelog,
        )
        made = KafkaProperties({**(properties or {}), "bootstrap.servers": bootstrap_servers})
        self.config = KafkaSinkConfig(
            made, form, delivery, transactional_id_prefix, on_lost_transaction
        )
        _check(self.config)
        self.revocable = delivery != "exactly-once"
        self._owner = ""
        """What writers are told of whose the prefix is; known to the coordinator that took over."""

    @staticmethod
    def builder() -> KafkaSinkBuilder[KafkaSink]:
        """PyFlink's way to make one."""
        return KafkaSinkBuilder(KafkaSink)

    def __repr__(self) -> str:
        topic = self.config.format.topic or "each record's own"
        return f"KafkaSink({topic}, {self.config.delivery})"

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        """Exactly once; else everybody may write."""
        from .owner import take

        if self.config.prefix is None or self.config.delivery != "exactly-once":
            return ()
        with cluster_of(self.config.properties, self.config.timeout_ms)(lambda: True) as cluster:
            self._owner, said = take(cluster, self.config.prefix, claim)
        return said

    def writers_token(self, claim: OutputClaim) -> str:
        return self._owner

    def create_writer(self, context: WriterContext) -> SinkWriter:
        from .owner import OwnerWatch
        from .producer import Producer, TransactionalProducer, producer_properties
        from .writer import FlushingWriter, Making, TransactionalWriter

        config = self.config
        if config.delivery != "exactly-once":
            own = {"enable.idempotence": "true"} if config.delivery == "at-least-once" else {}
            flushes = config.delivery == "at-least-once"
            producer = Producer(producer_properties(config.properties, own))
            return FlushingWriter(config.format, producer, flushes)
        _compare(config.timeout_ms, context)
        assert config.prefix is not None
        names = TransactionNames(
            config.prefix,
            context.job_id,
            context.operator_id,
            context.subtask,
            context.parallelism,
            context.attempt,
        )
        properties = transactional_properties(config)
        making = Making(
            partial(TransactionalProducer, properties),
            cluster_of(config.properties, config.timeout_ms),
        )
        skip = config.on_lost == "skip"
        owner = None
        if context.token:
            asks = cluster_of(config.properties, config.timeout_ms, ASK_S)
            owner = OwnerWatch(asks, config.prefix, context.job_id, context.token)
        return TransactionalWriter(config.format, names, making, config.timeout_ms, skip, owner)


def transactional_properties(config: KafkaSinkConfig) -> KafkaProperties:
    """A producer's, but for its id. Records are given up on before their transaction is."""
    from .producer import producer_properties

    own = {_TIMEOUT: str(config.timeout_ms), "enable.idempotence": "true"}
    made = producer_properties(config.properties, own)
    given = {"delivery.timeout.ms", "message.timeout.ms"} & set(config.properties)
    if not given and int(made["delivery.timeout.ms"]) > config.timeout_ms:
        made = KafkaProperties({**made, "delivery.timeout.ms": str(config.timeout_ms)})
    return made


def cluster_of(
    properties: KafkaProperties, timeout_ms: int, answer_s: float = TIMEOUT_S
) -> Callable[[Callable[[], bool]], AbstractContextManager[TransactionCluster]]:
    """Connections for the transactions of others. `answer_s`: how long what passes is retried."""
    return lambda going: KafkaTransactions(properties, timeout_ms, going, answer_s)


def _check(config: KafkaSinkConfig) -> None:
    if config.delivery not in get_args(Delivery):
        raise ConfigurationError(
            f"KafkaSink: delivery must be one of {list(get_args(Delivery))}, is {config.delivery!r}"
        )
    if config.on_lost not in get_args(OnLost):
        raise ConfigurationError(
            f'KafkaSink: on_lost_transaction is "fail" or "skip", not {config.on_lost!r}'
        )
    if not config.properties["bootstrap.servers"]:
        raise ConfigurationError("KafkaSink: bootstrap_servers is empty: give 'host:port'")
    from .producer import producer_properties

    if config.delivery != "exactly-once":
        own = {"enable.idempotence": "true"} if config.delivery == "at-least-once" else {}
        producer_properties(config.properties, own)
        return
    if not config.prefix:
        raise ConfigurationError(
            "KafkaSink: exactly-once delivery needs transactional_id_prefix='...': a name that "
            "stays the same when the job is restored, and that no other job or sink has"
        )
    transactional_properties(config)
    admin_settings(config.properties)


def _compare(timeout_ms: int, context: WriterContext) -> None:
    """The transactions' time-out with what a transaction lives for: ConfigurationError if none
    could be committed, a warning if a restart may come too late."""
    every_s = context.checkpoint_every_s
    if every_s is None:
        return
    if timeout_ms <= every_s * 1000:
        raise ConfigurationError(
            f"sink '{context.operator}': {_TIMEOUT}={timeout_ms} is not more than the time between "
            f"checkpoints, {every_s:g} s, so the cluster would drop every transaction before it is "
            f"committed: set {_TIMEOUT} to that, and what an outage takes"
        )
    left_s = timeout_ms / 1000 - every_s
    if left_s < RECOVERY_S:
        log.warning(
            "sink '%s': with %s=%d and a checkpoint every %g s, an outage of more than %.0f s "
            "loses records: the cluster drops their transactions; set it to more",
            context.operator,
            _TIMEOUT,
            timeout_ms,
            every_s,
            left_s,
        )
