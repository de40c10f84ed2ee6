"""`PostgresSink` and `PostgresUpsertSink`: a stream into a table.

    exactly once     staged in tables of their own, published with their checkpoint
    at least once    written as they come; upserts, which replace rows by key, lead to the same

Why staging, and not `PREPARE TRANSACTION`. A prepared transaction holds its locks, and keeps the
vacuum of the whole cluster from cleaning, until somebody ends it: one that a dead job left behind
does so for ever, and an administrator has to find it. It needs `max_prepared_transactions`, which
is 0 by default, as many as subtasks times checkpoints under way; and who commits it must be the
user who prepared it. Staged rows are an ordinary table: nobody waits for it, it is seen in `\\dt`,
a rescaled job publishes those of former subtasks as its own, and the next attempt drops what is
left. The price is that rows are written twice. A table of commits, written in the same transaction
as the rows, says what is published; it makes publishing idempotent, and a loss loud.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ...api.connectors.base import OutputClaim, Sink, SinkWriter, WriterContext
from ...api.types.type_info import schema_of
from ...core.errors import ConfigurationError
from .connection import PostgresConnection
from .insert_writer import InsertWriter, UpsertWriter
from .owners import TableOwners
from .sink_config import PostgresSinkConfig
from .staged_writer import StagedWriter

Guarantee = Literal["exactly_once", "at_least_once"]


class _TableSink(Sink):
    """What both sinks say of whose the table is. At least once that is nobody's: rows are there
    before their checkpoint is complete."""

    config: PostgresSinkConfig
    guarantee: Guarantee
    _asked: bool

    def take_over(self, claim: OutputClaim) -> Sequence[str]:
        if self.guarantee != "exactly_once":
            return ()
        return self._owners().take(claim, self._asked)

    def release(self, claim: OutputClaim, status: str) -> None:
        if self.guarantee == "exactly_once":
            self._owners().release(claim, status)

    def _owners(self) -> TableOwners:
        config = self.config
        return TableOwners(config.connection, config.table, type(self).__name__, self.revocable)


class PostgresSink(_TableSink):
    """Inserts each record as a row.

    connection: a `PostgresConnection`, or what it is made of.
    table: an existing one, `table` or `schema.table`; its columns are found by name, those that the
        stream does not have get their defaults.
    guarantee: "exactly_once": rows appear when their checkpoint completes; the user of the
        connection must be allowed to create tables in the table's schema (staging tables
        `strom_stage_...`, and `strom_commits`). "at_least_once": rows appear at once, and after a
        failure some again.
    schema: of the records (anything that declares a row type); None: as the first batch has it.
    take_over: exactly once, write even if the table is another job's that is not known to be over,
        which is refused from then on; and even if rows are inserted twice by that.
    """

    def __init__(
        self,
        connection: PostgresConnection | str,
        table: str,
        guarantee: Guarantee = "exactly_once",
        *,
        schema: Any = None,
        batch_rows: int = 10_000,
        take_over: bool = False,
    ) -> None:
        _check_guarantee(guarantee)
        self.config = PostgresSinkConfig(
            PostgresConnection.of(connection), table, schema_of(schema), batch_rows
        )
        self.guarantee: Guarantee = guarantee
        self._asked = take_over

    def __repr__(self) -> str:
        return f"PostgresSink({self.config.table}, {self.guarantee})"

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if self.guarantee == "exactly_once":
            return StagedWriter(self.config, context)
        return InsertWriter(self.config, context)


class PostgresUpsertSink(_TableSink):
    """Inserts a row, or replaces the one with its key; of a changelog, -D deletes it.

    Of the changes of a key only the last one is written. A stream that is partitioned by the key
    writes its changes in order; else subtasks may overtake each other.

    key: columns with a primary key or unique constraint on exactly them.
    guarantee: "exactly_once": changes appear when their checkpoint completes. "at_least_once": as
        soon as `batch_rows` have come, or a barrier. After a failure they are written again, which
        leads to the same table if the source gives the same again; on the way rows may be seen as
        they were before. A capture that is restarted while it reads its table does not: a row that
        was deleted in the meantime does not come again, and stays.
    The other arguments: `PostgresSink`. What is published again leads to the same table.
    """

    revocable = True

    def __init__(
        self,
        connection: PostgresConnection | str,
        table: str,
        key: str | tuple[str, ...] | list[str],
        guarantee: Guarantee = "exactly_once",
        *,
        schema: Any = None,
        batch_rows: int = 10_000,
        take_over: bool = False,
    ) -> None:
        _check_guarantee(guarantee)
        self.guarantee: Guarantee = guarantee
        self.key = (key,) if isinstance(key, str) else tuple(key)
        if not self.key or not all(isinstance(name, str) and name for name in self.key):
            raise ConfigurationError(f"key must name one or more columns, is {key!r}")
        self.config = PostgresSinkConfig(
            PostgresConnection.of(connection), table, schema_of(schema), batch_rows
        )
        self._asked = take_over

    def __repr__(self) -> str:
        return f"PostgresUpsertSink({self.config.table}, {', '.join(self.key)}, {self.guarantee})"

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if self.guarantee == "exactly_once":
            return StagedWriter(self.config, context, self.key)
        return UpsertWriter(self.config, self.key, context)


def _check_guarantee(guarantee: object) -> None:
    if guarantee not in ("exactly_once", "at_least_once"):
        raise ConfigurationError(
            f'guarantee must be "exactly_once" or "at_least_once", is {guarantee!r}'
        )
