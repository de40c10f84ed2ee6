"""The publication and the replication slot of a change capture: made if missing, and looked at.

A slot keeps the log (WAL) behind its confirmed position, and gives what commits behind it. A
position of ours before that one means that changes are gone for good: the server would go on from
its own position without a word, so this is looked at each time a stream begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...core.errors import ConnectorError
from .positions import CdcSplit, Seen
from .replication import parse_lsn, show_lsn
from .tables import TableInfo

if TYPE_CHECKING:
    from .connection import Session

PLUGIN: Final = "pgoutput"

_PUBLICATION: Final = """
SELECT p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate, p.pubviaroot,
       EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname
               AND t.schemaname = %(schema)s AND t.tablename = %(name)s),
       p.oid::text || coalesce((SELECT '/' || r.oid FROM pg_publication_rel r
                                WHERE r.prpubid = p.oid AND r.prrelid = %(table)s), '')
FROM pg_publication p WHERE p.pubname = %(publication)s
"""

_ROW_FILTER: Final = """
SELECT prqual IS NOT NULL FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
WHERE p.pubname = %s AND r.prrelid = %s
"""

_SLOT: Final = """
SELECT plugin, database = current_database(), confirmed_flush_lsn::text, wal_status
FROM pg_replication_slots WHERE slot_name = %s
"""

_WAIT_S: Final = 0.1

_WARN_S: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Capture:
    """What a stream of changes is made of on the server's side."""

    info: TableInfo
    slot: str
    publication: str


def prepare_publication(session: Session, capture: Capture) -> str:
    """Make the publication if there is none; what `check_publication` says of it. It must be older
    than the slot's position: the plugin looks it up as of then."""
    from psycopg import sql

    if not check_publication(session, capture):
        statement = sql.SQL(
            "CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)"
        )
        name = sql.Identifier(capture.publication)
        session.execute(statement.format(name, _only(capture.info)))
    made = check_publication(session, capture)
    assert made is not None
    return made


def check_publication(session: Session, capture: Capture) -> str | None:
    """What the table's place in the publication is known by, None if there is no publication: when
    either is taken away and put back, it is another, and what changed in between is lost. Raises
    ConnectorError if it leaves changes of the table out."""
    info, name = capture.info, capture.publication
    asked = {
        "publication": name,
        "schema": info.schema_name,
        "name": info.name,
        "table": info.oid,
    }
    found = session.execute(_PUBLICATION, asked).fetchone()
    if found is None:
        return None
    every_kind, via_root, has_table, place = found
    if not has_table:
        raise ConnectorError(
            f"publication '{name}' does not publish table {info.shown}: ALTER PUBLICATION "
            f'"{name}" ADD TABLE {info.shown}; what changed until then is not captured, so start '
            "the job anew"
        )
    if not every_kind:
        raise ConnectorError(
            f"publication '{name}' does not publish inserts, updates, deletes and truncates alike: "
            f"ALTER PUBLICATION \"{name}\" SET (publish = 'insert, update, delete, truncate')"
        )
    if info.partitioned and not via_root:
        raise ConnectorError(
            f"publication '{name}' publishes changes of {info.shown} under the names of its "
            f'partitions: ALTER PUBLICATION "{name}" SET (publish_via_partition_root = true)'
        )
    if _filters_rows(session, capture):
        raise ConnectorError(
            f"publication '{name}' publishes some rows of {info.shown} only (WHERE), of which an "
            "initial reading knows nothing: publish all, and filter the stream"
        )
    return str(place)


def _only(info: TableInfo) -> Any:
    """Without tables that inherit from it, whose changes come under their own names."""
    from psycopg import sql

    return info.quoted if info.partitioned else sql.SQL("ONLY {}").format(info.quoted)


def _filters_rows(session: Session, capture: Capture) -> bool:
    if session.info.server_version < 150000:
        return False
    row = session.execute(_ROW_FILTER, (capture.publication, capture.info.oid)).fetchone()
    return row is not None and bool(row[0])


