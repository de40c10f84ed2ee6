"""A replayable source of Kafka records that Spark's executors read.

    enumerator   which partitions there are, and where they begin: asked once, and again for new
                 ones if partitions are looked for
    split        a partition with the next offset to emit: that is what a checkpoint holds
    reader       asks how far its partitions reach, has Spark read ranges of offsets, two ahead of
                 the one it emits, and emits each partition's records in order

A range is bounded, so memory is; it lives in the object store until it is emitted. Positions move
with what is emitted, so ranges that were read ahead are read again after a failure.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa

from ...api.connectors.base import (
    EnumeratorContext,
    ReaderContext,
    Source,
    SplitEnumerator,
)
from ...core.errors import ConfigurationError
from ..kafka.offsets import owner_of
from .bridge import storable
from .calls import PENDING, GatewayCall
from .kafka_ranges import COLUMNS, LEAST_TIME_MS, KafkaRead, KafkaSplit, Partition, Start
from .kafka_reader import KafkaReader, Reading
from .options import SparkOptions, require_spark

RECORD: Final = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_type": pa.int32(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)
"""The columns of a record, unless `select` makes others. `timestamp_type`: 0 when it was made by
its producer, 1 by the broker."""

Position = str | datetime | Mapping[str, Mapping[int, int]]
"""earliest, latest, committed; the first record as new as a time; topic -> partition -> offset."""


class SparkKafkaSource(Source):
    """Records of Kafka topics, read by Spark's executors in ranges of offsets.

    `topics`: one or several, or `pattern`, a Java regular expression of whole names. `start`: see
    `Position`; "committed" goes on behind what `group` has committed, and where it has not, from
    `otherwise`, as partitions do that given offsets leave out. `stop`: the source is bounded and
    ends there ("latest": where the log ends when the job starts); None: it never ends.

    Event time is the record's timestamp. `select` are Spark SQL expressions over the columns of
    RECORD, evaluated by the executors; `schema` then names and types of the results. `discover`:
    how often new partitions (and topics, of a pattern) are looked for; these are read from their
    beginning. `group`: what a checkpoint covers is committed for it, for others to see; recovery
    goes by the checkpoint alone. `settings` are a Kafka consumer's (TLS, SASL, ...).

    Only committed records are read unless `settings` say `isolation.level` `read_uncommitted`. A
    position whose records have expired fails the job; with `expired="skip"` reading goes on with
    the first record there is.
    """

    def __init__(
        self,
        servers: str,
        topics: str | Sequence[str] = (),
        *,
        pattern: str | None = None,
        start: Position = "earliest",
        stop: Position | None = None,
        otherwise: str = "earliest",
        group: str | None = None,
        select: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        discover: timedelta | None = None,
        expired: str = "fail",
        records_per_range: int = 65_536,
        look_every: timedelta = timedelta(milliseconds=250),
        settings: Mapping[str, str] | None = None,
        options: SparkOptions | None = None,
    ) -> None:
        require_spark()
        named = (topics,) if isinstance(topics, str) else tuple(topics)
        if bool(named) == bool(pattern):
            raise ConfigurationError(
                "SparkKafkaSource reads either `topics` or those of a `pattern`: "
                f"topics is {named}, pattern is {pattern!r}"
            )
        if (select is None) != (schema is None):
            raise ConfigurationError(
                "SparkKafkaSource: `select` (Spark SQL expressions) and `schema` (their names and "
                "types) are given together, or neither"
            )
        if expired not in ("fail", "skip"):
            raise ConfigurationError(f"expired must be 'fail' or 'skip', is {expired!r}")
        if otherwise not in ("earliest", "latest"):
            raise ConfigurationError(f"otherwise must be earliest or latest, is {otherwise!r}")
        if records_per_range < 1:
            raise ConfigurationError(
                f"records_per_range must be at least 1, is {records_per_range}"
            )
        if stop is not None and discover is not None:
            raise ConfigurationError(
                "SparkKafkaSource: a source with `stop` reads the partitions that there are when "
                "the job starts: leave `discover` away"
            )
        first = _start("start", start, otherwise)
        if first.kind == "committed" and group is None:
            raise ConfigurationError('start="committed" needs the `group` whose offsets they are')
        self.read = KafkaRead(
            servers,
            named,
            pattern,
            first,
            None if stop is None else _start("stop", stop, "latest"),
            group,
            COLUMNS if select is None else tuple(select),
            dict(settings or {}),
        )
        self.discover_ms = None if discover is None else _ms("discover", discover)
        self.options = options
        self._schema = RECORD if schema is None else storable(schema)
        self._reading = Reading(
            self.read,
            self._schema,
            self.discover_ms,
            _ms("look_every", look_every),
            records_per_range,
            expired == "skip",
            options,
        )

    def __repr__(self) -> str:
        return f"SparkKafkaSource({self.read.what})"

    @property
    def bounded(self) -> bool:
        return self.read.stop is not None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def reads_from(self) -> tuple[str, ...]:
        return (self.read.what,)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> KafkaEnumerator:
        return KafkaEnumerator(self, context, restored)

    def create_reader(self, context: ReaderContext) -> KafkaReader:
        return KafkaReader(self._reading, context)


@dataclass(frozen=True)
class EnumeratorState:
    """`known`: all partitions ever found, None before the first answer; `left`: those found and not
    given away."""

    known: frozenset[Partition] | None
    left: tuple[KafkaSplit, ...]


class KafkaEnumerator(SplitEnumerator):
    """Deals partitions out: each has a subtask it belongs to."""

    def __init__(
        self,
        source: SparkKafkaSource,
        context: EnumeratorContext,
        restored: EnumeratorState | None,
    ) -> None:
        self._source = source
        self._context = context
        self._known = None if restored is None else restored.known
        self._left = [] if restored is None else list(restored.left)
        self._call: GatewayCall | None = None
        """The question under way."""
        self._ask_at = math.inf
        """Monotonic time of the next one."""
        if self._known is None or source.discover_ms is not None:
            self._ask()

    def next_splits(self, subtask: int) -> Sequence[KafkaSplit] | None:
        self._listen()
        if self._call is None and time.monotonic() >= self._ask_at:
            self._ask()
        if self._known is None:
            return ()
        mine = [split for split in self._left if self._owner(split) == subtask]
        self._left = [split for split in self._left if self._owner(split) != subtask]
        return mine or (() if self._source.discover_ms is not None else None)

    def snapshot(self) -> EnumeratorState:
        self._listen()
        return EnumeratorState(self._known, tuple(self._left))

    def close(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _ask(self) -> None:
        every = self._source.discover_ms
        self._ask_at = math.inf if every is None else time.monotonic() + every / 1000
        self._call = GatewayCall(
            "kafka_find",
            self._source.read,
            self._known,
            options=self._source.options,
            operator=self._context.operator,
            subtask=0,
        )

    def _listen(self) -> None:
        if self._call is None:
            return
        found = self._call.poll()
        if found is PENDING:
            return
        self._call = None
        self._known = (self._known or frozenset()) | {(s.topic, s.partition) for s in found}
        self._left += [s for s in found if s.stop is None or s.offset < s.stop]

    def _owner(self, split: KafkaSplit) -> int:
        return owner_of(split.topic, split.partition, self._context.parallelism)


def _start(name: str, position: Position, otherwise: str) -> Start:
    match position:
        case "earliest" | "latest":
            return Start(str(position))
        case "committed" if name == "start":
            return Start("committed", otherwise=otherwise)
        case datetime():
            if position.tzinfo is None:
                raise ConfigurationError(f"{name}: {position} needs a time zone")
            return _at(name, position, round(position.timestamp() * 1000))
        case Mapping():
            given = {(t, p): offset for t, parts in position.items() for p, offset in parts.items()}
            return Start("offsets", offsets=given, otherwise=otherwise)
    raise ConfigurationError(
        f"{name} must be earliest, latest, committed (to start), a datetime or offsets like "
        f"{{'topic': {{0: 5}}}}, is {position!r}"
    )


def _at(name: str, position: datetime, ms: int) -> Start:
    """All records are as new as 1970."""
    if ms == 0:
        return Start("earliest")
    if ms < LEAST_TIME_MS:
        raise ConfigurationError(
            f"{name}: Kafka cannot be asked through Spark for times before 1970-01-25T20:31:23.648Z"
            f", {position} is one: give offsets or 'earliest'"
        )
    return Start("timestamp", timestamp=ms)


def _ms(name: str, interval: timedelta) -> int:
    ms = round(interval.total_seconds() * 1000)
    if ms < 1:
        raise ConfigurationError(f"{name} must be at least a millisecond, is {interval}")
    return ms
