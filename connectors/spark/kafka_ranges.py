"""Kafka as Spark's batch reader sees it: ranges of offsets, which every attempt reads alike.

Which partitions there are, where they begin and end, and which offset a time has, a Kafka consumer
inside Spark's driver says, with the same settings as the executors' consumers. The records of a
range `spark.read.format("kafka")` reads with both ends given, so nothing depends on when it runs:
a range that is read again gives the same records, or fails because they have expired.

All functions run in the gateway. Offsets of a topic may have gaps (compacted records, marks of
transactions): positions are offsets, never counts of records.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ...core.errors import ConfigurationError, ConnectorError, TransportError

Partition = tuple[str, int]
"""A topic and the number of a partition in it."""

OFFSET: Final = "__offset"
TIME: Final = "__time"
"""Hidden columns of a range: the record's offset, and its timestamp in ms."""

COLUMNS: Final = (
    *("key", "value", "topic", "partition", "offset", "timestamp"),
    *("timestampType AS timestamp_type", "headers"),
)
"""Without `select`: all that Kafka knows of a record."""

LEAST_TIME_MS: Final = 1 << 31
"""Smaller numbers cannot be asked for: they arrive as Java Integers, and Kafka takes Longs."""

_ANSWER_MS: Final = "15000"
"""How long a question to the brokers may take."""


@dataclass(frozen=True)
class Start:
    """Where to begin, or to stop. `kind`: earliest, latest, committed, timestamp or offsets.

    timestamp: ms since the epoch, at least LEAST_TIME_MS; offsets: partition -> offset, all others
    from `otherwise`, which is also for partitions without a committed offset."""

    kind: str
    timestamp: int = 0
    offsets: Mapping[Partition, int] = field(default_factory=dict)
    otherwise: str = "earliest"


@dataclass(frozen=True)
class KafkaRead:
    """What to read. Either `topics` or `pattern` (a Java regular expression of whole names).

    `settings` are a Kafka consumer's; they may hold secrets, so no text shows them. `select`: Spark
    SQL expressions over the columns of a record. `stop` None: never."""

    servers: str
    topics: tuple[str, ...]
    pattern: str | None
    start: Start
    stop: Start | None = None
    group: str | None = None
    select: tuple[str, ...] = COLUMNS
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def what(self) -> str:
        """For messages."""
        named = f"pattern '{self.pattern}'" if self.pattern else f"{', '.join(self.topics)}"
        return f"Kafka {named} at {self.servers}"


@dataclass(frozen=True)
class KafkaSplit:
    """A partition: `offset` is the next to emit, `stop` the one not to emit any more (None:
    never)."""

    topic: str
    partition: int
    offset: int
    stop: int | None = None

    @property
    def split_id(self) -> str:
        return f"{self.topic}-{self.partition}"

    def at(self, offset: int) -> KafkaSplit:
        return replace(self, offset=offset)


@dataclass(frozen=True)
class KafkaRange:
    """The records of a partition with offsets in [`start`, `stop`)."""

    topic: str
    partition: int
    start: int
    stop: int


@dataclass(frozen=True)
class KafkaWrite:
    """`columns`: Spark SQL expressions that make Kafka's columns; `topic` None: one of them does.
    `settings` are a Kafka producer's; no text shows them."""

    servers: str
    topic: str | None
    columns: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


def find(spark: Any, read: KafkaRead, known: frozenset[Partition] | None) -> list[KafkaSplit]:
    """The partitions to read, in order, with both ends as offsets. With `known`: those not among
    them, from offset 0 of what is there.

    Raises ConfigurationError for a topic that does not exist."""
    with _consumer(spark, read) as consumer:
        found = _partitions(spark, consumer, read)
        new = sorted(found if known is None else found - known)
        if not new:
            return []
        start = read.start if known is None else Start("earliest")
        starts = _offsets(spark, consumer, new, start)
        if read.stop is None:
            return [KafkaSplit(*one, starts[one]) for one in new]
        stops = _offsets(spark, consumer, new, read.stop)
        return [KafkaSplit(*one, starts[one], max(starts[one], stops[one])) for one in new]


