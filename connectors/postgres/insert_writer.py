"""Writers that write as they go: plain inserts, and upserts by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...api.connectors.base import PreparedCommit, WriterContext
from ...core.batch import Batch
from .gathering_writer import GatheringWriter, fitting
from .merging import delete_rows, upsert_rows
from .rows import Rows, as_rows, copy_in, last_of_keys, named
from .sink_config import PostgresSinkConfig
from .tables import TableInfo, describe
from .worker import Piece

if TYPE_CHECKING:
    from .connection import Session


class InsertWriter(GatheringWriter):
    """At least once: everything is written before the barrier is acknowledged."""

    def __init__(self, config: PostgresSinkConfig, context: WriterContext) -> None:
        super().__init__(config, context)
        self._last: Piece | None = None
        """Of the work submitted last; when it is done, all is."""

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        self._submit()
        last, self._last = self._last, None
        if last is None:
            return []

        def written() -> Sequence[Any]:
            self._worker.finish(last)
            return []

        return written

    def commit(self, committables: Sequence[Any]) -> None:
        """Nothing is left to publish."""

    def close(self) -> None:
        self._worker.close()

    def _submit(self) -> Piece | None:
        batches = self._gathered.take()
        if not batches:
            return None
        self._last = self._worker.submit(
            self._doing, lambda session, again: self._write(session, batches)
        )
        return self._last

    def _prepare(self, session: Session) -> None:
        self._info = describe(session, self._config.table)

    def _write(self, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        rows = as_rows(batches)
        info = self._target(rows)
        copy_in(session, info.quoted, rows)

    def _target(self, rows: Rows) -> TableInfo:
        """The table; ConnectorError if it lacks columns."""
        assert self._info is not None, "the worker has prepared"
        return fitting(self._info, list(rows.columns))


_UPSERTS = "strom_upserts"
"""Temporary tables are found ahead of others of the name."""
_DELETES = "strom_deletes"


class UpsertWriter(InsertWriter):
    """Copies into temporary tables and merges from there, a transaction for each piece of work."""

    def __init__(
        self, config: PostgresSinkConfig, key: tuple[str, ...], context: WriterContext
    ) -> None:
        super().__init__(config, context)
        self._key = key
        self._staged: tuple[str, ...] | None = None
        """The columns that the connection's temporary tables have."""

    def _accept(self, batch: Batch) -> None:
        """Changelogs are what it is for."""

    def _prepare(self, session: Session) -> None:
        super()._prepare(session)
        self._staged = None

    def _write(self, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        from psycopg import sql

        upserts, deletes = last_of_keys(as_rows(batches), self._key, self._config.table)
        info = self._target(upserts)
        names = list(upserts.columns)
        self._stage(session, info, names)
        with session.transaction():
            if len(deletes):
                copy_in(session, sql.Identifier(_DELETES), deletes)
                session.execute(delete_rows(info, self._key, sql.Identifier(_DELETES)))
            if len(upserts):
                copy_in(session, sql.Identifier(_UPSERTS), upserts)
                source = sql.Identifier(_UPSERTS)
                session.execute(upsert_rows(info, names, self._key, source))

    def _stage(self, session: Session, info: TableInfo, names: Sequence[str]) -> None:
        """The temporary tables, empty between transactions."""
        from psycopg import sql

        if self._staged == tuple(names):
            return
        for table, columns in ((_UPSERTS, names), (_DELETES, self._key)):
            session.execute(
                sql.SQL("DROP TABLE IF EXISTS pg_temp.{}").format(sql.Identifier(table))
            )
            session.execute(
                sql.SQL(
                    "CREATE TEMPORARY TABLE {} ON COMMIT DELETE ROWS AS SELECT {} FROM {} "
                    "WITH NO DATA"
                ).format(sql.Identifier(table), named(columns), info.quoted)
            )
        self._staged = tuple(names)
