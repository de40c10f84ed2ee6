"""How much memory the state of one process takes, and how its tasks share it.

One block cache and one manager of write buffers serve all databases of a process. What is left of
the budget is for caches: each state may have what the others leave, and an even share at least.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Protocol
from weakref import WeakSet

from ....core.state_config import StateConfig


class Cached(Protocol):
    """A state that holds some of its entries in memory."""

    @property
    def used(self) -> int:
        """Bytes, about."""
        ...


class StateBudget:
    """Of one process. Any thread."""

    def __init__(self, config: StateConfig) -> None:
        rocksdb = int(config.memory * config.rocksdb_share)
        self.write_buffers = int(rocksdb * config.write_buffer_share)
        self.blocks = rocksdb - self.write_buffers
        self.caches = config.memory - rocksdb
        self.mapped = config.mapped
        """Whether files are mapped into memory, beside the budget."""
        self.compression = config.compression
        """Of files, by level; the last one is for all further levels."""
        self._users: WeakSet[Any] = WeakSet()
        self._lock = Lock()
        self._shared: tuple[Any, Any] | None = None

    def join(self, user: Cached) -> None:
        with self._lock:
            self._users.add(user)

    def leave(self, user: Cached) -> None:
        with self._lock:
            self._users.discard(user)

    def limit(self, user: Cached) -> int:
        """Bytes that `user` may take now."""
        with self._lock:
            users = list(self._users)
        others: int = sum(other.used for other in users if other is not user)
        return max(self.caches - others, self.caches // max(len(users), 1))

    def shared(self) -> tuple[Any, Any]:
        """The block cache and the write buffers' manager."""
        with self._lock:
            if self._shared is None:
                from rocksdict import Cache, WriteBufferManager

                self._shared = (
                    Cache(self.blocks),
                    WriteBufferManager(self.write_buffers, False),
                )
            return self._shared

    @property
    def rocksdb_used(self) -> int:
        """Bytes of the block cache and the write buffers."""
        if self._shared is None:
            return 0
        cache, buffers = self._shared
        return int(cache.get_usage()) + int(buffers.get_usage())


_budgets: dict[tuple[object, ...], StateBudget] = {}
_lock = Lock()


def budget_of(config: StateConfig) -> StateBudget:
    """That of this process. Jobs that share a process and ask for the same share one."""
    sizes = config.memory, config.rocksdb_share, config.write_buffer_share
    key = *sizes, config.mapped, config.compression
    with _lock:
        return _budgets.setdefault(key, StateBudget(config))
