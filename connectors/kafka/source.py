"""`KafkaSource`: topics of Kafka as a replayable source, in columns. Its builder is PyFlink's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Literal

import pyarrow as pa

from ...api.connectors.base import EnumeratorContext, ReaderContext, Source
from ...api.functions.user_functions import OutputTag
from ...core.clock import SystemClock
from ...core.errors import ConfigurationError
from .cluster import ClusterClient
from .enumerator import DISCOVERY, Discovery, EnumeratorState, KafkaEnumerator, asks_every_ms
from .formats import BytesFormat, Format
from .librdkafka import check_properties
from .offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from .reader import KafkaReader
from .records import RecordDecoder, raw
from .schemas import DeserializationSchema
from .settings import KafkaProperties
from .source_builder import KafkaSourceBuilder

_DEFAULTS: Final[Mapping[str, str]] = {
    "auto.offset.reset": "error",
    "check.crcs": "true",
    "client.id": "strom",
    "fetch.message.max.bytes": "4194304",
    "fetch.queue.backoff.ms": "10",
    "group.id": "strom",
    "isolation.level": "read_committed",
    "reconnect.backoff.max.ms": "2000",
}
"""What the user's properties may change. `auto.offset.reset`: a position that is no longer in the
log fails the job. `fetch.queue.backoff.ms`: a full queue is looked at again after so long."""

_OURS: Final[Mapping[str, str]] = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
}
"""What positions and ends rest on."""

SKIPPED: Final = "strom.malformed"
"""The tag of malformed records that nobody wants."""


class KafkaSource(Source):
    """Records of topics, each partition in order, at the positions of our checkpoints.

    topics: names, or one name. topic_pattern: a regular expression for whole names, instead.
    partitions: only these, instead of whole topics.
    value: how values become columns; a `DeserializationSchema` such as SimpleStringSchema makes
        records of objects. key: the same of keys, where `include` asks for them.
    include: what else becomes a column: key, topic, partition, offset, timestamp, headers; a
        mapping gives them other names.
    start, stop: offsets; with `stop` the source is bounded. discovery_interval: how often new
        partitions are looked for; None: once.
    group_id: who gets the offsets of completed checkpoints; None: nobody.
    malformed: "fail" fails the job, "skip" drops such records, an OutputTag sends them whole to a
        side output (columns: `records.DEAD_LETTERS`).
    properties: librdkafka's, or Java's where they are known.

    Record timestamps become event times. Only committed records are read unless the property
    isolation.level says read_uncommitted.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topics: str | Sequence[str] | None = None,
        *,
        topic_pattern: str | None = None,
        partitions: Iterable[KafkaTopicPartition | tuple[str, int]] | None = None,
        value: Format | DeserializationSchema | None = None,
        key: Format | None = None,
        include: Sequence[str] | Mapping[str, str] = (),
        start: KafkaOffsetsInitializer | None = None,
        stop: KafkaOffsetsInitializer | None = None,
        discovery_interval: timedelta | None = DISCOVERY,
        group_id: str | None = None,
        malformed: Literal["fail", "skip"] | OutputTag = "fail",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        only = None if partitions is None else frozenset(_partitions(partitions))
        names = _topics(topics, topic_pattern, only)
        beginning = KafkaOffsetsInitializer.earliest() if start is None else start
        given = KafkaProperties(properties or {})
        _refuse(given, beginning, group_id)
        named = {} if group_id is None else {"group.id": group_id}
        servers = {"bootstrap.servers": bootstrap_servers}
        merged = {**_DEFAULTS, **given, **named, **servers, **_OURS}
        self._properties = KafkaProperties(merged)
        check_properties(self._properties)
        self._commits = group_id is not None or "group.id" in given
        interval = None if stop is not None else _milliseconds(discovery_interval)
        self._discovery = Discovery(names, topic_pattern, only, beginning, stop, interval)
        self._bounded = stop is not None
        schema = value if isinstance(value, DeserializationSchema) else None
        form = value.format if isinstance(value, DeserializationSchema) else value
        self._decoder = RecordDecoder(
            form or BytesFormat(),
            key or raw(),
            tuple(
                include.items()
                if isinstance(include, Mapping)
                else ((name, name) for name in include)
            ),
            schema is not None and schema.objects,
            _tag(malformed if schema is None or not schema.skips_malformed else "skip"),
        )
        if self._decoder.objects and include:
            raise ConfigurationError(
                "include adds columns, and the records of this KafkaSource are objects: give value "
                "a format such as StringFormat() or JsonFormat(...)"
            )

    def __repr__(self) -> str:
        wanted = self._discovery
        what = wanted.pattern if wanted.pattern is not None else ", ".join(wanted.topics)
        return f"KafkaSource({what} at {self._properties['bootstrap.servers']})"

    @staticmethod
    def builder() -> KafkaSourceBuilder[KafkaSource]:
        """As in PyFlink."""
        return KafkaSourceBuilder(_built)

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def schema(self) -> pa.Schema | None:
        return None if self._decoder.objects else self._decoder.schema

    def malformed_to(self, tag: str) -> KafkaSource | None:
        """None where `malformed` was given, or the schema skips such records."""
        if self._decoder.dead_letters is not None:
            return None
        other = copy(self)
        other._decoder = replace(self._decoder, dead_letters=tag)
        return other

    def reads_from(self) -> tuple[str, ...]:
        wanted = self._discovery
        if wanted.only is not None:
            return tuple(sorted(f"{one.topic}-{one.partition}" for one in wanted.only))
        return wanted.topics if wanted.pattern is None else (wanted.pattern,)

    def create_enumerator(
        self, context: EnumeratorContext, restored: EnumeratorState | None
    ) -> KafkaEnumerator:
        properties = self._properties
        return KafkaEnumerator(
            context, self._discovery, lambda: ClusterClient(properties), SystemClock(), restored
        )

    def create_reader(self, context: ReaderContext) -> KafkaReader:
        return KafkaReader(
            context,
            self._properties,
            self._decoder,
            self._commits,
            asks_every_ms(self._discovery.interval_ms),
        )


