"""Makes the keyed state of a task's operators, as the job's configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.clock import Clock
from ..core.ids import KeyGroupRange
from ..core.state_config import ROCKSDB, StateConfig
from .memory import MemoryKeyedStateBackend

if TYPE_CHECKING:
    from .rocks.database.task_database import TaskDatabase


class KeyedStates:
    """Of one task in one attempt; `close` once, when it is over, whatever it made."""

    def __init__(self, config: StateConfig) -> None:
        self._config = config
        self._databases: list[TaskDatabase] = []
        self._made: list[MemoryKeyedStateBackend] = []

    def make(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        clock: Clock | None = None,
        backend: str | None = None,
    ) -> MemoryKeyedStateBackend:
        """The state of one operator. `backend`: the operator's own; None: the job's."""
        if (backend or self._config.backend) != ROCKSDB:
            return MemoryKeyedStateBackend(key_groups, max_parallelism, clock)
        from .rocks.backend import RocksKeyedStateBackend
        from .rocks.database.task_database import TaskDatabase

        database = TaskDatabase(self._config)
        self._databases.append(database)
        made = RocksKeyedStateBackend(key_groups, max_parallelism, database, clock)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Let go of what lies outside of memory."""
        for state in self._made:
            state.close()
        for database in self._databases:
            database.close()