def bounds(
    spark: Any, read: KafkaRead, wanted: Sequence[Partition]
) -> dict[Partition, tuple[int, int]]:
    """Of each partition the first offset that is there and the one behind the last. Raises
    ConnectorError for a partition that is gone."""
    with _consumer(spark, read) as consumer:
        there: set[Partition] = set()
        for topic in sorted({topic for topic, _ in wanted}):
            there |= _partitions_of(consumer, topic)
        if gone := sorted(set(wanted) - there):
            names = ", ".join(f"{topic}-{number}" for topic, number in gone)
            raise ConnectorError(
                f"{names} is gone from Kafka at {read.servers}: the topic was deleted, or made "
                "anew with fewer partitions, while the job reads it. Start the job without this "
                "source's state (another uid), or give the topic back"
            )
        listed = _listed(spark, wanted)
        first, last = consumer.beginningOffsets(listed), consumer.endOffsets(listed)
        firsts, lasts = _by_partition(first), _by_partition(last)
        return {one: (firsts[one], lasts[one]) for one in wanted}


def read_range(spark: Any, read: KafkaRead, wanted: KafkaRange) -> Any:
    """A Spark frame of one partition with the range's records in order of offsets: the columns of
    `read.select`, OFFSET and TIME."""
    topic, number = wanted.topic, str(wanted.partition)
    options = {
        "kafka.bootstrap.servers": read.servers,
        "assign": json.dumps({topic: [wanted.partition]}),
        "startingOffsets": json.dumps({topic: {number: wanted.start}}),
        "endingOffsets": json.dumps({topic: {number: wanted.stop}}),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        **{f"kafka.{name}": value for name, value in _settings(read).items()},
    }
    frame = spark.read.format("kafka").options(**options).load()
    return frame.selectExpr(
        *read.select, f"offset AS {OFFSET}", f"unix_millis(timestamp) AS {TIME}"
    ).coalesce(1)


def check_there(spark: Any, read: KafkaRead, wanted: KafkaRange) -> None:
    """Called when reading a range failed: raise what explains it, if Kafka does. ConnectorError if
    its records have expired or its topic is gone, TransportError if the brokers do not answer."""
    one = wanted.topic, wanted.partition
    first, _ = bounds(spark, read, [one])[one]
    if wanted.start < first:
        raise ConnectorError(expired(one, wanted.start, first))


def expired(one: Partition, position: int, first: int) -> str:
    """The sentence for a position whose records are gone."""
    return (
        f"topic '{one[0]}', partition {one[1]}: this job's position is offset {position}, and the "
        f"log begins at {first}: {first - position} records expired before they were read. Keep "
        'them longer (retention.ms), or go on without them: SparkKafkaSource(expired="skip")'
    )


def commit(spark: Any, read: KafkaRead, positions: Mapping[Partition, int]) -> None:
    """Set the committed offsets of `read.group`."""
    jvm = spark._jvm
    offsets = jvm.java.util.HashMap()
    for (topic, number), offset in positions.items():
        partition = jvm.org.apache.kafka.common.TopicPartition(topic, number)
        offsets.put(partition, jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset))
    with _consumer(spark, read) as consumer:
        consumer.commitSync(offsets)


def write_frame(frame: Any, write: KafkaWrite) -> None:
    """Produce the frame's rows; returns when they are acknowledged."""
    options = {
        "kafka.bootstrap.servers": write.servers,
        **({} if write.topic is None else {"topic": write.topic}),
        **{f"kafka.{name}": value for name, value in write.settings.items()},
    }
    try:
        frame.selectExpr(*write.columns).write.format("kafka").options(**options).save()
    except Exception as error:
        raise _translated(error, write.servers) from None


@contextmanager
def _consumer(spark: Any, read: KafkaRead) -> Iterator[Any]:
    """A Kafka consumer in Spark's driver, for questions only."""
    jvm = spark._jvm
    settings = jvm.java.util.HashMap()
    for name, value in _settings(read).items():
        settings.put(name, value)
    settings.put("bootstrap.servers", read.servers)
    settings.put("default.api.timeout.ms", _ANSWER_MS)
    settings.put("request.timeout.ms", _ANSWER_MS)
    settings.put("enable.auto.commit", "false")
    settings.put("allow.auto.create.topics", "false")
    if read.group is not None:
        settings.put("group.id", read.group)
    plain = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
    try:
        consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings, plain(), plain())
    except Exception as error:
        raise _translated(error, read.servers) from None
    try:
        yield consumer
    except (ConfigurationError, ConnectorError):
        raise
    except Exception as error:
        raise _translated(error, read.servers) from None
    finally:
        consumer.close(jvm.java.time.Duration.ofSeconds(1))


