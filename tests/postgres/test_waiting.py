"""A server that lets one wait: for a lock, for other transactions, or because it is paused. Who is
to end ends, mail is heard meanwhile, and waiting has a limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from postgres_kit import Database, Reading, folded, prepare, until, writer
from strom import CheckpointConfig, JobConfig, StreamExecutionEnvironment
from strom.connectors.postgres import (
    PostgresCdcSource,
    PostgresConnection,
    PostgresLookup,
    PostgresSink,
    PostgresUpsertSink,
)
from strom.connectors.postgres import feed as feeds
from strom.connectors.postgres.replication import ReplicationStream
from strom.connectors.postgres.worker import AHEAD, DatabaseWorker
from strom.core.batch import ColumnBatch
from strom.core.errors import ConfigurationError, ConnectorError
from strom.core.job_status import JobStatus
from strom.operators.base import run_to_end
from strom.testing.scripted import ScriptedSource

pytestmark = pytest.mark.postgres

SCHEMA = pa.schema([("n", pa.int64())])

SOON_S = 6.0
"""An end may take so long: less than a job waits for its tasks."""

LOCK = "LOCK TABLE numbers IN EXCLUSIVE MODE"
"""Nobody else writes there."""

WHOLE = "LOCK TABLE numbers IN ACCESS EXCLUSIVE MODE"
"""Nor reads."""

STROM = "FROM pg_stat_activity WHERE application_name = 'strom' AND datname = current_database()"


@pytest.fixture
def numbers(database: Database) -> Database:
    database.run("CREATE TABLE numbers (n bigint PRIMARY KEY)")
    database.run("ALTER TABLE numbers REPLICA IDENTITY FULL")
    return database


def batch(*values: int) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pydict({"n": list(values)}, schema=SCHEMA))


def sinks(connection: Any) -> dict[str, Any]:
    """One of each writer."""
    return {
        "staged": PostgresSink(connection, "numbers", batch_rows=1),
        "insert": PostgresSink(connection, "numbers", "at_least_once", batch_rows=1),
        "upsert": PostgresUpsertSink(connection, "numbers", "n", "at_least_once", batch_rows=1),
    }


EACH = pytest.mark.parametrize("kind", ["staged", "insert", "upsert"])
BOTH = pytest.mark.parametrize("kind", ["staged", "insert"])


@pytest.fixture
def cut_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cancel is heard."""
    monkeypatch.setattr("strom.connectors.postgres.server_thread.CUT_S", 0.3)