def prepare_slot(session: Session, slot: str, forward: bool) -> int:
    """The position of the slot, which is made if there is none; that waits until all transactions
    that run are over. An attempt that ended before its first checkpoint has left one. `forward`:
    have it begin now, because the table is read anew."""
    found = _confirmed(session, slot)
    if found is not None and forward:
        session.execute(
            "SELECT pg_replication_slot_advance(%s, "
            "greatest(pg_current_wal_flush_lsn(), %s::pg_lsn))",
            (slot, show_lsn(found)),
        )
        found = _confirmed(session, slot)
    if found is None:
        session.execute("SELECT pg_create_logical_replication_slot(%s, %s)", (slot, PLUGIN))
        found = _confirmed(session, slot)
    assert found is not None
    return found


def check_slot(session: Session, split: CdcSplit) -> None:
    """The slot must still have what comes behind the split. Raises ConnectorError."""
    confirmed = _confirmed(session, split.slot)
    if confirmed is None:
        raise ConnectorError(
            f"there is no slot '{split.slot}' any more, so the changes behind "
            f"{show_lsn(split.lsn)} are lost: start the job anew, without its checkpoint, to read "
            "the table again"
        )
    if confirmed > split.lsn:
        raise ConnectorError(
            f"slot '{split.slot}' has been confirmed up to {show_lsn(confirmed)}, and the "
            f"checkpoint is at {show_lsn(split.lsn)}: the changes between are gone from it. "
            "Start from a newer checkpoint, or anew, without one; and give each job its own slot"
        )


def _confirmed(session: Session, slot: str) -> int | None:
    """The position the slot was confirmed to; None if there is no slot. Raises ConnectorError if it
    cannot be used."""
    row = session.execute(_SLOT, (slot,)).fetchone()
    if row is None:
        return None
    plugin, here, confirmed, status = row
    if plugin != PLUGIN or not here:
        raise ConnectorError(
            f"slot '{slot}' is of another database or plugin ({plugin}): take another name"
        )
    if status == "lost" or confirmed is None:
        raise ConnectorError(
            f"slot '{slot}' was invalidated: the server removed log that it still needed "
            "(max_slot_wal_keep_size), so changes are lost. Drop the slot, and start the job anew, "
            "without its checkpoint"
        )
    return parse_lsn(confirmed)


def system_of(session: Session) -> str:
    """What the cluster is known by; copies of it have the same."""
    return str(_one(session, "SELECT system_identifier::text FROM pg_control_system()"))


def check_server(session: Session) -> None:
    """Raises ConnectorError if it gives no changes at all."""
    level = str(_one(session, "SHOW wal_level"))
    if level != "logical":
        raise ConnectorError(
            f"the server has wal_level = {level}, which holds no changes of rows: set wal_level = "
            "logical and restart it"
        )


def mark_end(session: Session) -> int:
    """A position behind everything that has committed, which the stream is sure to reach: it is
    that of a message written to the log now."""
    return parse_lsn(str(_one(session, "SELECT pg_logical_emit_message(true, 'strom', '')::text")))


def await_running(session: Session, wait: Callable[[float], Any]) -> None:
    """Until the transactions that run now are over.

    A commit is in the log a moment before snapshots show it. One that the slot was made behind, or
    was confirmed behind, will not be in the stream, so it has to be shown by what reads the table.
    """
    # A snapshot lists those that run below the greatest number that has ended: let that be ours.
    _one(session, "SELECT pg_current_xact_id()::text")
    running = Seen.of(str(_one(session, "SELECT pg_current_snapshot()::text")), 0).running
    warn_at: float | None = time.monotonic() + _WARN_S
    while running:
        if warn_at is not None and time.monotonic() > warn_at:
            warn_at = None
            _log.warning(
                "a capture of changes waits for %s transactions to end before it reads its table; "
                "pg_stat_activity shows whose they are",
                len(running),
            )
        now = Seen.of(str(_one(session, "SELECT pg_current_snapshot()::text")), 0)
        running = frozenset(xid for xid in running if xid in now.running)
        if running:
            wait(_WAIT_S)


def _one(session: Session, query: str) -> Any:
    row = session.execute(query).fetchone()
    assert row is not None
    return row[0]
