"""One server for all tests of this folder, and a database for each."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from capture_kit import ITEMS
from postgres_kit import Database, new_database, until
from strom.testing.postgres import PostgresServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """For what other tests must not meet: it is killed, and keeps little log."""
    with PostgresServer({"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB"}) as server:
        yield server


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Database]:
    with new_database(server, f"db{next(_numbers)}") as database:
        yield database


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    """Readers and writers end their threads."""
    before = set(threading.enumerate())

    def left() -> list[str]:
        new = set(threading.enumerate()) - before
        return [one.name for one in new if one.name.startswith("strom-")]

    yield
    until(lambda: not left(), f"the end of threads {left()}", 10.0)


@pytest.fixture
def items(database: Database) -> Database:
    """With the table `items`: ten rows, of which all columns are told of a change."""
    database.run(*ITEMS)
    return database
