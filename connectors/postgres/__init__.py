"""PostgreSQL: changes as a source, exactly-once and upsert sinks, and a table to look up.

Needs the extra `postgres` (psycopg 3)."""

from .cdc import PostgresCdcSource
from .connection import PostgresConnection
from .lookup import PostgresLookup
from .sink import PostgresSink, PostgresUpsertSink

__all__ = [
    "PostgresCdcSource",
    "PostgresConnection",
    "PostgresLookup",
    "PostgresSink",
    "PostgresUpsertSink",
]
