"""The statements that merge rows into a table by key, from wherever they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .rows import named
from .tables import TableInfo


def delete_rows(info: TableInfo, key: Sequence[str], source: Any) -> Any:
    """Delete the rows that have a key of `source` (something that `FROM` takes)."""
    from psycopg import sql

    same = sql.SQL(" AND ").join(
        sql.SQL("t.{0} = d.{0}").format(sql.Identifier(name)) for name in key
    )
    return sql.SQL("DELETE FROM {} AS t USING {} AS d WHERE {}").format(info.quoted, source, same)


def upsert_rows(info: TableInfo, names: Sequence[str], key: Sequence[str], source: Any) -> Any:
    """Insert these columns of `source`, whose keys are distinct, or replace the rows that have its
    keys. In order of keys, so that subtasks that meet wait for each other and do not deadlock."""
    from psycopg import sql

    others = [name for name in names if name not in key]
    change = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
    )
    action = sql.SQL("UPDATE SET {}").format(change) if others else sql.SQL("NOTHING")
    return sql.SQL(
        "INSERT INTO {} ({}) SELECT {} FROM {} AS s ORDER BY {} ON CONFLICT ({}) DO {}"
    ).format(info.quoted, named(names), named(names), source, named(key), named(key), action)
