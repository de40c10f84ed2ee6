"""Inserts, and upserts, exactly once, in two phases.

    write        -> rows are copied into a staging table, beside the stream
    barrier n    -> the staging table is complete; its name is the committable of n
    n complete   -> one transaction: its name into `strom_commits`, its rows into the table (by key
                    the last change of each), drop it

    strom_stage_<tag>_<attempt>_<subtask>_<random>   in the schema of the table
    strom_commits                                    what is published, for a month

A staging table's name is used once, so that an attempt thought dead writes where nobody looks. A
name in `strom_commits` is published: publishing twice is publishing once. Neither there nor a
table: its rows are lost, which is an error. Leftovers: as those of files (`files/staging.py`), for
the same reasons: removed when a checkpoint of a later attempt is complete.

Order. What was prepared at a checkpoint that did not complete is published with the next one, and
after a restore perhaps by another subtask than that one. So that no older change of a key is
written over a newer one, each committable names those before it, which are published first.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from ...api.connectors.base import PreparedCommit, WriterContext
from ...core.batch import Batch
from ...core.errors import ConnectorError
from .gathering_writer import GatheringWriter, fitting
from .merging import delete_rows, upsert_rows
from .owners import COMMITS, check_owner, make_beside, tag_of
from .rows import as_rows, copy_in, last_of_keys, named
from .sink_config import PostgresSinkConfig
from .tables import TableInfo, describe
from .worker import Piece

if TYPE_CHECKING:
    from .connection import Session

KEPT = "30 days"
"""How long `strom_commits` knows what was published: as old a checkpoint may be restored."""

PIECE = "__strom_piece"
"""Of a staging table: in which piece of work a row was written."""

_COMMITS_COLUMNS = (
    "stage text PRIMARY KEY, job_id text, operator_id text, checkpoint_id bigint, rows bigint, "
    "committed_at timestamptz DEFAULT now()"
)

GONE = "__strom_gone"
"""Of a staging table of upserts: whether the row is deleted; only its key is there then."""

_STAGE = re.compile(r"strom_stage_[0-9a-f]{8}_(\d+)_(\d+)_[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A complete staging table. `rows`: how many it has; `columns`: of the target, to fill;
    `before`: of upserts, what the same subtask prepared earlier and had not published then, in
    order."""

    stage: str
    columns: tuple[str, ...]
    rows: int
    checkpoint_id: int
    before: tuple[StagedRows, ...] = ()


@dataclass
class _Stage:
    """A staging table being filled. `columns` are known when its first rows are written, and
    `made` is then true; the worker's thread writes them."""

    name: str
    columns: tuple[str, ...] = ()
    rows: int = 0
    pieces: int = 0
    made: bool = False


