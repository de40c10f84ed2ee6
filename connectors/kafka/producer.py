"""A producer: records in columns go to librdkafka, and none of them is lost without an error.

librdkafka queues what it is handed, sends it on threads of its own, and sends again what was not
acknowledged, without duplicates and in order, until `delivery.timeout.ms`. What it gives up on it
reports (`delivery.report.only.error`), and then the producer fails at its next call.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from ...core.errors import ConfigurationError, ConnectorError
from . import librdkafka
from .librdkafka import PRODUCER, Client, Failure, check, name_of, text_of
from .outgoing import Outgoing
from .settings import KafkaProperties

log = logging.getLogger("strom")

FULL_WAIT_S: Final = 0.02
"""How long a full queue is waited for before the task may look at its mail."""

OPEN_S: Final = 60.0
"""How long a cluster may take to register a transactional id."""

_STATS_MS: Final = 200
"""How soon a new producer learns its id."""

_DEFAULTS: Final[Mapping[str, str]] = {
    "partitioner": "murmur2_random",
    "delivery.timeout.ms": "120000",
    "linger.ms": "10",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": "65536",
    "topic.metadata.propagation.max.ms": "10000",
}

_QUEUE_FULL, _TIMED_OUT = -184, -185
_UNKNOWN_TOPIC, _UNKNOWN_PARTITION, _EXPIRED = -188, -190, -192
_NO_SUCH, _TOO_LARGE, _NO_TOPIC_RIGHT, _NO_CLUSTER_RIGHT, _BAD_TIME = 3, 10, 29, 31, 32
_LOGIN: Final = (-169, -181, 58)
"""A password or a certificate is wrong."""

_PURGED: Final = (-151, -152)
"""Records that were given up on because of another."""

_TOO_LARGE_BATCH, _TOO_LONG_TRANSACTION, _NO_ID_RIGHT = 18, 50, 53

_OWN: Final = frozenset(
    {
        "transactional.id",
        "delivery.report.only.error",
        "statistics.interval.ms",
        "enable.gapless.guarantee",
    }
)


class Producer:
    """Made of `producer_properties`. Called from one thread at a time, but for `flush`.
    ConnectorError, naming topic and cause, at the call that finds that a record was not written."""

    def __init__(
        self, properties: KafkaProperties, on_stats: Callable[[bytes], None] | None = None
    ) -> None:
        """`properties`: with those of the kind of producer. Connects in the background."""
        self._properties = properties
        self._failed: dict[tuple[str, int], int] = {}
        """How many records of a topic were given up on, for which reason."""
        self._said: str | None = None
        """The last trouble with a broker."""
        self._refused: str | None = None
        """Why a broker lets nobody in with these credentials."""
        self._lock = threading.Lock()
        """Held by who uses the client while it may be closed."""
        self._client = Client(
            PRODUCER, properties, self._on_error, self._on_log, on_stats, self._on_delivery
        )
        self._produce = librdkafka.address("rd_kafka_produceva")
        self.records = 0
        """Handed over so far."""

    def write(self, records: Outgoing) -> Iterator[None]:
        """Hand over all records, in steps: a full queue is waited for, a moment a step."""
        from .produce_kernels import produce

        handles = np.array([self._handle(name) for name in records.topics], dtype=np.int64)
        names = [name.encode() + b"\0" for name in records.headers]
        texts = [np.frombuffer(name, dtype=np.uint8) for name in names]
        headers = np.array([text.ctypes.data for text in texts], dtype=np.int64)
        topics = handles[records.topic_of]
        done = 0
        while True:
            self.check()
            taken, failed = produce(
                self._produce,
                self._client.handle or 0,
                topics,
                records.partitions,
                records.timestamps,
                records.addresses,
                records.lengths,
                headers,
                done,
            )
            self.records += taken - done
            done = taken
            self._poll(0.0)
            if not failed:
                return
            self._take(failed, records, done)
            self._poll(FULL_WAIT_S)
            yield

    def flush(self, seconds: float) -> bool:
        """Whether all that was handed over is acknowledged, waiting this long for it. From any
        thread. ConnectorError for what was given up on, and when the producer is closed."""
        with self._lock:
            if self._client.handle is None:
                raise ConnectorError(
                    f"the writer to Kafka at {self._servers} was closed before all its records "
                    "were acknowledged"
                )
            code = librdkafka.library().rd_kafka_flush(self._client.handle, int(seconds * 1000))
            self.check()
            return int(code) == 0

    def check(self) -> None:
        """ConnectorError if a record was given up on, or the client can do nothing any more."""
        if self._failed:
            topic, code = min(self._failed, key=lambda place: place[1] in _PURGED)
            count = sum(self._failed.values())
            raise self._error(
                f"{count} record{'s' * (count > 1)} could not be written to Kafka topic '{topic}'",
                code,
            )
        self._check_login()
        fatal = self._client.fatal()
        if fatal is not None:
            raise ConnectorError(
                f"the writer to Kafka at {self._servers} cannot go on: "
                f"{self._properties.without_secrets(fatal)}"
            )

    def listen(self) -> None:
        """Hear what the client says. To be called now and then while nothing is written: what is
        not heard stays in memory."""
        self._poll(0.0)

    def unheard(self) -> int:
        """Records that are not acknowledged, and what the client says that nobody has heard."""
        return int(librdkafka.library().rd_kafka_outq_len(self._client.handle))

    def close(self) -> None:
        """Idempotent. What is not acknowledged by now may or may not be written."""
        with self._lock:
            self._client.close()

    def _check_login(self) -> None:
        if self._refused is not None:
            raise ConnectorError(
                f"Kafka at {self._servers} lets this program not in: {self._refused}. Look at the "
                "properties security.protocol, sasl.* and ssl.*"
            )

    @property
    def _servers(self) -> str:
        return f"'{self._properties.get('bootstrap.servers', '')}'"

    def _handle(self, topic: str) -> int:
        handle = self._client.topic(topic)
        if not handle:
            raise ConnectorError(
                f"Kafka takes no topic of the name {topic!r}: use letters, digits, '.', '_' and '-'"
            )
        return handle

    def _take(self, failed: int, records: Outgoing, done: int) -> None:
        """The answer to a record: nothing if the queue is full and will have room for it."""
        try:
            check(failed)
        except Failure as failure:
            topic, size = records.topic(done), records.size(done)
            room = int(self._properties["queue.buffering.max.kbytes"]) * 1024
            if failure.code == _QUEUE_FULL and size <= room:
                return
            what = f"a record of {size} bytes cannot be written to Kafka topic '{topic}'"
            if failure.code == _QUEUE_FULL:
                raise ConnectorError(
                    f"{what}: it is larger than the queue; raise queue.buffering.max.kbytes"
                ) from None
            partition = int(records.partitions[done])
            if failure.code == _UNKNOWN_PARTITION:
                what = f"a record cannot be written to partition {partition} of topic '{topic}'"
            raise self._error(what, failure.code, str(failure)) from None

    def _error(self, what: str, code: int, said: str | None = None) -> ConnectorError:
        """One sentence: what failed, why, what to do."""
        why = _CAUSES.get(code)
        if code == _EXPIRED:
            limit = self._properties.get("delivery.timeout.ms", "")
            trouble = f" (the last trouble: {self._said})" if self._said else ""
            why = (
                f"no broker has acknowledged it within delivery.timeout.ms={limit}{trouble}; look "
                "whether the cluster runs, and whether its address and credentials are right"
            )
        text = why or f"{said or text_of(code)} ({name_of(code)})"
        return ConnectorError(self._properties.without_secrets(f"{what}: {text}"))

    def _poll(self, seconds: float) -> None:
        """Hear what became of records."""
        librdkafka.library().rd_kafka_poll(self._client.handle, int(seconds * 1000))

    def _on_delivery(self, topic: str, code: int) -> None:
        if code:
            place = (topic, code)
            self._failed[place] = self._failed.get(place, 0) + 1

    def _on_error(self, code: int, reason: str) -> None:
        self._said = self._properties.without_secrets(f"{name_of(code)}: {reason}")
        if code in _LOGIN:
            self._refused = self._said

    def _on_log(self, level: int, text: str) -> None:
        log.log(
            logging.WARNING if level <= 3 else logging.DEBUG,
            "Kafka producer: %s",
            self._properties.without_secrets(text),
        )


class TransactionalProducer(Producer):
    """A producer of one transaction, whose id no other ever has.

    `open` registers the id; soon after, `identify` knows producer id and epoch, by which anybody
    can end the transaction when this process is gone. Records need not wait for that."""

    def __init__(self, properties: KafkaProperties, transactional_id: str) -> None:
        own = {"transactional.id": transactional_id, "statistics.interval.ms": str(_STATS_MS)}
        super().__init__(KafkaProperties({**properties, **own}), self._on_stats)
        self.transactional_id = transactional_id
        self._producer_id: tuple[int, int] | None = None
        """With its epoch; the client's statistics tell."""
        self._begun: float | None = None

    @property
    def age_s(self) -> float:
        """How long the transaction has been open, at most; 0 before it began."""
        return 0.0 if self._begun is None else time.monotonic() - self._begun

    def open(self, going: Callable[[], bool] = lambda: True) -> None:
        """Once; waits for the cluster while `going()`. ConnectorError, or ConfigurationError for a
        timeout that the cluster does not allow."""
        deadline = time.monotonic() + OPEN_S
        while going():
            self._check_login()
            try:
                check(self._call("rd_kafka_init_transactions", 200))
                return
            except Failure as failure:
                self._poll(0.0)
                self._check_login()
                if not failure.retriable and failure.code != _TIMED_OUT:
                    raise self._not_opened(failure) from None
            if time.monotonic() > deadline:
                raise ConnectorError(
                    f"Kafka at {self._servers} does not answer: transactional id "
                    f"'{self.transactional_id}' could not be registered within {OPEN_S:.0f} s "
                    f"({self._said or 'no broker could be reached'}); look whether the cluster "
                    "runs, and whether its address and credentials are right"
                )

    def identify(self) -> tuple[int, int]:
        """Producer id and epoch; waits for the client to say them. From any thread, once the
        producer is open. ConnectorError when it is closed."""
        while True:
            with self._lock:
                if self._producer_id is not None:
                    return self._producer_id
                if self._client.handle is None:
                    raise ConnectorError(
                        f"Kafka transaction '{self.transactional_id}' was closed before its barrier"
                    )
                self._poll(0.02)

    def begin(self) -> None:
        """Before the first record."""
        try:
            check(self._call("rd_kafka_begin_transaction"))
        except Failure as failure:
            raise ConnectorError(
                f"Kafka transaction '{self.transactional_id}' cannot begin: {failure}"
            ) from None
        self._begun = time.monotonic()

    def check(self) -> None:
        try:
            super().check()
        except ConnectorError as error:
            if self._client.fatal() is None:
                raise
            limit = self._properties.get("transaction.timeout.ms", "")
            raise ConnectorError(
                f"{error}. The cluster has ended transaction '{self.transactional_id}': it was "
                f"open for longer than transaction.timeout.ms={limit}, or another job or sink "
                "with the same transactional_id_prefix took over"
            ) from None

    def commit(self, seconds: float) -> None:
        """Once all is flushed. Failure if it is not known to be committed."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                check(self._call("rd_kafka_commit_transaction", 1_000))
                return
            except Failure as failure:
                again = failure.retriable or failure.code == _TIMED_OUT
                if failure.requires_abort or not again or time.monotonic() > deadline:
                    raise

    def abort(self, seconds: float) -> None:
        """What was written is dropped. Best effort: the cluster does it at the time-out."""
        try:
            check(self._call("rd_kafka_abort_transaction", int(seconds * 1000)))
        except Failure as failure:
            log.info(
                "Kafka transaction '%s' is left to time out: %s", self.transactional_id, failure
            )

    def _call(self, name: str, *milliseconds: int) -> Any:
        return getattr(librdkafka.library(), name)(self._client.handle, *milliseconds)

    def _not_opened(self, failure: Failure) -> Exception:
        what = f"Kafka at {self._servers} refuses transactional id '{self.transactional_id}'"
        if failure.code == _TOO_LONG_TRANSACTION:
            limit = self._properties.get("transaction.timeout.ms", "")
            return ConfigurationError(
                f"transaction.timeout.ms={limit} is more than the cluster at {self._servers} "
                "allows (transaction.max.timeout.ms of its brokers, 15 minutes unless set): lower "
                "the one or raise the other"
            )
        return self._error(what, failure.code, str(failure))

    def _on_stats(self, text: bytes) -> None:
        if self._producer_id is not None:
            return
        found = json.loads(text).get("eos", {})
        if found.get("idemp_state") == "Assigned":
            self._producer_id = int(found["producer_id"]), int(found["producer_epoch"])


def producer_properties(properties: KafkaProperties, own: Mapping[str, str]) -> KafkaProperties:
    """With a producer's defaults. `own`: what its kind insists on. ConfigurationError for a
    property that is not the program's to set."""
    for name in properties:
        if name in _OWN:
            raise ConfigurationError(
                f"Kafka property '{name}' is the sink's own: leave it out"
                + (
                    " (transactional_id_prefix begins the ids)"
                    if name == "transactional.id"
                    else ""
                )
            )
        if name in own and properties[name] != own[name]:
            raise ConfigurationError(
                f"Kafka property '{name}' must be {own[name]} with this delivery guarantee: leave "
                "it out, or choose another"
            )
    timeout = "message.timeout.ms"
    defaults = {k: v for k, v in _DEFAULTS.items() if k != "delivery.timeout.ms"}
    if timeout not in properties:
        defaults["delivery.timeout.ms"] = _DEFAULTS["delivery.timeout.ms"]
    made = properties.with_defaults(defaults)
    return KafkaProperties({**made, **own, "delivery.report.only.error": "true"})


_CAUSES: Final[Mapping[int, str]] = {
    _UNKNOWN_TOPIC: "it does not exist; create it, or correct its name",
    _NO_SUCH: "it does not exist; create it, or correct its name",
    _UNKNOWN_PARTITION: "the topic has no such partition, or was deleted; add partitions, or "
    "correct the number",
    _TOO_LARGE: "it is larger than the topic allows or the client may send; raise the topic's "
    "max.message.bytes and the sink's property message.max.bytes",
    _TOO_LARGE_BATCH: "the batch is larger than a segment of the topic; lower batch.size",
    _NO_TOPIC_RIGHT: "this program may not write to it; give its user the right WRITE",
    _NO_CLUSTER_RIGHT: "this program may not write idempotently; give its user IDEMPOTENT_WRITE",
    _NO_ID_RIGHT: "this program may not use it; give its user the right WRITE for transactional "
    "ids of that prefix",
    _BAD_TIME: "the cluster refuses its timestamp; see message.timestamp.after.max.ms of the "
    "topic, or write without event times",
}