def _built(arguments: dict[str, Any], bounded: bool, commits: bool) -> KafkaSource:
    source = KafkaSource(**arguments)
    source._bounded = bounded
    source._commits = commits and source._commits
    return source


def _partitions(
    given: Iterable[KafkaTopicPartition | tuple[str, int]],
) -> list[KafkaTopicPartition]:
    return [KafkaTopicPartition(*each) for each in given]


def _topics(
    topics: str | Sequence[str] | None,
    pattern: str | None,
    only: frozenset[KafkaTopicPartition] | None,
) -> tuple[str, ...]:
    if sum(each is not None for each in (topics, pattern, only)) != 1:
        raise ConfigurationError("a KafkaSource needs one of topics, topic_pattern and partitions")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigurationError(f"topic_pattern {pattern!r} is no pattern: {error}") from None
        return ()
    if only is not None:
        names = sorted({partition.topic for partition in only})
    else:
        names = [topics] if isinstance(topics, str) else list(topics or ())
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(f"a KafkaSource needs names of topics, has {names}")
    return tuple(dict.fromkeys(names))


def _refuse(given: KafkaProperties, start: KafkaOffsetsInitializer, group_id: str | None) -> None:
    for name, value in _OURS.items():
        if given.get(name, value) != value:
            raise ConfigurationError(
                f"Kafka property '{name}' must be {value}: positions are kept in checkpoints"
            )
    if start.kind == "committed" and group_id is None and "group.id" not in given:
        raise ConfigurationError("committed offsets need a group_id: whose offsets are they?")


def _milliseconds(interval: timedelta | None) -> int | None:
    if interval is None:
        return None
    if interval <= timedelta(0):
        raise ConfigurationError(f"discovery_interval must be positive or None, is {interval}")
    return max(1, round(interval.total_seconds() * 1000))


def _tag(malformed: Literal["fail", "skip"] | OutputTag) -> str | None:
    if isinstance(malformed, OutputTag):
        return malformed.tag_id
    if malformed not in ("fail", "skip"):
        raise ConfigurationError(
            f'malformed must be "fail", "skip" or an OutputTag, is {malformed!r}'
        )
    return None if malformed == "fail" else SKIPPED
