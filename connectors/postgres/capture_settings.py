"""What a user asked a change capture for, and whether the table allows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import ConnectorError
from .changes import Changelog
from .connection import PostgresConnection
from .tables import TableColumn, TableInfo


@dataclass(frozen=True)
class CaptureSettings:
    """What a user asked for. `info`: the table as the program found it, None if it did not look."""

    connection: PostgresConnection
    table: str
    slot: str
    publication: str
    columns: tuple[str, ...] | None
    changelog: Changelog
    snapshot: bool
    bounded: bool
    info: TableInfo | None = None

    def chosen(self, info: TableInfo) -> tuple[TableColumn, ...]:
        """The columns to read. Raises ConfigurationError or ConnectorError if they, or the table,
        do not allow what was asked for."""
        if self.columns is None:
            columns = tuple(column for column in info.columns if not column.generated)
        else:
            columns = info.select(self.columns)
        names = {column.name for column in columns}
        wrong = [column.name for column in columns if column.generated]
        if wrong:
            raise ConnectorError(
                f"columns {wrong} of table {info.shown} are generated, and the log does not have "
                "them: leave them out, and compute them in the stream"
            )
        if self.changelog == "retract" and info.identity != "f":
            raise ConnectorError(
                f"updates and deletes of table {info.shown} do not say which row they replace: "
                f"ALTER TABLE {info.shown} REPLICA IDENTITY FULL, or take "
                'changelog="upsert", for what replaces rows by key'
            )
        if (self.snapshot or self.changelog == "upsert") and not info.key:
            raise ConnectorError(
                f"table {info.shown} has no primary key, by which its rows are read and replaced: "
                'add one, or take changelog="retract" and snapshot=False'
            )
        missing = [name for name in info.key if name not in names]
        if missing and (self.snapshot or self.changelog == "upsert"):
            raise ConnectorError(
                f"the columns to read of table {info.shown} lack {missing} of its key: add them"
            )
        return columns


def check_same(
    planned: TableInfo,
    found: TableInfo,
    planned_columns: Sequence[TableColumn],
    columns: Sequence[TableColumn],
) -> None:
    """The table must be the one the program was planned with."""
    if planned.oid == found.oid and tuple(planned_columns) == tuple(columns):
        return
    raise ConnectorError(
        f"table {found.shown} is another than when the program was written (columns "
        f"{[f'{c.name}: {c.sql_type}' for c in planned_columns]}, now "
        f"{[f'{c.name}: {c.sql_type}' for c in columns]}): start the program again"
    )
