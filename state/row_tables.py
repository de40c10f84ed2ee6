"""Row-face state to Arrow and back.

One row per stored value, list element or map entry:

    __key_group | namespace | key | [map_key] | value

`freeze` is the synchronous half of a snapshot: it copies references if no value can be changed in
place, and pickles otherwise. `RowFreeze.table` is the asynchronous half.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.keys import findable
from .backend import KEY_GROUP, StateTable
from .encoding import PICKLE, decode, encode, immutable
from .hashing import stable_hash
from .key_groups import group_order, key_groups_of
from .pickling import dumps
from .row_states import Spaces

NAMESPACE, KEY, MAP_KEY, VALUE = "namespace", "key", "map_key", "value"

_VECTORISED_FROM = 4096
"""Fewer keys are hashed one by one."""

_KERNELS_FROM = 1_000_000
"""So many keys are worth loading the compiled kernels for, which takes half a second."""


@dataclass(frozen=True)
class RowFreeze:
    """A point in time of one row-face state.

    The first `namespaces[0][1]` keys are in the namespace `namespaces[0][0]`, and so on. `keys[i]`
    owns `lengths[i]` consecutive entries of `values` and, for maps, `map_keys`. Values are bytes
    already if `values_pickled`.
    """

    name: str
    kind: str
    namespaces: list[tuple[Any, int]]
    keys: list[Any]
    lengths: npt.NDArray[np.int64]
    map_keys: list[Any] | None
    values: list[Any]
    values_pickled: bool

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        if not self.keys:
            return None
        what = f"state '{self.name}'"
        keys = encode(self.keys, f"key of {what}")
        groups = groups_of_keys(self.keys, *keys, max_parallelism)
        owner = np.repeat(np.arange(len(self.keys)), self.lengths)
        order = group_order(groups[owner])
        rows = owner[order]
        spans = np.repeat(np.arange(len(self.namespaces)), [n for _, n in self.namespaces])
        namespaces = encode([namespace for namespace, _ in self.namespaces], f"namespace of {what}")
        columns = {NAMESPACE: (namespaces, spans[rows]), KEY: (keys, rows)}
        if self.map_keys is not None:
            columns[MAP_KEY] = (encode(self.map_keys, f"map key of {what}"), order)
        columns[VALUE] = (self._encoded_values(), order)
        data = {KEY_GROUP: pa.array(groups[rows])}
        metadata = {}
        for column, ((array, encoding), indices) in columns.items():
            data[column] = array.take(pa.array(indices))
            metadata[column] = encoding
        return StateTable(self.name, self.kind, pa.table(data), metadata)

    def _encoded_values(self) -> tuple[pa.Array, str]:
        if self.values_pickled:
            return pa.array(self.values, type=pa.large_binary()), PICKLE
        return encode(self.values, f"value of state '{self.name}'")


def freeze(name: str, kind: str, spaces: Spaces) -> RowFreeze:
    """Copy what is needed to encode the state later, while it goes on changing."""
    namespaces: list[tuple[Any, int]] = []
    keys: list[Any] = []
    stored: list[Any] = []
    for namespace, data in spaces.items():
        namespaces.append((namespace, len(data)))
        keys.extend(data)
        stored.extend(data.values())
    lengths = np.ones(len(keys), dtype=np.int64)
    map_keys: list[Any] | None = None
    values = stored
    if kind in ("list", "map"):
        lengths = np.fromiter(map(len, stored), dtype=np.int64, count=len(stored))
        if kind == "map":
            map_keys = list(chain.from_iterable(stored))
            stored = [entries.values() for entries in stored]
        values = list(chain.from_iterable(stored))
    plain = immutable(values)
    if not plain:
        values = [dumps(value, f"value of state '{name}'") for value in values]
    return RowFreeze(name, kind, namespaces, keys, lengths, map_keys, values, not plain)


def thaw(tables: Iterable[StateTable]) -> Spaces:
    """The state that these tables hold."""
    spaces: Spaces = {None: {}}
    for table in tables:
        what = f"state '{table.name}'"
        columns = {
            name: decode(table.data.column(name), table.metadata[name], f"{name} of {what}")
            for name in table.data.column_names[1:]
        }
        rows = zip(columns[NAMESPACE], findable(columns[KEY]), strict=True)
        match table.kind:
            case "list":
                for (namespace, key), value in zip(rows, columns[VALUE], strict=True):
                    spaces.setdefault(namespace, {}).setdefault(key, []).append(value)
            case "map":
                entries = zip(columns[MAP_KEY], columns[VALUE], strict=True)
                for (namespace, key), (map_key, value) in zip(rows, entries, strict=True):
                    spaces.setdefault(namespace, {}).setdefault(key, {})[map_key] = value
            case _:
                for (namespace, key), value in zip(rows, columns[VALUE], strict=True):
                    spaces.setdefault(namespace, {})[key] = value
    return spaces


def groups_of_keys(
    keys: list[Any], column: pa.Array, encoding: str, max_parallelism: int
) -> npt.NDArray[np.int32]:
    """The key group of each key: int32. `column` and `encoding` are the keys encoded."""
    loaded = f"{__package__}.hash_kernels" in sys.modules
    enough = _VECTORISED_FROM if loaded else _KERNELS_FROM
    if len(keys) >= enough and encoding != PICKLE:
        batch = pa.RecordBatch.from_arrays([column], names=[KEY])
        return key_groups_of(batch, max_parallelism)
    groups = (stable_hash(key) % max_parallelism for key in keys)
    return np.fromiter(groups, dtype=np.int32, count=len(keys))
