"""Which columns a change capture began with: part of its position, so that a checkpoint holds it.

A row must be retracted with the columns it was added with. So each time a capture goes on, after a
lost connection, a restart or a restore, the table is compared with what it was at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...core.errors import ConnectorError

if TYPE_CHECKING:
    from .tables import TableColumn, TableInfo

SOME_TIME: Final = "some time since the capture began"

ANEW: Final = "what was captured does not fit it; drop the slot and start the job anew"


@dataclass(frozen=True, slots=True)
class CapturedColumn:
    """`number`: a column that is dropped and added again has another. `oid`, `typmod`: its type, as
    the catalogs have it."""

    name: str
    number: int
    oid: int
    typmod: int

    @classmethod
    def of(cls, column: TableColumn) -> CapturedColumn:
        return cls(column.name, column.number, column.oid, column.typmod)


@dataclass(frozen=True, slots=True)
class Captured:
    """The columns that are read of a table, and its key."""

    columns: tuple[CapturedColumn, ...]
    key: tuple[str, ...]

    @classmethod
    def of(cls, info: TableInfo, columns: Sequence[TableColumn]) -> Captured:
        return cls(tuple(CapturedColumn.of(column) for column in columns), info.key)

    def check(self, info: TableInfo, chosen: Sequence[str] | None, keyed: bool) -> None:
        """The table must still have these columns. `chosen`: what the source asks for, None: every
        column. `keyed`: whether its key matters. Raises ConnectorError."""
        mine = [column.name for column in self.columns]
        if chosen is not None and set(chosen) != set(mine):
            raise ConnectorError(
                f"the source reads columns {list(chosen)} of table {info.shown}, and what was "
                f"captured until now has {mine}: read the same columns, or drop the slot and start "
                "the job anew"
            )
        found = {column.name: column for column in info.columns}
        for column in self.columns:
            other = found.get(column.name)
            if other is None:
                raise gone(info, column.name, SOME_TIME)
            if (other.oid, other.typmod) != (column.oid, column.typmod):
                raise retyped(info, column.name, SOME_TIME)
            if other.number != column.number:
                raise _altered(info, column.name, "was dropped and added again", SOME_TIME)
        if chosen is None:
            more = sorted(c.name for c in info.columns if not c.generated and c.name not in mine)
            if more:
                raise widened(info, more, SOME_TIME)
        if keyed and info.key != self.key:
            raise rekeyed(info, info.key, self.key, SOME_TIME)


def gone(info: TableInfo, column: str, when: str) -> ConnectorError:
    """`when`: a place in the log, here and below."""
    return _altered(info, column, "is gone or renamed", when)


def retyped(info: TableInfo, column: str, when: str) -> ConnectorError:
    return _altered(info, column, "changed its type", when)


def widened(info: TableInfo, more: Sequence[str], when: str) -> ConnectorError:
    """The table has more columns than were captured."""
    return ConnectorError(
        f"table {info.shown} has new columns {list(more)} (a schema change at {when}): name the "
        "columns to read with columns=[...], and start the job again from its checkpoint; or start "
        "it anew to read the new ones"
    )


def rekeyed(
    info: TableInfo, key: Sequence[str], before: Sequence[str], when: str
) -> ConnectorError:
    return ConnectorError(
        f"the key of table {info.shown} is {list(key)}, and was {list(before)} (a schema change at "
        f"{when}): {ANEW}"
    )


def _altered(info: TableInfo, column: str, what: str, when: str) -> ConnectorError:
    return ConnectorError(
        f"column '{column}' of table {info.shown} {what} (a schema change at {when}): {ANEW}"
    )
