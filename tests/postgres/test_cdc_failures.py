"""What a capture cannot go on from is an error that says so, and what passes is waited for."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from capture_kit import ITEMS, QUICK, position, said, source
from postgres_kit import Database, Reading, Writing, folded, new_database, until
from strom.connectors.postgres import PostgresCdcSource, PostgresConnection
from strom.connectors.postgres.connection import is_passing
from strom.core.errors import ConfigurationError, ConnectorError
from strom.testing.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.postgres


# --- the slot ------------------------------------------------------------------------------------


def test_a_dropped_slot(items: Database) -> None:
    split = position(items)
    items.run(f"SELECT pg_drop_replication_slot('{split.slot}')")
    assert "no slot" in said(items, split)
    assert "are lost" in said(items, split)
    assert items.one("SELECT count(*) FROM pg_replication_slots") == 0, "it is not made silently"


def test_a_slot_that_was_advanced(items: Database) -> None:
    split = position(items)
    items.run("INSERT INTO items VALUES (11, 'lost')")
    items.mark()
    items.run(
        f"SELECT pg_replication_slot_advance('{split.slot}', pg_current_wal_lsn())",
    )
    text = said(items, split)
    assert "the changes between are gone" in text
    assert "newer checkpoint" in text


def test_a_slot_made_anew(items: Database) -> None:
    split = position(items)
    items.run(f"SELECT pg_drop_replication_slot('{split.slot}')")
    items.run("INSERT INTO items VALUES (11, 'lost')")
    items.run(f"SELECT pg_create_logical_replication_slot('{split.slot}', 'pgoutput')")
    assert "are gone from it" in said(items, split)


def test_a_slot_of_another_plugin(items: Database) -> None:
    items.run("SELECT pg_create_logical_replication_slot('taken', 'test_decoding')")
    assert "another database or plugin (test_decoding)" in said(items, slot="taken")


def test_a_slot_in_use_is_waited_for_then_given_up(items: Database) -> None:
    with Reading(source(items)) as first:
        first.read_to(items.mark())
        text = said(items)
        assert "is active" in text
        assert "give each job one of its own" in text
        patient = source(items, timedelta(seconds=30))
        with Reading(patient, first.split) as second:
            threading.Timer(0.5, first.reader.close).start()
            items.run("INSERT INTO items VALUES (11, 'x')")
            second.read(1)


def test_a_restore_into_another_slot(items: Database) -> None:
    split = position(items)
    with pytest.raises(ConnectorError, match=r"is of slot 'slot_.*', the source of 'other'"):
        Reading(source(items, slot="other"), split)


def test_a_fresh_start_takes_over_the_slot_of_an_attempt_without_checkpoint(
    items: Database,
) -> None:
    position(items)
    items.run("DELETE FROM items WHERE id < 5", "INSERT INTO items VALUES (1, 'again')")
    with Reading(source(items)) as again:
        again.read_to(items.mark())
    assert folded(again.rows) == items.table("items")


# --- the server ----------------------------------------------------------------------------------


def test_a_wrong_password_is_said_at_once_and_not_shown(items: Database) -> None:
    connection = PostgresConnection(items.conninfo, password="very-secret-7")
    captured = PostgresCdcSource(connection, "items", slot="s")
    with pytest.raises(ConnectorError, match="password authentication failed") as info:
        assert captured.schema
    with Reading(captured) as reading:
        text = reading.failure()
    assert "check user and password" in text
    for shown in (text, str(info.value), repr(captured), repr(connection), connection.place):
        assert "very-secret-7" not in shown
        assert PASSWORD not in shown


def test_what_may_pass() -> None:
    lost = "server closed the connection unexpectedly"
    for passes in (
        psycopg.OperationalError(lost),
        psycopg.DatabaseError(lost),
        psycopg.InterfaceError("the connection is closed"),
        psycopg.errors.AdminShutdown("terminating connection due to administrator command"),
        psycopg.errors.DeadlockDetected("deadlock"),
        psycopg.errors.ObjectInUse("slot is active"),
        ConnectionRefusedError("refused"),
    ):
        assert is_passing(passes), passes
    for stays in (
        psycopg.OperationalError("FATAL: password authentication failed for user"),
        psycopg.ProgrammingError("the query has no result"),
        psycopg.errors.UniqueViolation("duplicate key"),
        psycopg.errors.ConfigurationLimitExceeded("all replication slots are in use"),
        ValueError("a bug"),
    ):
        assert not is_passing(stays), stays


def test_a_user_who_may_not(items: Database) -> None:
    items.run("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    for grant, words in {
        "SELECT 1": "permission denied",
        "GRANT ALL ON items TO guest": "permission denied for database",
        "GRANT ALL ON items TO guest; CREATE PUBLICATION p FOR TABLE items": "replication",
    }.items():
        items.run(grant)
        guest = PostgresConnection(items.conninfo, user="guest", password="guest", patience=QUICK)
        with Reading(PostgresCdcSource(guest, "items", slot="guests", publication="p")) as reading:
            text = reading.failure()
        assert words in text
        assert "grant the user of the connection what it lacks" in text


@pytest.mark.parametrize(
    "conninfo",
    ["postgresql://me:s3cr3t@host/db?nonsense=1", "password=s3cr3t unknown=1", "host= 's3cr3t"],
)
def test_a_connection_that_is_none_is_not_shown(conninfo: str) -> None:
    with pytest.raises(ConfigurationError) as info:
        PostgresConnection(conninfo)
    assert "s3cr3t" not in str(info.value)


def test_without_psycopg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match="need psycopg 3: pip install"):
        PostgresConnection("dbname=x")


def test_a_server_that_is_not_there() -> None:
    connection = PostgresConnection("host=127.0.0.1 port=1 dbname=x", patience=QUICK)
    with Reading(PostgresCdcSource(connection, "items", slot="s")) as reading:
        text = reading.failure()
    assert text.startswith("cannot read table items through slot 's' (PostgreSQL host=127.0.0.1")
    assert "until the connection's patience was over" in text


def test_a_server_that_is_killed(own_server: PostgresServer) -> None:
    def write(connection: Any, number: int) -> None:
        connection.execute("INSERT INTO items VALUES (%s, 'w')", (1000 + number,))
        connection.execute("UPDATE items SET name = name || '.' WHERE id = %s", (number % 10 + 1,))

    with new_database(own_server, "killed") as items:
        items.run(*ITEMS)
        patient = source(items, timedelta(seconds=60))
        with Reading(patient, batch_size=3) as reading:
            reading.step()
            own_server.kill()
            own_server.start()
            reading.read(10)
            with Writing(items, write) as writing:
                until(lambda: writing.count > 20, "writes")
                own_server.kill()
                until(lambda: writing.error, "the writer's error")
                writing.error = None
                own_server.start()
            items.run("INSERT INTO items VALUES (999, 'at last')")
            reading.read_to(items.mark())
            own_server.restart()
            items.run("DELETE FROM items WHERE id = 999")
            reading.read_to(items.mark())
        assert folded(reading.rows) == items.table("items")


def test_a_slot_whose_log_was_removed(own_server: PostgresServer) -> None:
    with new_database(own_server, "removed") as items:
        items.run(*ITEMS)
        split = position(items)
        with items.connect(autocommit=True) as connection:
            for _ in range(5):
                connection.execute("SELECT pg_switch_wal()")
                connection.execute("CREATE TABLE IF NOT EXISTS other (v text)")
                connection.execute("INSERT INTO other VALUES ('x')")
                connection.execute("CHECKPOINT")
        assert "was invalidated" in said(items, split)
        assert "max_slot_wal_keep_size" in said(items)


def test_a_server_without_logical_decoding() -> None:
    with PostgresServer({"wal_level": "replica"}) as server:
        database = Database(server, "postgres")
        database.run(*ITEMS)
        assert "wal_level = replica" in said(database)