class StagedWriter(GatheringWriter):
    """Writes in one subtask. `key`: of upserts; None for inserts."""

    def __init__(
        self,
        config: PostgresSinkConfig,
        context: WriterContext,
        key: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(config, context)
        self._key = key
        self._unpublished: dict[str, StagedRows] = {}
        """Prepared, and perhaps not published, by their staging tables' names. Written by whoever
        prepares, one at a time, and by `commit`."""
        self._tag = tag_of(context.job_id, context.operator_id)
        self._lock = threading.Lock()
        self._stage = self._new_stage()
        """What is being filled; nothing of it is prepared."""
        self._sweep_due = context.attempt > 0
        """Whether leftovers of dead attempts may exist that were not yet removed."""

    def prepare_commit(self, checkpoint_id: int) -> PreparedCommit:
        last = self._submit()
        stage, self._stage = self._stage, self._new_stage()
        if not stage.pieces:
            return []
        # Done behind all that was submitted before.
        seal = last or self._worker.submit(self._doing, lambda session, again: None)

        def sealed() -> Sequence[StagedRows]:
            self._worker.finish(seal)
            staged = StagedRows(stage.name, stage.columns, stage.rows, checkpoint_id)
            return [staged if self._key is None else self._behind_others(staged)]

        return sealed

    def _behind_others(self, staged: StagedRows) -> StagedRows:
        """With what is not published before it; beside the task's thread."""
        with self._lock:
            before = tuple(self._unpublished.values())
            self._unpublished[staged.stage] = staged
        return replace(staged, before=before)

    def commit(self, committables: Sequence[StagedRows]) -> Iterator[None]:
        yield from self._publish(committables)
        with self._lock:
            for staged in committables:
                self._unpublished.pop(staged.stage, None)
        if self._sweep_due:
            yield from self._sweep()

    def recover(self, committables: Sequence[StagedRows]) -> Iterator[None]:
        yield from self._publish(committables)
        if self._context.parallelism == 1:
            yield from self._sweep()

    def close(self) -> None:
        """Drop what was not prepared: nobody will publish it. If the database does not answer, the
        next attempt drops it."""
        stage = self._stage

        def drop(session: Session) -> None:
            self._prepare_target(session)
            self._drop(session, stage.name)

        self._worker.close(drop if stage.pieces else None)

    def _accept(self, batch: Batch) -> None:
        if self._key is None:
            super()._accept(batch)

    def _new_stage(self) -> _Stage:
        context = self._context
        who = f"{context.attempt}_{context.subtask}_{uuid4().hex[:8]}"
        return _Stage(f"strom_stage_{self._tag}_{who}")

    def _submit(self) -> Piece | None:
        batches = self._gathered.take()
        if not batches:
            return None
        stage = self._stage
        piece = stage.pieces
        stage.pieces += 1
        return self._worker.submit(
            self._doing,
            lambda session, again: self._write(session, stage, piece, batches, again),
        )

    def _publish(self, committables: Sequence[StagedRows]) -> Iterator[None]:
        doing = f"publish rows in table {self._config.table}"
        for committable in committables:
            for staged in (*committable.before, committable):
                publish = partial(self._publish_one, staged)
                yield from self._worker.steps(self._worker.submit(doing, publish))

    def _sweep(self) -> Iterator[None]:
        """Remove what dead attempts left, and what `strom_commits` need not know any more."""
        self._sweep_due = False
        doing = f"remove staging tables of table {self._config.table}"
        piece = self._worker.submit(doing, lambda session, again: self._remove(session))
        yield from self._worker.steps(piece)

    # --- in the worker's thread --------------------------------------------------------------

    def _prepare_target(self, session: Session) -> TableInfo:
        if self._info is None:
            self._info = describe(session, self._config.table)
        return self._info

    def _prepare(self, session: Session) -> None:
        """The table of commits. Made by one at a time: two at once would fail."""
        with session.transaction():
            make_beside(session, self._prepare_target(session), COMMITS, _COMMITS_COLUMNS)

    def _write(
        self,
        session: Session,
        stage: _Stage,
        piece: int,
        batches: Sequence[pa.RecordBatch],
        again: bool,
    ) -> None:
        """Into the staging table; what an earlier try may have written is taken out."""
        from psycopg import sql

        rows = as_rows(batches)
        written, gone = rows, None
        if self._key is not None:
            written, gone = last_of_keys(rows, self._key, self._config.table)
        info = fitting(self._prepare_target(session), list(rows.columns))
        table = sql.Identifier(info.schema_name, stage.name)
        with session.transaction():
            if not stage.made:
                columns = named(list(rows.columns))
                session.execute(
                    sql.SQL(
                        "CREATE TABLE IF NOT EXISTS {} AS SELECT {}, 0 AS {}, false AS {} FROM {} "
                        "WITH NO DATA"
                    ).format(
                        table, columns, sql.Identifier(PIECE), sql.Identifier(GONE), info.quoted
                    )
                )
            if again:
                session.execute(
                    sql.SQL("DELETE FROM {} WHERE {} = %s").format(table, sql.Identifier(PIECE)),
                    (piece,),
                )
            copy_in(session, table, written, {PIECE: str(piece), GONE: "f"})
            if gone is not None and len(gone):
                copy_in(session, table, gone, {PIECE: str(piece), GONE: "t"})
        stage.made = True
        stage.columns = tuple(rows.columns)
        stage.rows += len(written) + (0 if gone is None else len(gone))

    def _publish_one(self, staged: StagedRows, session: Session, again: bool) -> None:
        from psycopg import sql

        info = self._prepare_target(session)
        context = self._context
        stage = sql.Identifier(info.schema_name, staged.stage)
        commits = sql.Identifier(info.schema_name, COMMITS)
        with session.transaction():
            check_owner(session, info, context)
            new = session.execute(
                sql.SQL(
                    "INSERT INTO {} (stage, job_id, operator_id, checkpoint_id, rows) "
                    "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
                ).format(commits),
                (
                    staged.stage,
                    context.job_id,
                    context.operator_id,
                    staged.checkpoint_id,
                    staged.rows,
                ),
            )
            if not new.rowcount:
                return
            there = session.execute("SELECT to_regclass(%s)", (stage.as_string(session),))
            if _value(there) is None:
                raise ConnectorError(
                    f"cannot publish in table {info.shown}: neither is staging table "
                    f"{staged.stage} there, nor does {COMMITS} say that it was published. Its "
                    f"{staged.rows} rows are lost; restore from an older checkpoint, and do not "
                    "drop tables strom_stage_... of jobs that may be restored"
                )
            found = _value(session.execute(sql.SQL("SELECT count(*) FROM {}").format(stage)))
            if found != staged.rows:
                raise ConnectorError(
                    f"cannot publish in table {info.shown}: staging table {staged.stage} has "
                    f"{found} rows, and the checkpoint says {staged.rows}: somebody else wrote to "
                    "it; restore from an older checkpoint"
                )
            self._move(session, info, stage, staged.columns)
            session.execute(sql.SQL("DROP TABLE {}").format(stage))

    def _move(self, session: Session, info: TableInfo, stage: Any, names: Sequence[str]) -> None:
        """From the staging table into the table."""
        from psycopg import sql

        if self._key is None:
            columns = named(names)
            statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}")
            session.execute(statement.format(info.quoted, columns, columns, stage))
            return
        last = sql.SQL(
            "(SELECT * FROM (SELECT DISTINCT ON ({}) * FROM {} ORDER BY {}, {} DESC) AS l WHERE {})"
        )
        keys, gone = named(self._key), sql.Identifier(GONE)
        parts = (keys, stage, keys, sql.Identifier(PIECE))
        deleted = last.format(*parts, gone)
        session.execute(delete_rows(info, self._key, deleted))
        written = last.format(*parts, sql.SQL("NOT {}").format(gone))
        session.execute(upsert_rows(info, names, self._key, written))

    def _remove(self, session: Session) -> None:
        from psycopg import sql

        info = self._prepare_target(session)
        context = self._context
        found = session.execute(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND relkind = 'r' AND starts_with(relname, %s)",
            (info.schema_name, f"strom_stage_{self._tag}_"),
        ).fetchall()
        for (name,) in found:
            match = _STAGE.fullmatch(name)
            if match is None:
                continue
            attempt, subtask = int(match[1]), int(match[2])
            if attempt < context.attempt and subtask % context.parallelism == context.subtask:
                self._drop(session, name)
        if context.subtask == 0:
            session.execute(
                sql.SQL("DELETE FROM {} WHERE committed_at < now() - %s::interval").format(
                    sql.Identifier(info.schema_name, COMMITS)
                ),
                (KEPT,),
            )

    def _drop(self, session: Session, name: str) -> None:
        from psycopg import sql

        assert self._info is not None
        session.execute(
            sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(self._info.schema_name, name))
        )


def _value(cursor: Any) -> Any:
    row = cursor.fetchone()
    return None if row is None else row[0]
