"""What the writers of PostgreSQL's sinks are told."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ...core.errors import ConfigurationError
from .connection import PostgresConnection


@dataclass(frozen=True)
class PostgresSinkConfig:
    """What a writer needs to know. `batch_rows`: so many are copied at once."""

    connection: PostgresConnection
    table: str
    schema: pa.Schema | None
    batch_rows: int

    def __post_init__(self) -> None:
        if not isinstance(self.table, str) or not self.table:
            raise ConfigurationError(f"table must be the name of a table, is {self.table!r}")
        if self.batch_rows < 1:
            raise ConfigurationError(f"batch_rows must be at least 1, is {self.batch_rows}")
