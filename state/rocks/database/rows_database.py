"""A database of kept rows beside that of the other states: no checkpoint has its files.

The numbers of rows change while the rows do not, so checkpoints have tables of both, or of what
changed, as from memory. What lies here is a cache alone, and begins empty with each attempt.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

from ....core.errors import StateError
from ....core.state_config import StateConfig
from .task_database import TaskDatabase

APART: Final = 1024
"""So many entries are read on another thread before the database may be closed."""


class RowsDatabase(TaskDatabase):
    """Not thread-safe, but for `get_apart`."""

    def __init__(self, config: StateConfig) -> None:
        super().__init__(config)
        self._reading = Lock()
        """Held by who reads on another thread, and by who closes: RocksDB refuses to close while
        somebody reads."""

    def get_apart(self, keys: list[bytes]) -> list[bytes | None]:
        """As `get_many`, on any thread. StateError if the database is closed."""
        found: list[bytes | None] = []
        for start in range(0, len(keys), APART):
            with self._reading:
                if not self.open:
                    raise StateError(
                        "the local RocksDB of kept rows is closed: the task is over, and what a "
                        "snapshot of it still has to read is gone"
                    )
                found += self.get_many(keys[start : start + APART])
        return found

    def close(self) -> None:
        with self._reading:
            super().close()
