"""Row-face state to Arrow and back.

One row per stored value, list element or map entry:

    __key_group | namespace | key | [map_key] | value | [stamp]

A state that expires has its stamps in the last column, under one of two names (`expiring_spaces`).

`freeze` is the synchronous half of a snapshot: it copies references if no value can be changed in
place, and pickles otherwise. `RowFreeze.table` is the asynchronous half.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.key_kinds import all_given, held_keys
from ..core.keys import findable
from .backend import KEY_GROUP, StateTable
from .copies import all_fixed
from .descriptors import StateDescriptor
from .encoding import PICKLE, decode, encode
from .hashing import stable_hash
from .key_groups import group_order, key_groups_of
from .pickling import dumps
from .row_states import Spaces
from .stored_values import values_of

NAMESPACE, KEY, MAP_KEY, VALUE = "namespace", "key", "map_key", "value"

Beside = Callable[["RowFreeze", list[Any], npt.NDArray[np.int64]], dict[str, pa.Array]]
"""Columns of a state's rows, before they are sorted; of these: the namespaces of its keys, and the
number of each row's key."""

_VECTORISED_FROM = 4096
"""Fewer keys are hashed one by one."""

_KERNELS_FROM = 1_000_000
"""So many keys are worth loading the compiled kernels for, which takes half a second."""


@dataclass(frozen=True)
class RowFreeze:
    """A point in time of one row-face state.

    Keys are held ones. The first `namespaces[0][1]` of them are in the namespace
    `namespaces[0][0]`, and so on. `keys[i]` owns `lengths[i]` consecutive entries of `values` and,
    for maps, `map_keys`. Values are bytes already if `values_pickled`.
    """

    name: str
    kind: str
    namespaces: list[tuple[Any, int]]
    keys: list[Any]
    lengths: npt.NDArray[np.int64]
    map_keys: list[Any] | None
    values: list[Any]
    values_pickled: bool
    stamps: npt.NDArray[np.int64] | None = None
    """Of values of a state that expires, one each, in the column `stamp_column`."""
    stamp_column: str = ""

    def table(self, max_parallelism: int) -> StateTable | None:
        """Encoded, sorted by key group; None if there is nothing."""
        return self.encoded(max_parallelism) if self.keys else None

    def encoded(self, max_parallelism: int, beside: Beside | None = None) -> StateTable:
        """Also if there is nothing. `beside` makes more columns."""
        what = f"state '{self.name}'"
        given = all_given(self.keys)
        keys = encode(given, f"key of {what}")
        groups = groups_of_keys(given, *keys, max_parallelism)
        owner = np.repeat(np.arange(len(self.keys)), self.lengths)
        order = group_order(groups[owner])
        rows = owner[order]
        spans = np.repeat(np.arange(len(self.namespaces)), [n for _, n in self.namespaces])
        namespaces = encode([namespace for namespace, _ in self.namespaces], f"namespace of {what}")
        columns = {NAMESPACE: (namespaces, spans[rows]), KEY: (keys, rows)}
        if self.map_keys is not None:
            columns[MAP_KEY] = (encode(self.map_keys, f"map key of {what}"), order)
        columns[VALUE] = (self._encoded_values(), order)
        if self.stamps is not None:
            columns[self.stamp_column] = ((pa.array(self.stamps), "int"), order)
        data = {KEY_GROUP: pa.array(groups[rows])}
        metadata = {}
        for column, ((array, encoding), indices) in columns.items():
            data[column] = array.take(pa.array(indices))
            metadata[column] = encoding
        if beside is not None:
            spaces = [self.namespaces[span][0] for span in spans.tolist()]
            for name, array in beside(self, spaces, owner).items():
                data[name] = array.take(pa.array(order))
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
    values, pickled = held_apart(name, values)
    return RowFreeze(name, kind, namespaces, keys, lengths, map_keys, values, pickled)


def held_apart(name: str, values: list[Any]) -> tuple[list[Any], bool]:
    """The values of a state so that nobody changes them, and whether they are pickled now."""
    if all_fixed(values):
        return values, False
    return [dumps(value, f"value of state '{name}'") for value in values], True


def thaw(tables: Iterable[StateTable], descriptor: StateDescriptor) -> Spaces:
    """The state that these tables hold, as its descriptor now has it."""
    spaces: Spaces = {None: {}}
    for table in tables:
        columns = stored_columns(table, descriptor)
        rows = zip(columns[NAMESPACE], held_keys(findable(columns[KEY])), strict=True)
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


def stored_columns(table: StateTable, descriptor: StateDescriptor) -> dict[str, list[Any]]:
    """What the columns of a stored state hold, but for the key group. StateError if values are not
    what the program now has in the state and nobody says how to make it of them, or if keys are
    not."""
    read = values_of(descriptor, table)
    columns: dict[str, list[Any]] = {}
    for name, encoding in table.metadata.items():
        if name in (VALUE, MAP_KEY):
            columns[name] = read(name)
        else:
            what = f"{name} of state '{table.name}'"
            columns[name] = decode(table.data.column(name), encoding, what)
    return columns


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
