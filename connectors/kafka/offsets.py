"""Partitions, and where a source begins and ends to read them. PyFlink's names."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from ...core.errors import ConfigurationError

EARLIEST: Final = -2
LATEST: Final = -1

Kind = Literal["earliest", "latest", "committed", "timestamp", "offsets"]


class KafkaTopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def owner_of(topic: str, partition: int, parallelism: int) -> int:
    """The subtask that reads a partition: as in Flink those of one topic are dealt out in turn,
    beginning anywhere, and the rule is the same in every attempt."""
    return (zlib.crc32(topic.encode()) + partition) % parallelism


class KafkaOffsetResetStrategy(Enum):
    """What to do where an offset is missing, or no longer in the log. NONE: fail, and say so."""

    NONE = "error"
    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Offsets of partitions, found when a job first starts; made by the functions below.

    As a beginning, a partition is read from its offset on; as an end, up to the record before it.
    """

    kind: Kind
    reset: KafkaOffsetResetStrategy
    timestamp_ms: int = 0
    given: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The oldest records there are."""
        return KafkaOffsetsInitializer("earliest", KafkaOffsetResetStrategy.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """What comes from now on; as an end: what is there now."""
        return KafkaOffsetsInitializer("latest", KafkaOffsetResetStrategy.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """What the consumer group has committed. `offset_reset_strategy`: of partitions of which it
        has committed nothing; NONE fails the job."""
        return KafkaOffsetsInitializer("committed", offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first records with this time (ms since the epoch) or a later one; where there is
        none, what comes from now on."""
        if timestamp < 0:
            # To a broker -1 is the end of the log, and -2 its beginning.
            raise ConfigurationError(
                f"Kafka records have no times before 1970, and {timestamp} ms is one: take "
                "earliest() to read all of them"
            )
        return KafkaOffsetsInitializer(
            "timestamp", KafkaOffsetResetStrategy.LATEST, timestamp_ms=timestamp
        )

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition | tuple[str, int], int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """These; `offset_reset_strategy`: of partitions that are not among them."""
        given = {KafkaTopicPartition(*partition): offset for partition, offset in offsets.items()}
        wrong = {str(p): offset for p, offset in given.items() if offset < 0}
        if wrong:
            raise ConfigurationError(f"Kafka offsets must be 0 or more: {wrong}")
        return KafkaOffsetsInitializer(
            "offsets", offset_reset_strategy, given=MappingProxyType(given)
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return KafkaOffsetsInitializer, (self.kind, self.reset, self.timestamp_ms, dict(self.given))


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition from `position`, the next offset to read, to before `stop`; None: for ever."""

    topic: str
    partition: int
    position: int
    stop: int | None = None

    @property
    def split_id(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_read(self) -> bool:
        """Whether nothing is left before the stop."""
        return self.stop is not None and self.position >= self.stop
