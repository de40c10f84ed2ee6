"""Both keyed state backends, behind one call; RocksDB so that nothing stays in memory for long."""

from __future__ import annotations

from typing import Any

from strom.core.clock import Clock
from strom.core.ids import KeyGroupRange
from strom.core.state_config import StateConfig
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.task_database import TaskDatabase

BACKENDS = ("memory", "rocksdb")

TINY = StateConfig("rocksdb", memory=8 << 20, rocksdb_share=1 - 1e-6)
"""No cache holds an entry for longer than a batch."""


class SpillingBackend(RocksKeyedStateBackend):
    """A new current key is a new batch: all else goes to RocksDB."""

    def __init__(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock | None = None,
    ) -> None:
        if _databases == []:
            _databases.append(TaskDatabase(TINY))
        super().__init__(key_groups, max_parallelism, _databases[0], clock)

    def set_current_key(self, key: Any) -> None:
        self.time.begin(1)
        super().set_current_key(key)


_databases: list[TaskDatabase] = []
"""One for all: to open one takes long."""


def make_backend(
    kind: str, key_groups: KeyGroupRange, max_parallelism: int, clock: Clock | None = None
) -> MemoryKeyedStateBackend:
    if kind == "memory":
        return MemoryKeyedStateBackend(key_groups, max_parallelism, clock)
    return SpillingBackend(key_groups, max_parallelism, clock)


def close_all() -> None:
    """Remove what was made."""
    while _databases:
        _databases.pop().close()
