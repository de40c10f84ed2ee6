"""What the Ray host keeps of cached streams: in Ray's object store.

The objects' owner is an actor, the keeper, not the tasks that make them: these end with their job.
The keeper is the program's, and ends with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import ray

from ...api.connectors.cached import CachedSource, CacheSink
from ...api.connectors.cached_parts import Ended, Kept, Part, PartStore
from ...core.errors import ConnectorError
from .memory_parts import MemoryParts
from .ray_connect import NAMESPACE

ANSWER_S = 60.0
"""The keeper answers within this, however busy the machine is; else it counts as lost."""


class CacheKeeper:
    """Made into a Ray actor. Owns the objects, and knows which of them count."""

    def __init__(self) -> None:
        self._parts = MemoryParts()

    def put(self, token: str, part: Part, data: Any) -> None:
        self._parts.put(token, part, ray.put(data))

    def commit(self, token: str, kept: Sequence[Kept], ended: Sequence[Ended]) -> None:
        self._parts.commit(token, kept, ended)

    def revoke(self, token: str, after: int) -> None:
        self._parts.revoke(token, after)

    def parts(self, token: str) -> list[Part] | None:
        return self._parts.parts(token)

    def get(self, token: str, part: Part) -> list[Any]:
        """The object's reference, in a list, so that Ray does not open it on the way."""
        return [self._parts.get(token, part)]

    def drop(self, token: str) -> None:
        self._parts.drop(token)


class _Remote:
    """The keeper's store, from any process of the cluster."""

    def __init__(self, keeper: Any) -> None:
        self._keeper = keeper

    def put(self, token: str, part: Part, data: Any) -> None:
        _answer(self._keeper.put.remote(token, part, data))

    def commit(self, token: str, kept: Sequence[Kept], ended: Sequence[Ended]) -> None:
        _answer(self._keeper.commit.remote(token, list(kept), list(ended)))

    def revoke(self, token: str, after: int) -> None:
        _answer(self._keeper.revoke.remote(token, after))

    def drop(self, token: str) -> None:
        _answer(self._keeper.drop.remote(token))

    def parts(self, token: str) -> list[Part] | None:
        found: list[Part] | None = _answer(self._keeper.parts.remote(token))
        return found

    def get(self, token: str, part: Part) -> Any:
        (held,) = _answer(self._keeper.get.remote(token, part))
        return _answer(held)


def _answer(ref: Any) -> Any:
    """ConnectorError if the keeper, or what it kept, is gone."""
    try:
        return ray.get(ref, timeout=ANSWER_S)
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, Exception) else error) from None
    except ray.exceptions.RayError as error:
        first = str(error).strip().partition("\n")[0]
        raise ConnectorError(
            f"what Ray kept of it is gone: {type(error).__name__}: {first}"
        ) from None


@dataclass(frozen=True)
class RayAccess:
    """By the keeper's name; a StoreAccess."""

    keeper: str

    def open(self) -> PartStore:
        try:
            return _Remote(ray.get_actor(self.keeper, namespace=NAMESPACE))
        except ValueError:
            raise ConnectorError(
                f"the actor '{self.keeper}' that keeps it is gone, with its program or its node"
            ) from None


class RayCache:
    """A CacheStore. Its keeper is started with the first job that keeps something."""

    def __init__(self) -> None:
        self._name = _new_name()
        self._keeper: Any = None

    def sink(self, token: str | None, node: int) -> CacheSink:
        if self._keeper is not None and not self._lives():
            self._name, self._keeper = _new_name(), None
        return CacheSink(RayAccess(self._name), token, node)

    def source(self, token: str, schema: pa.Schema | None) -> CachedSource:
        return CachedSource(RayAccess(self._name), token, schema)

    def prepare(self) -> None:
        """Start the keeper, unless it runs. This program is connected to Ray."""
        if self._keeper is None:
            options = {"name": self._name, "namespace": NAMESPACE, "num_cpus": 0}
            self._keeper = ray.remote(CacheKeeper).options(**options).remote()
            _answer(self._keeper.parts.remote(""))

    def holds(self, token: str) -> bool:
        if self._keeper is None:
            return False
        try:
            return _Remote(self._keeper).parts(token) is not None
        except Exception:
            return False

    def drop(self, token: str) -> None:
        if self._keeper is not None:
            with suppress(Exception):  # it is gone, and all it kept with it
                _Remote(self._keeper).drop(token)

    def close(self) -> None:
        keeper, self._keeper = self._keeper, None
        self._name = _new_name()
        if keeper is not None:
            with suppress(Exception):
                ray.kill(keeper, no_restart=True)

    def _lives(self) -> bool:
        try:
            _Remote(self._keeper).parts("")
        except Exception:
            return False
        return True


def _new_name() -> str:
    return f"strom-cache-{uuid.uuid4().hex[:16]}"
