"""Captures of a table of ten items, for what can go wrong with them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from postgres_kit import Database, Reading
from strom.connectors.postgres import PostgresCdcSource, PostgresConnection

ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text)",
    "ALTER TABLE items REPLICA IDENTITY FULL",
    "INSERT INTO items SELECT i, 'item ' || i FROM generate_series(1, 10) i",
)

QUICK = timedelta(milliseconds=300)


def source(database: Database, patience: timedelta = QUICK, **more: Any) -> PostgresCdcSource:
    settings = {"slot": f"slot_{database.name}", **more}
    connection = PostgresConnection(database.conninfo, patience=patience)
    return PostgresCdcSource(connection, settings.pop("table", "items"), **settings)


def position(database: Database, **more: Any) -> Any:
    """Of a capture that has read everything until now, and is stopped."""
    with Reading(source(database, **more)) as reading:
        return reading.read_to(database.mark()).split


def said(database: Database, split: Any = None, **more: Any) -> str:
    with Reading(source(database, **more), split) as reading:
        return reading.failure()
