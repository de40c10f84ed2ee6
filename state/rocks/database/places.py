"""Where the entry of a key is in RocksDB: state | key group (2 bytes) | namespace | key."""

from __future__ import annotations

from typing import Any

from ....core.errors import TypeMismatchError
from ...hashing import stable_hash
from .key_bytes import key_bytes


def place_under(prefix: bytes, space: bytes | None, key: Any, max_parallelism: int) -> bytes | None:
    """Of a state (`prefix`), a namespace (its `key_bytes.alike_bytes`) and a key, as state holds
    it. None: nowhere, since one of them has no bytes."""
    own = None if space is None else key_bytes(key)
    if space is None or own is None:
        return None
    try:
        group = stable_hash(key) % max_parallelism
    except TypeMismatchError:
        return None
    return b"".join((prefix, group.to_bytes(2, "big"), space, own))