def _settings(read: KafkaRead) -> dict[str, str]:
    """Records of transactions that were aborted, or are not committed yet, are no records."""
    return {"isolation.level": "read_committed", **read.settings}


def _partitions(spark: Any, consumer: Any, read: KafkaRead) -> set[Partition]:
    topics = list(read.topics)
    if read.pattern is not None:
        wanted = spark._jvm.java.util.regex.Pattern.compile(read.pattern)
        names = [str(name) for name in consumer.listTopics().keySet()]
        topics = [name for name in names if wanted.matcher(name).matches()]
    found: set[Partition] = set()
    for topic in topics:
        there = _partitions_of(consumer, topic)
        if not there:
            raise ConfigurationError(
                f"there is no topic '{topic}' in Kafka at {read.servers}: create it first, or "
                "correct the name"
            )
        found |= there
    return found


def _partitions_of(consumer: Any, topic: str) -> set[Partition]:
    infos = consumer.partitionsFor(topic)
    return {(topic, int(info.partition())) for info in infos or ()}


def _offsets(
    spark: Any, consumer: Any, wanted: Sequence[Partition], start: Start
) -> dict[Partition, int]:
    listed = _listed(spark, wanted)
    match start.kind:
        case "earliest":
            return _by_partition(consumer.beginningOffsets(listed))
        case "latest":
            return _by_partition(consumer.endOffsets(listed))
        case "timestamp":
            times = spark._jvm.java.util.HashMap()
            for partition in listed:
                times.put(partition, start.timestamp)
            found = _by_partition(consumer.offsetsForTimes(times), lambda known: known.offset())
            # Where nothing is as new as that, what comes will be.
            otherwise = Start("latest")
        case "committed":
            asked = spark._jvm.java.util.HashSet(listed)
            found = _by_partition(consumer.committed(asked), lambda known: known.offset())
            otherwise = Start(start.otherwise)
        case "offsets":
            found = {one: start.offsets[one] for one in wanted if one in start.offsets}
            otherwise = Start(start.otherwise)
        case _:
            raise AssertionError(start.kind)
    rest = [one for one in wanted if one not in found]
    return found | (_offsets(spark, consumer, rest, otherwise) if rest else {})


def _listed(spark: Any, partitions: Sequence[Partition]) -> Any:
    jvm = spark._jvm
    listed = jvm.java.util.ArrayList()
    for topic, number in partitions:
        listed.add(jvm.org.apache.kafka.common.TopicPartition(topic, number))
    return listed


def _by_partition(answer: Any, value: Any = int) -> dict[Partition, int]:
    """A Java map by partition; entries without a value are left out."""
    return {
        (str(entry.getKey().topic()), int(entry.getKey().partition())): int(value(known))
        for entry in answer.entrySet()
        if (known := entry.getValue()) is not None
    }


_TRANSIENT: Final = ("TimeoutException", "RetriableException", "DisconnectException")
"""Names of Kafka's errors that another try may not meet."""


def _translated(error: Exception, servers: str) -> Exception:
    """Kafka's own errors as sentences; TransportError where another try may help. What Spark or
    Python says stays as it is."""
    chain: list[tuple[str, str]] = []
    cause = getattr(error, "java_exception", None)
    while cause is not None and len(chain) < 20:
        chain.append((str(cause.getClass().getName()), str(cause.getMessage())))
        cause = cause.getCause()
    for name, message in chain:
        if not name.startswith("org.apache.kafka."):
            continue
        short = name.rpartition(".")[2]
        if short in _TRANSIENT:
            return TransportError(f"Kafka at {servers} does not answer: {message}")
        return ConnectorError(f"Kafka at {servers} refused: {short}: {message}")
    return error
