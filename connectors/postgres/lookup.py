"""`PostgresLookup`: rows of a table for the keys of a stream, for `lookup_join`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ...core.errors import ConfigurationError
from .connection import PostgresConnection, patiently
from .server_thread import cut_after
from .tables import TableColumn, TableInfo, describe
from .texts import TO_CSV, from_csv, to_text, typed

if TYPE_CHECKING:
    from .connection import Session

_COMPARED_AS: Final = {
    "smallint": "bigint",
    "integer": "bigint",
    "bigint": "bigint",
    "numeric": "numeric",
    "character varying": "text",
    "text": "text",
}
"""By the column's type without its modifier. A key that does not fit in the column has no rows,
and must neither fail nor be cut to one that has."""


READABLE: Final = "rpvmf"
"""Tables, partitioned ones, views, materialised ones, foreign tables."""


class PostgresLookup:
    """The table (or view) of a `lookup_join`, asked in one query for the keys of a batch.

    stream.lookup_join(PostgresLookup(connection, "products"), on="product_id", cache_size=10_000)

    connection: a `PostgresConnection`, or what it is made of. columns: of the table, besides the
    key columns; None: all. It is asked on the task's thread, with a connection per subtask, and
    tried again where that was lost; what is asked for twice may have changed in between, and after
    a restore it is asked again: results are as exact as the table is constant.
    """

    def __init__(
        self,
        connection: PostgresConnection | str,
        table: str,
        columns: Sequence[str] | None = None,
    ) -> None:
        if isinstance(columns, str):
            raise ConfigurationError(f"columns must be a list of names or None, is {columns!r}")
        self._connection = PostgresConnection.of(connection)
        self._table = table
        self._columns = None if columns is None else tuple(columns)
        self._session: Session | None = None
        self._info: TableInfo | None = None
        """Of the table, as of the session."""

    def __repr__(self) -> str:
        return f"PostgresLookup({self._table})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_info": None}

    def __call__(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with these keys, distinct and without nulls; key columns included."""
        return patiently(
            self._connection, f"look up keys in table {self._table}", lambda: self._ask(keys)
        )

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _ask(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        try:
            session = self._connected()
            with cut_after(session, self._connection.answer_s):
                columns, statement = self._query(keys)
                with session.cursor().copy(statement) as copy:
                    data = b"".join(map(bytes, copy))
        except BaseException:
            with suppress(Exception):
                self.close()
            raise
        schema = pa.schema([(column.name, column.type) for column in columns])
        return typed(from_csv(data, len(columns)), schema)

    def _connected(self) -> Session:
        if self._session is None:
            session = self._connection.connect()
            try:
                with cut_after(session, self._connection.answer_s):
                    self._info = describe(session, self._table, READABLE)
            except BaseException:
                session.close()
                raise
            self._session = session
        return self._session

    def _query(self, keys: pa.RecordBatch) -> tuple[list[TableColumn], Any]:
        from psycopg import sql

        info = self._info
        assert info is not None, "there is a session"
        names = list(keys.schema.names)
        wanted = self._columns or tuple(column.name for column in info.columns)
        columns = [info.column(name) for name in dict.fromkeys((*names, *wanted))]
        arrays, tests = [], []
        for at, name in enumerate(names):
            texts = to_text(keys.column(name), name).to_pylist()
            arrays.append(sql.SQL("{}::text[]").format(sql.Literal(texts)))
            kind = info.column(name).sql_type
            compared = _COMPARED_AS.get(kind.partition("(")[0], kind)
            test = sql.SQL("t.{} = k.{}::" + compared)
            tests.append(test.format(sql.Identifier(name), sql.Identifier(f"k{at}")))
        statement = sql.SQL(
            f"COPY (SELECT {{}} FROM {{}} AS t JOIN unnest({{}}) AS k({{}}) ON {{}}) {TO_CSV}"
        ).format(
            sql.SQL(", ").join(sql.Identifier("t", column.name) for column in columns),
            info.quoted,
            sql.SQL(", ").join(arrays),
            sql.SQL(", ").join(sql.Identifier(f"k{at}") for at in range(len(names))),
            sql.SQL(" AND ").join(tests),
        )
        return columns, statement
