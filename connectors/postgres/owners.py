"""Whose a table is, as `connectors.ownership` decides it, in a table beside it.

    strom_owners (target, token, owners, ended)    a row for each table that a sink writes to

Whoever publishes looks into it within the transaction that publishes, under a lock of the table's
name that it shares with its like; who takes over has the lock alone. So of two that do so at once
either the new owner sees what is published, or the publisher sees the new owner.

`strom_commits` says which job has published what of which checkpoint (`staged_writer`). Rows that
were inserted cannot be taken back, so a job that would insert them again is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ...api.connectors.base import OutputClaim, WriterContext
from ...core.errors import FencedError
from ...core.failure_text import described
from ...core.place import is_dead
from ..ownership import Owner, begun_anew, is_earlier_run, later, refused, taken, twice
from .connection import PostgresConnection, patiently
from .tables import TableInfo, describe

if TYPE_CHECKING:
    from .connection import Session

COMMITS = "strom_commits"

OWNERS = "strom_owners"

MOST_KNOWN = 500
"""Jobs that a row names; of more, the last ones."""


def tag_of(job_id: str, operator_id: str) -> str:
    """In the names of the staging tables that a job's sink makes."""
    return hashlib.sha256(f"{job_id}/{operator_id}".encode()).hexdigest()[:8]


class TableOwners:
    """Of one table, for a coordinator. Each call connects."""

    def __init__(
        self, connection: PostgresConnection, table: str, sink: str, repeats: bool
    ) -> None:
        """`sink`: how its class is called, for messages. `repeats`: to publish again does no
        harm."""
        self._connection = connection
        self._table = table
        self._sink = sink
        self._repeats = repeats

    def take(self, claim: OutputClaim, asked: bool) -> list[str]:
        """`asked`: by name. What is worth a warning. OutputRefusedError; ConnectorError."""

        def work() -> list[str]:
            with self._connection.connect() as session, session.transaction():
                return self._take(session, claim, asked)

        return patiently(self._connection, f"take over table {self._table}", work)

    def release(self, claim: OutputClaim, status: str) -> None:
        def work() -> None:
            from psycopg import sql

            with self._connection.connect() as session, session.transaction():
                info = describe(session, self._table)
                session.execute(
                    sql.SQL("UPDATE {} SET ended = %s WHERE target = %s AND token = %s").format(
                        sql.Identifier(info.schema_name, OWNERS)
                    ),
                    (status, info.name, claim.token),
                )

        patiently(self._connection, f"release table {self._table}", work)

    def _take(self, session: Session, claim: OutputClaim, asked: bool) -> list[str]:
        from psycopg import sql

        info = describe(session, self._table)
        make_beside(session, info, OWNERS, _COLUMNS)
        lock(session, info, alone=True)
        history, said = _history(session, info)
        last = history[-1] if history else None
        dead = last is not None and is_dead(last.place)
        known = taken(info.shown, history, claim, asked, dead, self._sink)
        said += self._of_later(session, info, known, claim, asked)
        if last is not None and is_earlier_run(last, claim):
            rows, to = _published(session, info, last.job_id, claim.operator_id, 0)
            said += [begun_anew(info.shown, last, f"{rows} rows", to)] if rows else []
        record = json.dumps([asdict(owner) for owner in known[-MOST_KNOWN:]])
        session.execute(
            sql.SQL(
                "INSERT INTO {} (target, token, owners) VALUES (%s, %s, %s) ON CONFLICT (target) "
                "DO UPDATE SET token = EXCLUDED.token, owners = EXCLUDED.owners, ended = NULL"
            ).format(sql.Identifier(info.schema_name, OWNERS)),
            (info.name, claim.token, record),
        )
        return said

    def _of_later(
        self,
        session: Session,
        info: TableInfo,
        known: Sequence[Owner],
        claim: OutputClaim,
        asked: bool,
    ) -> list[str]:
        if claim.origin is None or self._repeats:
            return []
        found = {
            job_id: rows
            for job_id, after in later(known, claim.job_id).items()
            if (rows := _published(session, info, job_id, claim.operator_id, after)[0])
        }
        if not found:
            return []
        names = {owner.job_id: owner.named() for owner in known}
        of = ", ".join(names.get(job_id, f"job {job_id}") for job_id in found)
        what = f"{sum(found.values())} rows"
        if asked:
            return [f"'{info.shown}' has {what} of {of} that are inserted once more, as asked for"]
        why = f"of {of}, which cannot be taken back"
        way = f"{self._sink}(..., take_over=True), which inserts them twice"
        raise twice(info.shown, claim, what, why, way)


