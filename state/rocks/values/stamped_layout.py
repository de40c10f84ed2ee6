"""How state that expires lies in RocksDB, and how it is read without the state that wrote it.

    state (2) | key group (2) | namespace | key

with the pickles of namespace and key as in `entry_bytes`, and behind them, for each value, element
of a list or entry of a map, in their order:

    stamp (8) | length of the map key's pickle (4) | that of the value's (4) | both pickles

The first length is 0 but for maps. The layout says which time the stamps are of.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from ...row_tables import KEY, MAP_KEY, NAMESPACE, VALUE
from ...stored import KEY_GROUP, StateTable
from ..database.entry_bytes import entry_parts
from ..database.layouts import LAYOUT, Layout, Pair, encoded_pickles, groups_of

Stamped: TypeAlias = tuple[int, bytes, bytes]
"""Stamp, and the pickles of map key and value."""

_STAMPS: Final = "stamps"
"""Of the layout, the name of the column of stamps."""

_HEAD: Final = struct.Struct(">qII")


def stamped_layout(column: str) -> dict[str, str]:
    """`column`: of a snapshot's stamps."""
    return {LAYOUT: "stamped", _STAMPS: column}


def stamped_bytes(parts: Iterable[Stamped]) -> bytes:
    """What is behind namespace and key."""
    made: list[bytes] = []
    for stamp, key, value in parts:
        made += (_HEAD.pack(stamp, len(key), len(value)), key, value)
    return b"".join(made)


def stamped_parts(data: bytes) -> Iterator[Stamped]:
    """What `stamped_bytes` was given."""
    at = 0
    while at < len(data):
        stamp, key, value = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        yield stamp, data[at : at + key], data[at + key : at + key + value]
        at += key + value


def stamps_in(data: bytes) -> Iterator[int]:
    """The stamps of them. By event time the last one may not be the latest."""
    at = 0
    while at < len(data):
        stamp, key, value = _HEAD.unpack_from(data, at)
        at += _HEAD.size + key + value
        yield stamp


def stamped_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """A row for each value, element or entry."""
    places, stamps = [], []
    columns: dict[str, list[bytes]] = {NAMESPACE: [], KEY: [], MAP_KEY: [], VALUE: []}
    for place, data in pairs:
        namespace, key, rest = entry_parts(data)
        for stamp, map_key, value in stamped_parts(rest):
            places.append(place)
            stamps.append(stamp)
            for column, pickled in zip(columns, (namespace, key, map_key, value), strict=True):
                columns[column].append(pickled)
    if kind != "map":
        del columns[MAP_KEY]
    data_: dict[str, pa.Array] = {KEY_GROUP: pa.array(groups_of(places))}
    metadata = {}
    for column, pickles in columns.items():
        data_[column], metadata[column] = encoded_pickles(pickles, f"{column} of state '{name}'")
    data_[layout[_STAMPS]], metadata[layout[_STAMPS]] = pa.array(stamps, pa.int64()), "int"
    return StateTable(name, kind, pa.table(data_), metadata)
