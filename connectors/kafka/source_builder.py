"""PyFlink's builder of a `KafkaSource`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from ...core.errors import ConfigurationError
from .enumerator import DISCOVERY
from .offsets import KafkaOffsetsInitializer, KafkaTopicPartition
from .schemas import DeserializationSchema

_FLINKS_OWN: Final = frozenset(
    {
        "client.id.prefix",
        "commit.offsets.on.checkpoint",
        "partition.discovery.interval.ms",
        "register.consumer.metrics",
    }
)
"""Properties that the client itself does not know."""


Made = TypeVar("Made")


class KafkaSourceBuilder(Generic[Made]):
    """Each method returns the builder; `build` makes the source or raises ConfigurationError."""

    def __init__(self, make: Callable[[dict[str, Any], bool, bool], Made]) -> None:
        """`make`: a source of arguments by name, whether it counts as one that ends, and whether
        its group gets offsets."""
        self._make = make
        self._servers: str | None = None
        self._group: str | None = None
        self._what: dict[str, Any] = {}
        self._start: KafkaOffsetsInitializer | None = None
        self._stop: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._value: DeserializationSchema | None = None
        self._properties: dict[str, Any] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder[Made]:
        """Servers with ports, separated by commas."""
        self._servers = bootstrap_servers
        return self

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder[Made]:
        """The consumer group that gets the offsets of completed checkpoints."""
        self._group = group_id
        return self

    def set_topics(self, *topics: str) -> KafkaSourceBuilder[Made]:
        self._what["topics"] = topics
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder[Made]:
        """A regular expression for whole names."""
        self._what["topic_pattern"] = topic_pattern
        return self

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> KafkaSourceBuilder[Made]:
        self._what["partitions"] = set(partitions)
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder[Made]:
        self._start = starting_offsets_initializer
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder[Made]:
        """The source ends there."""
        self._stop, self._bounded = stopping_offsets_initializer, True
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder[Made]:
        """The source ends there, too; but the job is run as one whose input has no end."""
        self._stop, self._bounded = stopping_offsets_initializer, False
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder[Made]:
        self._value = deserialization_schema
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder[Made]:
        """How the source's clients are called at the broker."""
        return self.set_property("client.id", prefix)

    def set_property(self, key: str, value: Any) -> KafkaSourceBuilder[Made]:
        self._properties[key] = value
        return self

    def set_properties(self, props: Mapping[str, Any]) -> KafkaSourceBuilder[Made]:
        self._properties.update(props)
        return self

    def build(self) -> Made:
        if self._servers is None and "bootstrap.servers" in self._properties:
            self._servers = str(self._properties["bootstrap.servers"])
        if self._servers is None or self._value is None or not self._what:
            raise ConfigurationError(
                "a KafkaSource needs set_bootstrap_servers(...), set_topics(...) (or a pattern, or "
                "partitions) and set_value_only_deserializer(...)"
            )
        mine = {k: v for k, v in self._properties.items() if k not in _FLINKS_OWN}
        mine.pop("bootstrap.servers", None)
        commits = str(self._properties.get("commit.offsets.on.checkpoint", "true")).lower()
        arguments = {
            **self._what,
            "bootstrap_servers": self._servers,
            "value": self._value,
            "start": self._start,
            "stop": self._stop,
            "discovery_interval": self._interval(),
            "group_id": self._group,
            "properties": mine,
        }
        return self._make(arguments, self._bounded, commits == "true")

    def _interval(self) -> timedelta | None:
        given = self._properties.get("partition.discovery.interval.ms")
        if given is None:
            return DISCOVERY
        milliseconds = int(given)
        return timedelta(milliseconds=milliseconds) if milliseconds > 0 else None