@contextmanager
def another(database: Database, statement: str) -> Iterator[None]:
    """Somebody's open transaction."""
    with database.connect() as connection:
        connection.execute(statement)  # type: ignore[call-overload]
        yield
        connection.rollback()


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """A process of the server that does not go on, as on a machine that swaps."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def soon(call: Callable[[], Any], seconds: float = SOON_S) -> None:
    """It returns in time."""
    thread = threading.Thread(target=call, name="test-soon", daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), f"not within {seconds} s"


def sessions(database: Database) -> list[int]:
    return [pid for (pid,) in database.run(f"SELECT pid {STROM}")]


def waits(database: Database, words: str = "", by: Any = None) -> bool:
    """Whether a session of a connector waits for a lock, in a statement with these words. `by`: a
    connection in autocommit that is asked; None: a new one."""
    found = f"SELECT count(*) {STROM} AND wait_event_type = 'Lock' AND query LIKE '%{words}%'"
    return bool(database.one(found) if by is None else by.execute(found).fetchone()[0])


def capture(database: Database, **more: Any) -> PostgresCdcSource:
    slot = f"slot_{database.name}"
    return PostgresCdcSource(database.conninfo, "numbers", slot=slot, **more)


# --- ends are heard ------------------------------------------------------------------------------


@EACH
def test_a_job_is_cancelled_while_its_rows_wait_for_a_lock(
    numbers: Database, kind: str, tmp_path: Path
) -> None:
    checkpoint = CheckpointConfig(interval=timedelta(milliseconds=50), storage=str(tmp_path))
    config = JobConfig(parallelism=1, batch_size=10, checkpoint=checkpoint)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = ScriptedSource([[(n,) for n in range(200)]], SCHEMA)
    env.from_source(source, source_name="numbers").sink_to(sinks(numbers.conninfo)[kind])
    with another(numbers, LOCK):
        client = env.execute_async("waits")
        until(lambda: waits(numbers), "a statement that waits for the lock")
        soon(client.cancel)
        assert client.get_job_status() is JobStatus.CANCELED
        until(lambda: not sessions(numbers), "the end of its sessions")
    assert numbers.table("numbers") == [], "nobody is left who writes when the lock is free"


@EACH
def test_a_writer_waits_in_steps(numbers: Database, kind: str) -> None:
    driven = writer(sinks(numbers.conninfo)[kind])
    with another(numbers, WHOLE):
        for n in range(AHEAD):
            assert driven.made.write(batch(n)) is None
        steps = driven.made.write(batch(AHEAD))
        soon(lambda: [next(steps) for _ in range(3)])
    run_to_end(steps)
    driven.commit(prepare(driven, 1))
    driven.close()
    assert numbers.table("numbers") == [(n,) for n in range(AHEAD + 1)]


def test_a_writer_publishes_in_steps(numbers: Database) -> None:
    sink = sinks(numbers.conninfo)["staged"]
    first = writer(sink)
    for n in range(2):
        first.write(batch(n))
    held = prepare(first, 1)
    first.close()
    again = writer(sink, attempt=1)
    with another(numbers, LOCK):
        steps = again.made.recover(held)
        soon(lambda: [next(steps) for _ in range(3)])
    run_to_end(steps)
    assert numbers.table("numbers") == [(0,), (1,)]
    again.write(batch(2))
    held = prepare(again, 2)
    with another(numbers, LOCK):
        steps = again.made.commit(held)
        soon(lambda: [next(steps) for _ in range(3)])
    run_to_end(steps)
    again.close()
    assert numbers.table("numbers") == [(0,), (1,), (2,)]


def test_a_cancel_ahead_of_a_statement_is_not_lost(numbers: Database) -> None:
    begun = threading.Event()

    def work(session: Any, again: bool) -> None:
        begun.set()
        time.sleep(0.3)  # the first cancel comes here
        session.execute("SELECT pg_sleep(12)")

    worker = DatabaseWorker(PostgresConnection(numbers.conninfo), lambda session: None, "test")
    worker.submit("sleep", work)
    assert begun.wait(SOON_S)
    soon(worker.close)
    until(lambda: not sessions(numbers), "the end of its session", SOON_S)


@BOTH
def test_a_writer_is_closed_while_its_server_process_is_paused(
    numbers: Database, kind: str, cut_early: None
) -> None:
    made = writer(sinks(numbers.conninfo)[kind])
    made.write(batch(1))
    (pid,) = until(lambda: sessions(numbers), "a session")
    until(lambda: made._worker.has_room(0, 1), "the first row")
    with paused(pid):
        made.write(batch(2))
        soon(made.close)


@pytest.mark.parametrize("lost", [False, True])
def test_a_capture_is_closed_while_its_slot_waits_for_a_transaction(
    numbers: Database, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()
    make = feeds.prepare_slot

    def prepare_slot(*arguments: Any) -> int:
        begun.set()
        time.sleep(0.3 if lost else 0.0)  # the first cancel comes here
        return make(*arguments)

    monkeypatch.setattr(feeds, "prepare_slot", prepare_slot)
    with another(numbers, "INSERT INTO numbers VALUES (1)"):
        reading = Reading(capture(numbers))
        assert begun.wait(SOON_S)
        if not lost:
            until(lambda: waits(numbers, "pg_create_logical_replication_slot"), "a slot's making")
        soon(reading.reader.close)
        until(lambda: not sessions(numbers), "the end of its session", SOON_S)
    assert numbers.one("SELECT count(*) FROM pg_replication_slots") == 0


def test_a_capture_is_closed_while_it_looks_at_the_catalogs(
    numbers: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "LOOK_EVERY_S", 0.1)
    reading = Reading(capture(numbers))
    reading.read_to(numbers.mark())
    lock = "LOCK TABLE pg_catalog.pg_publication IN ACCESS EXCLUSIVE MODE"
    with numbers.connect(autocommit=True) as known:  # new ones may need what is locked to begin
        assert not waits(numbers, "pg_publication", known)
        with another(numbers, lock):
            until(lambda: waits(numbers, "pg_publication", known), "a look")
            soon(reading.reader.close)
            until(lambda: not waits(numbers, "", known), "the end of the look", SOON_S)


def test_a_capture_is_closed_while_its_stream_does_not_begin(
    numbers: Database, cut_early: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    start = ReplicationStream.start

    def stop_first(stream: ReplicationStream, *arguments: Any) -> None:
        pid = stream._pgconn.backend_pid
        os.kill(pid, signal.SIGSTOP)
        begun.append(pid)
        start(stream, *arguments)

    monkeypatch.setattr(ReplicationStream, "start", stop_first)
    reading = Reading(capture(numbers))
    until(lambda: begun, "the start of the stream")
    try:
        soon(reading.reader.close)
    finally:
        os.kill(begun[0], signal.SIGCONT)


def test_a_capture_confirms_often_while_it_reads_its_table(numbers: Database) -> None:
    numbers.run("INSERT INTO numbers SELECT generate_series(1, 100)")
    with Reading(capture(numbers), batch_size=5) as reading:
        reading.step()
        feed = reading.reader._feed
        assert feed is not None
        until(lambda: len(feed._ready) == feeds.AHEAD, "a thread that waits for the task")

        def confirm() -> None:
            for _ in range(70_000):  # a pipe takes 65,536 bytes
                feed.confirm(0)

        soon(confirm)
        reading.read_to(numbers.mark())
    assert folded(reading.rows) == numbers.table("numbers")


# --- waiting has a limit -------------------------------------------------------------------------


def failure(made: Any) -> str:
    """What writing, preparing or committing fails with."""
    try:
        made.write(batch(2))
        made.commit(prepare(made, 1))
    except ConnectorError as error:
        return str(error)
    raise AssertionError("it was written")


@BOTH
def test_a_lock_that_is_waited_for_too_long(numbers: Database, kind: str) -> None:
    limit = timedelta(milliseconds=300)
    connection = PostgresConnection(numbers.conninfo, statement_timeout=limit)
    made = writer(sinks(connection)[kind])
    with another(numbers, LOCK):
        text = failure(made)
        soon(made.close)
    assert "table numbers (PostgreSQL host=127.0.0.1" in text
    assert "longer than statement_timeout=0:00:00.300000 of the PostgresConnection" in text


@BOTH
def test_a_server_process_that_is_paused_for_too_long(
    numbers: Database, kind: str, cut_early: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strom.connectors.postgres.connection.GRACE_S", 0.2)
    limit = timedelta(milliseconds=300)
    made = writer(sinks(PostgresConnection(numbers.conninfo, statement_timeout=limit))[kind])
    made.write(batch(1))
    (pid,) = until(lambda: sessions(numbers), "a session")
    until(lambda: made._worker.has_room(0, 1), "the first row")
    with paused(pid):
        text = failure(made)
        soon(made.close)
    assert "the server has not done it in 1 s: it took longer than statement_timeout=" in text


def test_a_lookup_does_not_wait_for_ever(
    numbers: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers.run("INSERT INTO numbers VALUES (1)")
    monkeypatch.setattr("strom.connectors.postgres.connection.GRACE_S", 0.2)
    limit = timedelta(milliseconds=300)
    lookup = PostgresLookup(
        PostgresConnection(numbers.conninfo, statement_timeout=limit), "numbers"
    )
    keys = pa.RecordBatch.from_pydict({"n": [1]}, schema=SCHEMA)
    assert lookup(keys).num_rows == 1
    with (
        another(numbers, WHOLE),
        pytest.raises(ConnectorError, match=r"statement_timeout=0:00:00\.3"),
    ):
        lookup(keys)
    assert lookup(keys).num_rows == 1
    (pid,) = until(lambda: len(found := sessions(numbers)) == 1 and found, "one session")
    with paused(pid):
        soon(lambda: lookup(keys))
    assert lookup(keys).num_rows == 1
    lookup.close()


def test_a_connection_says_when_it_is_lost() -> None:
    shown = PostgresConnection("dbname=x", keepalives_idle=7).conninfo()
    for word in ("tcp_user_timeout=60000", "keepalives_idle=7", "keepalives_count=4"):
        assert word in shown


def test_wrong_limits() -> None:
    assert PostgresConnection("", statement_timeout=None).answer_s is None
    with pytest.raises(ConfigurationError, match="statement_timeout must be at least"):
        PostgresConnection("", statement_timeout=timedelta(0))
