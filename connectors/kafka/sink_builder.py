"""PyFlink's names for making a `KafkaSink`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from ...core.errors import ConfigurationError
from .schemas import SerializationSchema
from .serialization import Encoder

Delivery = Literal["exactly-once", "at-least-once", "none"]


class DeliveryGuarantee(Enum):
    """What a sink promises."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class KafkaTopicSelector(ABC):
    """Says each record's topic. Called record by record; a column of them is faster."""

    @abstractmethod
    def apply(self, data: Any) -> str:
        """The topic of a record."""


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """How records of a stream become records of a topic."""

    topic: str | None
    selector: KafkaTopicSelector | None
    value: Encoder
    key: Encoder | None

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """`KafkaRecordSerializationSchema.builder().set_topic(...)....build()`.

    Schemas are PyFlink's (`SimpleStringSchema`, `JsonRowSerializationSchema`,
    `CsvRowSerializationSchema`, `AvroRowSerializationSchema`), or strom's encoders."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._selector: KafkaTopicSelector | None = None
        self._value: Encoder | None = None
        self._key: Encoder | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        if not isinstance(topic_selector, KafkaTopicSelector):
            raise ConfigurationError(
                f"set_topic_selector: give a KafkaTopicSelector, not {topic_selector!r}"
            )
        self._selector = topic_selector
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: Any
    ) -> KafkaRecordSerializationSchemaBuilder:
        self._value = _encoder(value_serialization_schema)
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: Any
    ) -> KafkaRecordSerializationSchemaBuilder:
        self._key = _encoder(key_serialization_schema)
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        if self._value is None:
            raise ConfigurationError(
                "KafkaRecordSerializationSchema needs set_value_serialization_schema(...)"
            )
        if (self._topic is None) == (self._selector is None):
            raise ConfigurationError(
                "KafkaRecordSerializationSchema needs set_topic(...) or set_topic_selector(...)"
            )
        return KafkaRecordSerializationSchema(self._topic, self._selector, self._value, self._key)


Made = TypeVar("Made")


class KafkaSinkBuilder(Generic[Made]):
    """`KafkaSink.builder().set_bootstrap_servers(...)....build()`."""

    def __init__(self, make: Callable[..., Made]) -> None:
        """`make`: a KafkaSink of its arguments."""
        self._make = make
        self._servers: str | None = None
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._delivery: Delivery = "none"
        self._prefix: str | None = None
        self._properties: dict[str, Any] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder[Made]:
        self._servers = bootstrap_servers
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder[Made]:
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(
        self, delivery_guarantee: DeliveryGuarantee
    ) -> KafkaSinkBuilder[Made]:
        """Without it there is none, as in PyFlink."""
        self._delivery = DeliveryGuarantee(delivery_guarantee).value
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder[Made]:
        self._prefix = transactional_id_prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder[Made]:
        self._properties[key] = value
        return self

    def build(self) -> Made:
        servers = self._servers or self._properties.get("bootstrap.servers")
        if servers is None or self._serializer is None:
            raise ConfigurationError(
                "KafkaSink needs set_bootstrap_servers(...) and set_record_serializer(...)"
            )
        made = self._serializer
        return self._make(
            servers,
            made.topic,
            made.value,
            made.key,
            topic_column=None if made.selector is None else made.selector.apply,
            delivery=self._delivery,
            transactional_id_prefix=self._prefix,
            properties=self._properties,
        )


def _encoder(schema: Any) -> Encoder:
    if isinstance(schema, Encoder):
        return schema
    if isinstance(schema, SerializationSchema):
        return schema.encoder
    raise ConfigurationError(
        f"{schema!r} is no way to write records: give SimpleStringSchema(), "
        "JsonRowSerializationSchema, CsvRowSerializationSchema, AvroRowSerializationSchema, or an "
        "encoder"
    )
