"""How lists and maps lie in RocksDB, and how they are read without the state that wrote them.

    list   state (2) | key group (2) | namespace | key | number (8)    a run of elements
    map    state (2) | key group (2) | namespace | key | map key       an entry
    both   state (2) | key group (2) | 00                              the last number

Numbers are given in the order of what is written: those of a list's runs are their places, that of
a map's entry says where it is among the others. The last one is written with whatever is written of
its key group, and so is in the files that have it.

Each entry holds namespace and key as `entry_bytes` does. Behind them:

    list   for each element the length of its pickle (4 bytes), and the pickle
    map    the number (8) | the length of the map key's pickle (4) | both pickles
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from typing import Final

import pyarrow as pa

from ...row_tables import KEY, MAP_KEY, NAMESPACE, VALUE
from ...stored import KEY_GROUP, StateTable
from ..database.entry_bytes import entry_parts, joined_parts
from ..database.key_bytes import key_end
from ..database.layouts import LAYOUT, PIECE, Layout, Pair, encoded_pickles, groups_of

FIRST_AT: Final = 4
"""Where the namespace begins in a place."""

LAST_NUMBER: Final = b"\x00"
"""What a place goes on with behind the key group if the last number lies there: namespaces begin
with letters."""

_NUMBER: Final = struct.Struct(">q")
_LENGTH: Final = struct.Struct(">I")
_ENTRY: Final = struct.Struct(">qI")


def element_layout(kind: str) -> dict[str, str]:
    """Of a state of lists or of maps."""
    return {LAYOUT: f"{kind}s"}


def number_bytes(number: int) -> bytes:
    """Sorted as the numbers are, which are not negative."""
    return _NUMBER.pack(number)


def number_of(data: bytes) -> int:
    number: int = _NUMBER.unpack(data)[0]
    return number


def run_bytes(head: tuple[bytes, bytes], pickles: Iterable[bytes]) -> bytes:
    """Of elements of a list. `head`: the pickles of namespace and key."""
    parts: list[bytes] = []
    for data in pickles:
        parts += (_LENGTH.pack(len(data)), data)
    return joined_parts(*head, b"".join(parts))


def run_parts(data: bytes) -> list[bytes]:
    """The pickles of the elements of what is behind namespace and key."""
    found, at = [], 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(data[at : at + length])
        at += length
    return found


def map_bytes(head: tuple[bytes, bytes], number: int, key: bytes, value: bytes) -> bytes:
    """Of an entry of a map. `head`: the pickles of namespace and key."""
    return joined_parts(*head, b"".join((_ENTRY.pack(number, len(key)), key, value)))


def map_parts(data: bytes) -> tuple[int, bytes, bytes]:
    """Number, and the pickles of map key and value, of what is behind namespace and key."""
    number, length = _ENTRY.unpack_from(data)
    first, second = _ENTRY.size, _ENTRY.size + length
    return number, data[first:second], data[second:]


def pieces(layout: Layout, pairs: Iterator[Pair]) -> Iterator[list[Pair]]:
    """The entries in order, in lists of bounded size: those of one map in one, for they are not in
    the order of the map. The last numbers are left out."""
    found = (pair for pair in pairs if pair[0][FIRST_AT:] != LAST_NUMBER)
    if layout[LAYOUT] == "lists":
        while piece := list(islice(found, PIECE)):
            yield piece
        return
    piece = []
    for _, of_map in groupby(found, key=_owner_of):
        some = sorted(of_map, key=_number_of)
        if piece and len(piece) + len(some) > PIECE:
            yield piece
            piece = []
        piece += some
    if piece:
        yield piece


def lists_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """A row for each element."""
    parts = [entry_parts(data) for _, data in pairs]
    runs = [run_parts(rest) for _, _, rest in parts]
    spaces = [part[0] for part, run in zip(parts, runs, strict=True) for _ in run]
    keys = [part[1] for part, run in zip(parts, runs, strict=True) for _ in run]
    groups = groups_of(place for (place, _), run in zip(pairs, runs, strict=True) for _ in run)
    columns = {NAMESPACE: spaces, KEY: keys, VALUE: [data for run in runs for data in run]}
    return _table(name, kind, groups, columns)


def maps_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """A row for each entry."""
    parts = [entry_parts(data) for _, data in pairs]
    entries = [map_parts(rest) for _, _, rest in parts]
    columns = {
        NAMESPACE: [part[0] for part in parts],
        KEY: [part[1] for part in parts],
        MAP_KEY: [entry[1] for entry in entries],
        VALUE: [entry[2] for entry in entries],
    }
    return _table(name, kind, groups_of(place for place, _ in pairs), columns)


def _table(name: str, kind: str, groups: object, columns: dict[str, list[bytes]]) -> StateTable:
    data: dict[str, pa.Array] = {KEY_GROUP: pa.array(groups)}
    metadata = {}
    for column, pickles in columns.items():
        data[column], metadata[column] = encoded_pickles(pickles, f"{column} of state '{name}'")
    return StateTable(name, kind, pa.table(data), metadata)


def _owner_of(pair: Pair) -> bytes:
    """What all places of a map begin with."""
    place = pair[0]
    return place[: key_end(place, key_end(place, FIRST_AT))]


def _number_of(pair: Pair) -> int:
    return map_parts(entry_parts(pair[1])[2])[0]
