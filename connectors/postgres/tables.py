"""What the catalogs say of a table: its columns and their types, its key, its replica identity.

A description is made where the program is written, or where the job starts, and pickled with the
job: what it says is what the job was planned for, and what later differs is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ...core.errors import ConfigurationError, ConnectorError
from ...core.row_kind import ROW_KIND

if TYPE_CHECKING:
    from psycopg import sql

    from .connection import PostgresConnection, Session

_NUMERIC: Final = 1700

_TYPES: Final = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    26: pa.int64(),  # oid
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1083: pa.time64("us"),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
"""By the oid of the type. What is not here is `string`, in PostgreSQL's own text."""

_PRECISIONS: Final = ((38, pa.decimal128), (76, pa.decimal256))

_COLUMNS: Final = """
WITH RECURSIVE base(attnum, oid, typmod, depth) AS (
    SELECT attnum, atttypid, atttypmod, 0 FROM pg_attribute WHERE attrelid = %(table)s
    UNION ALL
    SELECT b.attnum, t.typbasetype, CASE WHEN b.typmod = -1 THEN t.typtypmod ELSE b.typmod END,
           depth + 1
    FROM base b JOIN pg_type t ON t.oid = b.oid WHERE t.typtype = 'd'
)
SELECT DISTINCT ON (a.attnum)
       a.attnum, a.attname, a.atttypid::int8, a.atttypmod, format_type(a.atttypid, a.atttypmod),
       b.oid::int8, b.typmod,
       CASE WHEN t.typcategory = 'A' THEN t.typelem::int8 ELSE 0 END,
       a.attgenerated <> '',
       CASE WHEN c.oid IS NULL THEN NULL
            ELSE quote_ident(n.nspname) || '.' || quote_ident(c.collname) END
FROM pg_attribute a
JOIN base b ON b.attnum = a.attnum
JOIN pg_type t ON t.oid = b.oid
LEFT JOIN pg_collation c ON c.oid = a.attcollation
LEFT JOIN pg_namespace n ON n.oid = c.collnamespace
WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum, b.depth DESC
"""

_TABLE: Final = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relreplident::text,
       (SELECT indkey::int2[] FROM pg_index WHERE indrelid = c.oid AND indisprimary),
       (SELECT indkey::int2[] FROM pg_index WHERE indrelid = c.oid AND indisreplident)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""


@dataclass(frozen=True)
class TableColumn:
    """`number`: the table never gives it to another. `oid`, `typmod`: as the catalogs have them, of
    a domain its own. `sql_type`: to cast to it. `collation`: quoted, None for types that have
    none."""

    number: int
    name: str
    oid: int
    typmod: int
    sql_type: str
    type: pa.DataType
    generated: bool
    collation: str | None


@dataclass(frozen=True)
class TableInfo:
    """`key`: names of the columns that identify a row to logical replication, else the primary key;
    empty if there is neither. `identity`: `d` the primary key, `f` all columns, `i` an index, `n`
    nothing."""

    oid: int
    schema_name: str
    name: str
    partitioned: bool
    identity: str
    key: tuple[str, ...]
    columns: tuple[TableColumn, ...]

    @property
    def shown(self) -> str:
        return f"{self.schema_name}.{self.name}"

    @property
    def quoted(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(self.schema_name, self.name)

    def column(self, name: str) -> TableColumn:
        """Raises ConfigurationError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise ConfigurationError(
            f"table {self.shown} has no column '{name}', only {[c.name for c in self.columns]}"
        )

    def select(self, names: tuple[str, ...] | None) -> tuple[TableColumn, ...]:
        """These columns, or all."""
        if names is None:
            return self.columns
        return tuple(self.column(name) for name in names)


def describe(connection: Session, table: str, kinds: str = "rp") -> TableInfo:
    """`kinds`: what it may be, by the letters of `pg_class.relkind`. Raises ConnectorError if there
    is no such table, psycopg's errors if it cannot be asked."""
    try:
        found = connection.execute(_TABLE, (table,)).fetchone()
    except connection.ProgrammingError as error:
        raise ConnectorError(
            f"'{table}' is no name of a table: give 'table' or 'schema.table', and in double "
            "quotes what is not lower case"
        ) from error
    if found is None:
        raise ConnectorError(
            f"there is no table {table} in this database that the user of the connection sees: "
            "create it, or name its schema as in 'schema.table'"
        )
    oid, schema, name, kind, identity, primary, chosen = found
    if kind not in kinds:
        raise ConnectorError(f"{schema}.{name} is no table, but a view, index or the like")
    rows = connection.execute(_COLUMNS, {"table": oid}).fetchall()
    columns = tuple(_column(row) for row in rows)
    if any(column.name == ROW_KIND for column in columns):
        raise ConnectorError(
            f"table {schema}.{name} has a column {ROW_KIND}, the name that changelogs have for the "
            "kind of a change: rename it"
        )
    numbers = chosen if identity == "i" else primary
    key = _names(connection, oid, numbers)
    return TableInfo(oid, schema, name, kind == "p", identity, key, columns)


def described(connection: PostgresConnection, table: str) -> TableInfo:
    """The same in a connection of its own. Raises ConnectorError, also if it cannot be reached."""
    import psycopg

    try:
        with connection.connect() as session:
            return describe(session, table)
    except psycopg.Error as error:
        failed = connection.failure(f"look up table {table}", error)
        raise failed from failed.__cause__


def arrow_type(oid: int, typmod: int, element: int = 0) -> pa.DataType:
    """Of values of a type that is no domain. `element`: the type of an array's elements, else 0."""
    if element:
        return pa.list_(arrow_type(element, typmod))
    if oid == _NUMERIC and typmod >= 0:
        precision, scale = (typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF
        scale = scale - 0x800 if scale >= 0x400 else scale
        for most, make in _PRECISIONS:
            if 0 <= scale <= precision <= most:
                return make(precision, scale)
    return _TYPES.get(oid, pa.string())


def _column(row: Any) -> TableColumn:
    number, name, oid, typmod, sql_type, base, base_typmod, element, generated, collation = row
    kind = arrow_type(base, base_typmod, element)
    return TableColumn(number, name, oid, typmod, sql_type, kind, generated, collation)


def _names(connection: Session, table: int, numbers: Any) -> tuple[str, ...]:
    """Of the columns of an index, in its order."""
    found = []
    for number in numbers or ():
        row = connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum = %s", (table, number)
        ).fetchone()
        assert row is not None
        found.append(str(row[0]))
    return tuple(found)
