"""For tests with a real PostgreSQL: databases, readers driven by hand, strict folding."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from strom.api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    ReaderContext,
    Wait,
    WriterContext,
)
from strom.connectors.postgres import PostgresCdcSource
from strom.connectors.postgres.positions import CdcSplit
from strom.connectors.postgres.replication import parse_lsn
from strom.core.batch import to_columns
from strom.core.clock import SystemClock
from strom.core.row_kind import RowKind
from strom.operators.base import run_to_end
from strom.testing.postgres import PostgresServer

DEADLINE_S = 160.0


class Database:
    """A database of a server."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name

    @property
    def conninfo(self) -> str:
        return f"{self.server.conninfo} dbname={self.name}"

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.conninfo, **more)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """In one transaction; the rows of the last one."""
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def one(self, statement: str) -> Any:
        return self.run(statement)[0][0]

    def table(self, name: str) -> list[tuple[Any, ...]]:
        """Its rows, in order."""
        return sorted(self.run(f"SELECT * FROM {name}"), key=repr)

    def mark(self) -> int:
        """A position behind all that has committed."""
        return parse_lsn(self.one("SELECT pg_logical_emit_message(true, 'mark', '')::text"))

    def confirmed(self, slot: str) -> int:
        query = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = "
        return parse_lsn(self.one(f"{query}'{slot}'"))

    def terminate(self, application: str = "strom") -> int:
        """End the connections that connectors have; how many."""
        found = self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE application_name = '{application}' AND datname = '{self.name}'"
        )
        return len(found)


