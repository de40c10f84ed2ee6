"""What Ray's control service tells of actors by their names, and keeps under keys, without Ray."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray
from strom.engine.hosts import coordinator_names
from strom.engine.hosts.ray_connect import NAMESPACE


class NamedActors:
    """`actors`: those that are not dead for good, by name. `entries`: by namespace and key."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.actors: dict[str, Any] = {}
        self.entries: dict[tuple[bytes, bytes], bytes] = {}
        self.killed: list[str] = []
        store = SimpleNamespace(
            _internal_kv_put=self._put,
            _internal_kv_get=lambda key, namespace: self.entries.get((namespace, key)),
            _internal_kv_del=self._remove,
            _internal_kv_list=self._keys,
        )
        monkeypatch.setattr(coordinator_names, "internal_kv", store)
        monkeypatch.setattr(coordinator_names, "list_named_actors", self._listed)
        monkeypatch.setattr(ray, "get_actor", self._find)
        monkeypatch.setattr(ray, "kill", self._kill)

    @property
    def keys(self) -> list[str]:
        return [key.decode() for _, key in self.entries]

    def _find(self, name: str, namespace: str) -> Any:
        assert namespace == NAMESPACE
        if name not in self.actors:
            raise ValueError(f"no actor '{name}'")
        return self.actors[name]

    def _kill(self, actor: Any, no_restart: bool) -> None:
        assert no_restart
        (name,) = [name for name, one in self.actors.items() if one is actor]
        del self.actors[name]
        self.killed.append(name)

    def _listed(self, all_namespaces: bool) -> list[dict[str, str]]:
        ours = [{"name": name, "namespace": NAMESPACE} for name in self.actors]
        return [{"name": "strom-job-other", "namespace": "another"}, *ours]

    def _put(self, key: bytes, value: bytes, overwrite: bool = True, *, namespace: bytes) -> bool:
        there = (namespace, key) in self.entries
        if overwrite or not there:
            self.entries[namespace, key] = value
        return there

    def _remove(self, key: bytes, *, del_by_prefix: bool = False, namespace: bytes) -> None:
        gone = self._keys(key, namespace=namespace) if del_by_prefix else [key]
        for one in gone:
            self.entries.pop((namespace, one), None)

    def _keys(self, prefix: bytes, *, namespace: bytes) -> list[bytes]:
        return [key for space, key in self.entries if space == namespace and key.startswith(prefix)]
