"""Reading a table in the order of its key, in one transaction: the first part of a change capture.

The rows come in pieces, each a query for what is behind the last key, which an index serves: no
result is held open while the job takes its time. All pieces of a connection see one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from .positions import Key, Part, Seen
from .replication import parse_lsn
from .tables import TableColumn, TableInfo
from .texts import TO_CSV, from_csv, typed

if TYPE_CHECKING:
    from .connection import Session


@dataclass(frozen=True)
class Piece:
    """Some rows, and the texts of the last one's key, None if there are no rows. `ended`: there are
    none behind them."""

    rows: pa.RecordBatch
    last: Key | None
    ended: bool


PIECE_BYTES: Final = 8 << 20
"""A piece is about as large at most, however large the rows are."""

FIRST_ROWS: Final = 1_000
"""Of the first piece, which tells how large rows are."""


class TableReading:
    """One transaction that reads the table, at most `size` rows at once. Ends with its
    connection."""

    def __init__(
        self, session: Session, info: TableInfo, columns: Sequence[TableColumn], size: int
    ) -> None:
        self._session = session
        self._info = info
        self._columns = columns
        self._most = size
        self._size = min(size, FIRST_ROWS)
        """Of the next piece, from 1 to `_most`."""
        self._schema = pa.schema([(column.name, column.type) for column in columns])
        session.execute("SET row_security = off")
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        row = session.execute(
            "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, "
            "floor(extract(epoch FROM now()) * 1000)::int8"
        ).fetchone()
        assert row is not None
        self.seen = Seen.of(row[0], parse_lsn(row[1]))
        self.time_ms = int(row[2])

    def piece(self, after: Key | None) -> Piece:
        """The next rows behind a key."""
        from psycopg import sql

        keys = key_columns(self._info)
        names = [column.name for column in self._columns]
        query = sql.SQL(f"COPY (SELECT {{}} FROM {{}} {{}} ORDER BY {{}} LIMIT {{}}) {TO_CSV}")
        where: sql.Composable = sql.SQL("")
        if after is not None:
            where = sql.SQL("WHERE {}").format(behind(keys, after))
        statement = query.format(
            sql.SQL(", ").join([sql.Identifier(name) for name in names]),
            self._source(),
            where,
            sql.SQL(", ").join(sql.Identifier(key.name) for key in keys),
            sql.Literal(self._size),
        )
        with self._session.cursor().copy(statement) as copy:
            data = b"".join(map(bytes, copy))
        texts = from_csv(data, len(names))
        rows = typed(texts, self._schema)
        count = rows.num_rows
        ended = count < self._size
        if not count:
            return Piece(rows, None, ended)
        self._size = max(1, min(self._most, 4 * self._size, count * PIECE_BYTES // len(data)))
        last = [texts[names.index(key.name)][-1].as_py() for key in keys]
        return Piece(rows, tuple(last), ended)

    def end(self) -> None:
        self._session.execute("COMMIT")

    def _source(self) -> Any:
        from psycopg import sql

        only = sql.SQL("{}" if self._info.partitioned else "ONLY {}")
        return only.format(self._info.quoted)


def key_columns(info: TableInfo) -> list[TableColumn]:
    return [info.column(name) for name in info.key]


def behind(keys: Sequence[TableColumn], at: Key) -> Any:
    """SQL: the key is greater than `at`, as the table's own index orders it."""
    from psycopg import sql

    mine = sql.SQL(", ").join(sql.Identifier(key.name) for key in keys)
    return sql.SQL("({}) > ({})").format(mine, literals(keys, at))


def literals(keys: Sequence[TableColumn], at: Key) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(
        sql.SQL("{}::" + key.sql_type).format(sql.Literal(text))
        for key, text in zip(keys, at, strict=True)
    )


def places_of(
    session: Session, info: TableInfo, parts: Sequence[Part], rows: Sequence[Key]
) -> list[int]:
    """In which part each key was read: how many parts end before it. The database compares, by the
    types and collations of the table."""
    from psycopg import sql

    keys = key_columns(info)
    ends = [part.upto for part in parts if part.upto is not None]
    if not ends:
        return [0] * len(rows)
    columns = [sql.SQL("k{}".format(at)) for at in range(len(keys))]  # noqa: UP032
    mine = sql.SQL(", ").join(
        sql.SQL("{}" + (f" COLLATE {key.collation}" if key.collation else "")).format(column)
        for key, column in zip(keys, columns, strict=True)
    )
    passed = sql.SQL(" + ").join(
        sql.SQL("(({}) > ({}))::int").format(mine, literals(keys, end)) for end in ends
    )
    arrays = sql.SQL(", ").join(
        sql.SQL("{}::text[]").format(sql.Literal([row[at] for row in rows]))
        for at in range(len(keys))
    )
    casts = sql.SQL(", ").join(
        sql.SQL("{}::" + key.sql_type + " AS {}").format(column, column)
        for key, column in zip(keys, columns, strict=True)
    )
    statement = sql.SQL(
        "SELECT {} FROM (SELECT n, {} FROM unnest({}) WITH ORDINALITY AS t({}, n)) AS t ORDER BY n"
    ).format(passed, casts, arrays, sql.SQL(", ").join(columns))
    return [int(row[0]) for row in session.execute(statement)]