def check_owner(session: Session, info: TableInfo, context: WriterContext) -> None:
    """By who publishes, within the transaction. FencedError if the table is another's now."""
    from psycopg import sql

    if not context.token:
        return
    lock(session, info, alone=False)
    owners = sql.Identifier(info.schema_name, OWNERS)
    statement = sql.SQL("SELECT token FROM {} WHERE target = %s").format(owners)
    found = session.execute(statement, (info.name,)).fetchone()
    if found is None or found[0] == context.token:
        return
    history, _ = _history(session, info)
    mine = f"job {context.job_id}"
    if not history:
        raise FencedError(
            f"table {info.shown} was taken over from {mine}, and {OWNERS} does not say by whom"
        )
    raise FencedError(refused(info.shown, mine, history[-1]))


def lock(session: Session, info: TableInfo, alone: bool) -> None:
    """To the end of the transaction."""
    how = "pg_advisory_xact_lock" if alone else "pg_advisory_xact_lock_shared"
    name = f"{OWNERS}/{info.schema_name}/{info.name}"
    session.execute(f"SELECT {how}(hashtextextended(%s, 0))", (name,))


def make_beside(session: Session, info: TableInfo, name: str, columns: str) -> None:
    """The table of this name in the schema of `info`'s, by one at a time: two at once would fail.
    Within a transaction."""
    from psycopg import sql

    table = sql.Identifier(info.schema_name, name)
    there = session.execute("SELECT to_regclass(%s)", (table.as_string(session),)).fetchone()
    if there is not None and there[0] is None:
        session.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (name,))
        statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})")
        session.execute(statement.format(table, sql.SQL(columns)))


_COLUMNS = "target text PRIMARY KEY, token text NOT NULL, owners text NOT NULL, ended text"


def _history(session: Session, info: TableInfo) -> tuple[list[Owner], list[str]]:
    """And what is worth a warning."""
    from psycopg import sql

    owners = sql.Identifier(info.schema_name, OWNERS)
    statement = sql.SQL("SELECT owners, ended FROM {} WHERE target = %s").format(owners)
    row: Any = session.execute(statement, (info.name,)).fetchone()
    if row is None:
        return [], []
    try:
        history = [Owner(**owner) for owner in json.loads(row[0])]
        return [*history[:-1], replace(history[-1], ended=row[1])], []
    except (ValueError, TypeError, IndexError) as error:
        return [], [
            f"the row of '{info.shown}' in {OWNERS} cannot be read ({described(error)}): who had "
            "the table is not known, nor kept from going on. See to it that no other job writes to "
            "it"
        ]


def _published(
    session: Session, info: TableInfo, job_id: str, operator_id: str, after: int
) -> tuple[int, int]:
    """Rows that a job has published behind a checkpoint, of what it staged itself, and up to which
    one."""
    from psycopg import sql

    commits = sql.Identifier(info.schema_name, COMMITS)
    there = session.execute("SELECT to_regclass(%s)", (commits.as_string(session),)).fetchone()
    if there is None or there[0] is None:
        return 0, 0
    statement = sql.SQL(
        "SELECT coalesce(sum(rows), 0)::bigint, coalesce(max(checkpoint_id), 0) FROM {} "
        "WHERE job_id = %s AND operator_id = %s AND checkpoint_id > %s AND starts_with(stage, %s)"
    ).format(commits)
    stage = f"strom_stage_{tag_of(job_id, operator_id)}_"
    row: Any = session.execute(statement, (job_id, operator_id, after, stage)).fetchone()
    return int(row[0]), int(row[1])
