"""What an enumerator asks a cluster: which partitions there are, and offsets in them.

Through `confluent-kafka`'s own consumer: some calls a job, none of them a record's.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from ...core.errors import ConfigurationError, ConnectorError
from .offsets import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from .settings import KafkaProperties

log = logging.getLogger("strom")

TIMEOUT_S: Final = 30.0
"""How long a question may take; a broker that starts needs about ten seconds."""

_SLICE_S: Final = 3.0
_LEAST_S: Final = 0.1
"""One try of a question."""

_PASSING: Final = frozenset(
    {
        "_TRANSPORT",
        "_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "BROKER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
    }
)
"""Errors that pass: a broker that is not there yet, a leader that has just moved."""

_UNTOLD: Final = frozenset(
    {
        "_UNSUPPORTED_FEATURE",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
    }
)
"""Why a broker does not tell the id of a topic: it is old, or the client may not describe it."""

REFUSALS: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
"""A cluster lets this program not in."""

Answer = TypeVar("Answer")


class ClusterClient:
    """Questions to a cluster. Each raises a ConnectorError that names the cluster and the cause."""

    def __init__(self, properties: KafkaProperties, timeout_s: float | None = None) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise ConfigurationError(
                f"Kafka needs confluent-kafka: pip install 'strom[kafka]' ({error})"
            ) from error
        self._kafka: Any = confluent_kafka
        self._properties = properties
        self._timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self._wrong_login: str | None = None
        self._admin: Any = None
        """Made for the first question for ids."""
        self._said_untold = False
        group = properties.get("group.id", "strom")
        try:
            self._consumer: Any = confluent_kafka.Consumer(
                {**properties, "group.id": group, "error_cb": self._on_error}, logger=log
            )
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            said = properties.without_secrets(_text(error))
            raise ConfigurationError(f"Kafka properties are refused: {said}") from None

    def partitions(self, topics: Sequence[str], pattern: str | None) -> list[KafkaTopicPartition]:
        """Of these topics, each of which must exist, or of all whose whole name matches."""
        found = self._ask(
            "list topics", lambda timeout: self._consumer.list_topics(timeout=timeout).topics
        )
        if pattern is not None:
            wanted = re.compile(pattern)
            topics = [name for name in found if wanted.fullmatch(name)]
        missing = [name for name in topics if name not in found or not found[name].partitions]
        if missing:
            raise ConnectorError(
                f"Kafka topic {_quoted(missing)} does not exist at {self._servers}, or this "
                "program may not read it: create it, or correct its name"
            )
        return sorted(KafkaTopicPartition(t, p) for t in topics for p in found[t].partitions)

    def topic_ids(
        self, topics: Sequence[str], timeout_s: float | None = None
    ) -> dict[str, str | None]:
        """The ids that tell a topic from one of the same name made later; None: this cluster does
        not tell. Topics that do not exist are left out. `timeout_s`: instead of the client's own.
        """
        if not topics:
            return {}
        if self._admin is None:
            self._admin = self._make_admin()
        what, names = "ask for the ids of topics", self._kafka.TopicCollection(list(topics))

        def asked(timeout: float) -> dict[str, str | None]:
            futures = self._admin.describe_topics(names, request_timeout=timeout)
            ids: dict[str, str | None] = {}
            for name, future in futures.items():
                try:
                    ids[name] = _id_text(future.result(timeout + _SLICE_S).topic_id)
                except TimeoutError:
                    late = self._kafka.KafkaError(self._kafka.KafkaError._TIMED_OUT)
                    raise self._kafka.KafkaException(late) from None
                except self._kafka.KafkaException as error:
                    why = error.args[0].name()
                    if why in _UNTOLD:
                        self._say_untold(name, why)
                        ids[name] = None
                    elif why != "UNKNOWN_TOPIC_OR_PART":
                        raise
            return ids

        return self._ask(what, asked, timeout_s)

    def offsets(
        self, initializer: KafkaOffsetsInitializer, partitions: Sequence[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        """Of each partition the offset that the initializer means now."""
        if not partitions:
            return {}
        match initializer.kind:
            case "earliest":
                return {p: self._range(p)[0] for p in partitions}
            case "latest":
                return {p: self._range(p)[1] for p in partitions}
            case "timestamp":
                found = self._at(initializer.timestamp_ms, partitions)
            case "committed":
                found = self._committed(partitions)
            case "offsets":
                found = {p: initializer.given[p] for p in partitions if p in initializer.given}
        return {**self._reset(initializer, [p for p in partitions if p not in found]), **found}

    def close(self) -> None:
        self._admin = None
        self._consumer.close()

    def _make_admin(self) -> Any:
        """Errors only: it would warn of each property that is a consumer's."""
        from confluent_kafka.admin import AdminClient

        own = {"log_level": "3", "error_cb": self._on_error}
        return AdminClient({**self._properties, **own}, logger=log)

    def _say_untold(self, topic: str, why: str) -> None:
        if not self._said_untold:
            self._said_untold = True
            log.info(
                "Kafka at %s does not tell the id of topic '%s' (%s): that a topic is deleted and "
                "made anew while it is read is not noticed",
                self._servers,
                topic,
                why,
            )

    @property
    def _servers(self) -> str:
        return f"'{self._properties.get('bootstrap.servers', '')}'"

    def _reset(
        self, initializer: KafkaOffsetsInitializer, partitions: Sequence[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        if partitions and initializer.reset is KafkaOffsetResetStrategy.NONE:
            whose = (
                f"consumer group '{self._properties.get('group.id')}' has committed no offset of"
                if initializer.kind == "committed"
                else "no offset was given for"
            )
            raise ConnectorError(
                f"{whose} {_quoted(map(str, partitions))}, and the reset strategy is NONE: give "
                "offsets, or the strategy EARLIEST or LATEST"
            )
        end = int(initializer.reset is KafkaOffsetResetStrategy.LATEST)
        return {p: self._range(p)[end] for p in partitions}

    def _range(self, partition: KafkaTopicPartition) -> tuple[int, int]:
        """The first offset there is, and the one after the last."""
        place = self._kafka.TopicPartition(*partition)
        low, high = self._ask(
            f"ask for the offsets of {partition}",
            lambda timeout: self._consumer.get_watermark_offsets(place, timeout=timeout),
        )
        return int(low), int(high)

    def _at(
        self, timestamp_ms: int, partitions: Iterable[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        asked = [self._kafka.TopicPartition(*p, timestamp_ms) for p in partitions]
        return self._known(
            "ask for offsets by time",
            lambda timeout: self._consumer.offsets_for_times(asked, timeout=timeout),
        )

    def _committed(
        self, partitions: Iterable[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        asked = [self._kafka.TopicPartition(*p) for p in partitions]
        return self._known(
            "ask for committed offsets",
            lambda timeout: self._consumer.committed(asked, timeout=timeout),
        )

    def _known(
        self, what: str, ask: Callable[[float], Sequence[Any]]
    ) -> dict[KafkaTopicPartition, int]:
        """Those of which there is an offset."""

        def checked(timeout: float) -> Sequence[Any]:
            answers = ask(timeout)
            for answer in answers:
                if answer.error is not None and _passes(answer.error):
                    raise self._kafka.KafkaException(answer.error)
            return answers

        answers = self._ask(what, checked)
        for answer in answers:
            if answer.error is not None:
                raise ConnectorError(
                    f"cannot {what} of {answer.topic}-{answer.partition}: {answer.error.str()}"
                )
        return {
            KafkaTopicPartition(a.topic, a.partition): int(a.offset)
            for a in answers
            if a.offset >= 0
        }

    def _ask(
        self, what: str, ask: Callable[[float], Answer], timeout_s: float | None = None
    ) -> Answer:
        """`ask` gets a timeout, and is called again until `timeout_s` (None: the client's own) are
        over: in between the client says what is wrong, such as a password, which the call itself
        would only wait for."""
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            left = deadline - time.monotonic()
            try:
                return ask(max(_LEAST_S, min(_SLICE_S, left)))
            except self._kafka.KafkaException as error:
                self._listen()
                passing = bool(error.args) and _passes(error.args[0])
                if passing and left > _SLICE_S and self._wrong_login is None:
                    time.sleep(_LEAST_S)
                    continue
                said = self._wrong_login or _text(error)
                raise ConnectorError(
                    f"cannot {what} at the Kafka cluster {self._servers}: "
                    f"{self._properties.without_secrets(said)}. Look whether it runs, and whether "
                    "the bootstrap servers and the credentials are right"
                ) from None

    def _listen(self) -> None:
        """Have the client call `_on_error` with what it knows."""
        with suppress(self._kafka.KafkaException, RuntimeError):
            self._consumer.poll(0)
            if self._admin is not None:
                self._admin.poll(0)

    def _on_error(self, error: Any) -> None:
        """What a time-out would not tell."""
        said = _text(error)
        if error.name() in REFUSALS:
            self._wrong_login = said


def _passes(error: Any) -> bool:
    return getattr(error, "name", str)() in _PASSING


def _id_text(topic_id: Any) -> str | None:
    """Brokers that give topics no ids say zero."""
    bits = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    return str(topic_id) if any(bits) else None


def _text(error: BaseException | Any) -> str:
    inner = error.args[0] if getattr(error, "args", None) else error
    said = inner.str() if hasattr(inner, "str") else str(inner)
    return str(said).rstrip(". ")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
