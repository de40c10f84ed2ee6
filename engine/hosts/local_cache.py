"""What the local host keeps of cached streams: in memory, until the environment is closed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from weakref import WeakValueDictionary

import pyarrow as pa

from ...api.connectors.cached import CachedSource, CacheSink
from ...api.connectors.cached_parts import PartStore
from ...core.errors import ConnectorError
from .memory_parts import MemoryParts

_stores: WeakValueDictionary[str, MemoryParts] = WeakValueDictionary()
"""Those of this process, by id."""


@dataclass(frozen=True)
class LocalAccess:
    """By the store's id; a StoreAccess."""

    store_id: str

    def open(self) -> PartStore:
        store = _stores.get(self.store_id)
        if store is None:
            raise ConnectorError("its environment was closed")
        return store


class LocalCache:
    """A CacheStore. What is kept goes when it is closed, or nobody has it any more."""

    def __init__(self) -> None:
        self.parts = MemoryParts()
        self._access = LocalAccess(uuid.uuid4().hex)
        _stores[self._access.store_id] = self.parts

    def sink(self, token: str | None, node: int) -> CacheSink:
        return CacheSink(self._access, token, node)

    def source(self, token: str, schema: pa.Schema | None) -> CachedSource:
        return CachedSource(self._access, token, schema)

    def holds(self, token: str) -> bool:
        return self.parts.parts(token) is not None

    def drop(self, token: str) -> None:
        self.parts.drop(token)

    def close(self) -> None:
        _stores.pop(self._access.store_id, None)
        self.parts = MemoryParts()
