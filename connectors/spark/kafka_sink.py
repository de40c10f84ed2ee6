"""A sink that has Spark's executors produce records to Kafka: at least once.

Spark's Kafka writer has no transactions, so what was produced since the last checkpoint is produced
again after a failure. Nothing is lost: a checkpoint completes only after the brokers have
acknowledged every record before it. For exactly once, write with transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from ...api.connectors.base import PreparedCommit, Sink, SinkWriter, WriterContext
from ...api.types.type_info import schema_of
from ...core.batch import Batch, to_columns
from ...core.errors import ConfigurationError, OperatorError
from .bridge import encode, storable
from .calls import PENDING, GatewayCall
from .kafka_ranges import KafkaWrite
from .options import SparkOptions, require_spark

BLOCKS_UNDER_WAY: Final = 4
"""More than these, and the stream waits for Kafka."""

_TAKEN: Final = ("key", "value", "topic", "headers")
"""Columns that are Kafka's without being told. Not `partition`: of a record that was read from
Kafka it is that of another topic."""


class SparkKafkaSink(Sink):
    """Writes to `topic`, or to the topic that the records' column `topic` says. At least once:
    after a failure, records behind the last checkpoint come again.

    `value`, `key`, `headers` and `partition` are Spark SQL expressions over the stream's columns,
    evaluated by the executors. Without `value` the column of that name is taken, or else the whole
    record as JSON; without `key` and `headers` the columns of these names, where there are any;
    without `partition` Kafka's producer chooses. Values and keys are strings or binary, headers an
    array of structs of a string `key` and a binary `value`.

    A block of `block_bytes` is produced when it is full, the rest at each checkpoint. `settings`
    are a Kafka producer's (acks, TLS, SASL, ...).
    """

    revocable = True
    remark = "at least once: after a failure Spark produces records again"

    def __init__(
        self,
        servers: str,
        topic: str | None = None,
        *,
        value: str | None = None,
        key: str | None = None,
        headers: str | None = None,
        partition: str | None = None,
        schema: Any = None,
        block_bytes: int = 8 << 20,
        settings: Mapping[str, str] | None = None,
        options: SparkOptions | None = None,
    ) -> None:
        require_spark()
        if block_bytes < 1:
            raise ConfigurationError(f"block_bytes must be at least 1, is {block_bytes}")
        self.servers = servers
        self.topic = topic
        given = {"value": value, "key": key, "headers": headers, "partition": partition}
        self.expressions = {name: text for name, text in given.items() if text is not None}
        self.schema = schema_of(schema)
        self.block_bytes = block_bytes
        self.settings = dict(settings or {})
        self.options = options

    def __repr__(self) -> str:
        return f"SparkKafkaSink({self.topic or 'topics of the records'} at {self.servers})"

    def create_writer(self, context: WriterContext) -> KafkaWriter:
        return KafkaWriter(self, context)


class KafkaWriter(SinkWriter):
    """One subtask's writer."""

    def __init__(self, sink: SparkKafkaSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._batches: list[pa.RecordBatch] = []
        """Rows that are in no block yet, all of `_schema`."""
        self._bytes = 0
        """Size of `_batches`."""
        self._calls: deque[GatewayCall] = deque()
        """Blocks being produced, the oldest first."""
        self._schema: pa.Schema | None = None
        """Columns of all rows written; set by the first batch."""

    def write(self, batch: Batch) -> None:
        rows = to_columns(batch, self._sink.schema).data
        if self._schema is None:
            self._schema = storable(rows.schema)
        elif rows.schema.names != self._schema.names:
            raise self._error(f"columns {rows.schema.names} after columns {self._schema.names}")
        self._batches.append(rows.cast(self._schema))
        self._bytes += int(rows.nbytes)
        if self._bytes >= self._sink.block_bytes:
            self._seal()
            self._settle(BLOCKS_UNDER_WAY)

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        self._seal()
        calls, self._calls = list(self._calls), deque()
        if not calls:
            return ()

        def acknowledged() -> Sequence[Any]:
            for call in calls:
                call.wait()
            return ()

        return acknowledged

    def commit(self, committables: Sequence[Any]) -> None:
        """Nothing: all is there when the checkpoint is complete."""

    def revoke(self, after: int) -> None:
        """Nothing: what comes again does no harm to a sink that is at least once."""

    def close(self) -> None:
        for call in self._calls:
            call.cancel()
        self._calls.clear()
        self._batches, self._bytes = [], 0

    def _seal(self) -> None:
        """Have Spark produce what there is."""
        if not self._batches:
            return
        import ray

        assert self._schema is not None
        block = ray.put(encode(pa.Table.from_batches(self._batches)))
        self._batches, self._bytes = [], 0
        self._calls.append(
            GatewayCall(
                "kafka_write",
                [block],
                self._schema,
                self._what(self._schema),
                options=self._sink.options,
                operator=self._context.operator,
                subtask=self._context.subtask,
            )
        )

    def _settle(self, most: int) -> None:
        """Hear of blocks that were produced; wait until at most so many are under way."""
        while self._calls and self._calls[0].poll() is not PENDING:
            self._calls.popleft()
        while len(self._calls) > most:
            self._calls.popleft().wait()

    def _what(self, schema: pa.Schema) -> KafkaWrite:
        sink, names = self._sink, schema.names
        made = {name: f"`{name}`" for name in _TAKEN if name in names} | sink.expressions
        if "value" not in made:
            made["value"] = "to_json(struct(*))"
        if sink.topic is not None:
            made.pop("topic", None)
        elif "topic" not in made:
            raise self._error(
                f"SparkKafkaSink has no topic, and the stream no column 'topic': it has {names}"
            )
        columns = tuple(f"{text} AS {name}" for name, text in made.items())
        return KafkaWrite(sink.servers, sink.topic, columns, sink.settings)

    def _error(self, summary: str) -> OperatorError:
        return OperatorError(self._context.operator, self._context.subtask, summary)