@contextmanager
def new_database(server: PostgresServer, name: str) -> Iterator[Database]:
    """Afterwards it is gone, and its slots with it."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
    try:
        yield Database(server, name)
    finally:
        with psycopg.connect(server.conninfo, autocommit=True) as connection:
            drop_slots(connection, name)
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


def drop_slots(connection: psycopg.Connection[Any], database: str) -> None:
    """A slot is free a moment after its reader has gone."""
    query = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s"
    deadline = time.monotonic() + DEADLINE_S
    while slots := connection.execute(query, (database,)).fetchall():
        for slot, pid in slots:
            if pid is None:
                connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        assert time.monotonic() < deadline, f"slots {slots} are still read"
        time.sleep(0.02)


def until(condition: Callable[[], Any], what: str, seconds: float = DEADLINE_S) -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return value


# --- a reader driven by hand -----------------------------------------------------------------


class Reading:
    """A reader of a capture, and what it gave. Continue another one with its `split`."""

    def __init__(
        self, source: PostgresCdcSource, split: CdcSplit | None = None, batch_size: int = 100
    ) -> None:
        self._woken = threading.Event()
        self.gauges: dict[str, float] = {}
        context = ReaderContext(
            "cdc", 0, 1, batch_size, SystemClock(), self._woken.set, self.gauges.__setitem__
        )
        self.reader = source.create_reader(context)
        if split is None:
            enumerator = source.create_enumerator(EnumeratorContext("cdc", 1, "job"), None)
            (split,) = enumerator.next_splits(0) or ()
        self.reader.add_splits([pickle.loads(pickle.dumps(split))])
        self.rows: list[tuple[Any, ...]] = []
        """All so far, the kind last."""
        self.stamps: list[int] = []
        self.finished = False

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *error: object) -> None:
        self.reader.close()

    @property
    def split(self) -> CdcSplit:
        (split,) = self.reader.snapshot()
        return split

    def step(self, seconds: float = DEADLINE_S) -> bool:
        """Take one batch, waiting for it; False once the capture is finished."""
        deadline = time.monotonic() + seconds
        while True:
            self._woken.clear()
            match self.reader.poll():
                case Emit(batch, _, finished):
                    if len(batch):
                        self.rows += [tuple(row) for row in to_columns(batch).rows()]
                        self.stamps += batch.timestamps.tolist()
                    self.finished |= finished
                    return True
                case NeedSplit():
                    return False
                case Wait():
                    left = deadline - time.monotonic()
                    assert left > 0, f"nothing comes; so far {len(self.rows)} rows"
                    self._woken.wait(left)

    def read(self, rows: int) -> Reading:
        """Until there are so many rows."""
        while len(self.rows) < rows:
            assert self.step(), f"finished with {len(self.rows)} rows"
        return self

    def read_to(self, lsn: int) -> Reading:
        """Until everything that committed before `lsn` is read."""
        deadline = time.monotonic() + DEADLINE_S
        while not (self.split.loaded and self.split.lsn >= lsn):
            assert time.monotonic() < deadline, f"stands at {self.split}"
            self._woken.clear()
            match self.reader.poll():
                case Emit(batch, _, _):
                    if len(batch):
                        self.rows += [tuple(row) for row in to_columns(batch).rows()]
                case _:
                    self._woken.wait(0.1)
        return self

    def complete(self, checkpoint_id: int) -> CdcSplit:
        """A checkpoint of the reader completes."""
        split = self.split
        self.reader.notify_checkpoint_complete(checkpoint_id, [split])
        return split

    def failure(self) -> str:
        """What it fails with."""
        try:
            while self.step():
                pass
        except Exception as error:
            return str(error)
        raise AssertionError(f"it ended without failing, with rows {self.rows[-5:]}")


# --- what a changelog makes of a table -----------------------------------------------------------


def folded(rows: Sequence[tuple[Any, ...]], keys: int = 1) -> list[tuple[Any, ...]]:
    """The table that a retracting changelog describes. AssertionError where a record does not fit
    what was before it: so nothing may be missing, doubled or out of order."""
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for *values, kind in rows:
        row, key = tuple(values), tuple(values[:keys])
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            assert key not in table, f"{row} comes, and there is {table[key]}"
            table[key] = row
        else:
            assert table.get(key) == row, f"{row} goes, and there is {table.get(key)}"
            del table[key]
    return sorted(table.values(), key=repr)


def replaced(rows: Sequence[tuple[Any, ...]], keys: int = 1) -> list[tuple[Any, ...]]:
    """The table that an upsert changelog describes."""
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for *values, kind in rows:
        key = tuple(values[:keys])
        assert kind != RowKind.UPDATE_BEFORE
        if kind == RowKind.DELETE:
            assert table.pop(key, None) is not None, f"{key} goes, and is not there"
        else:
            assert kind == RowKind.UPDATE_AFTER or key not in table, f"{values} comes twice"
            table[key] = tuple(values)
    return sorted(table.values(), key=repr)


class Writing:
    """A thread that writes to a database until it is stopped: `write(connection, number)` in a
    transaction each."""

    def __init__(self, database: Database, write: Callable[[Any, int], None]) -> None:
        self._database = database
        self._write = write
        self._stop = threading.Event()
        self.count = 0
        self._thread = threading.Thread(target=self._run, name="test-writing", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        if self.error is not None and error[1] is None:
            raise self.error

    def _run(self) -> None:
        try:
            with self._database.connect() as connection:
                while not self._stop.is_set():
                    with connection.transaction():
                        self._write(connection, self.count)
                    self.count += 1
                    self._stop.wait(0.002)
        except BaseException as error:
            self.error = error


# --- a sink's writer driven by hand ----------------------------------------------------------


class Driven:
    """A writer, of which all steps are taken at once."""

    def __init__(self, made: Any) -> None:
        self.made = made

    def write(self, batch: Any) -> None:
        run_to_end(self.made.write(batch))

    def commit(self, committables: Sequence[Any]) -> None:
        run_to_end(self.made.commit(committables))

    def recover(self, committables: Sequence[Any]) -> None:
        run_to_end(self.made.recover(committables))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.made, name)


def writer(
    sink: Any,
    subtask: int = 0,
    parallelism: int = 1,
    attempt: int = 0,
    job_id: str = "job-1",
    token: str = "",
) -> Driven:
    """As a task would make it. `token`: as of `WriterContext`."""
    context = WriterContext(
        operator="table",
        operator_id="table",
        job_id=job_id,
        subtask=subtask,
        parallelism=parallelism,
        attempt=attempt,
        clock=SystemClock(),
        publish=lambda key, value: None,
        checkpointing=True,
        token=token,
    )
    return Driven(sink.create_writer(context))


def prepare(made: Any, checkpoint_id: int) -> list[Any]:
    """The committables, as they come back from a checkpoint."""
    prepared = made.prepare_commit(checkpoint_id)
    found = prepared() if callable(prepared) else prepared
    return list(pickle.loads(pickle.dumps(list(found))))
