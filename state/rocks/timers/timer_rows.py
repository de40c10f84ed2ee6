"""A timer as RocksDB holds it.

    state (2 bytes) | key group (2) | timestamp (8) | key | namespace  ->  number (8) | rest

Timestamps are in order of time. `number` says which of two of one timestamp was registered first.
`rest` is empty where the namespace is None and the place tells the key; else the length of the
namespace's pickle (4 bytes), that pickle, and the key's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from ....core.errors import TypeMismatchError
from ....core.key_kinds import given, held_keys
from ....core.keys import findable
from ...encoding import ARROW_TYPES, PICKLE, encode
from ...hashing import stable_hash
from ...object_reader import ObjectReader
from ...pickling import dumps, loads
from ...stored import KEY_GROUP, StateTable
from ..database.entry_bytes import UNREAD, plain
from ..database.key_bytes import alike_bytes, key_bytes
from ..database.layouts import (
    GENERATION,
    LAYOUT,
    VALUES,
    Layout,
    Pair,
    generation_of,
    groups_of,
)
from ..database.taken_over import PLAIN

NUMBERS: Final = 1 << 46
"""Of one generation: numbers are below those of the next. A queue that begins with the entries of
former ones is of the next generation, so that what is registered from then on comes later."""

GENERATIONS: Final = 1 << 16
"""So many there are, before numbers begin anew."""

_HEAD: Final = struct.Struct(">HQ")
_TIME: Final = struct.Struct(">Q")
_NUMBER: Final = struct.Struct(">q")
_REST: Final = struct.Struct(">I")
TIME_AT, KEY_AT = 4, 12
"""Where timestamp and key begin in a place."""

_LEAST: Final = -(1 << 63)
_INT, _STR = b"is"
_NOTHING: Final = b"n"
"""The namespace None in a place."""


def timers_layout(generation: int) -> dict[str, str]:
    return {LAYOUT: "timers", GENERATION: str(generation), VALUES: PLAIN}


def next_generation(layout: Layout) -> int | None:
    """That of a queue which goes on with timers in this layout as they are; None if none can."""
    generation = generation_of(layout) if layout.get(LAYOUT) == "timers" else None
    return None if generation is None or generation >= GENERATIONS - 1 else generation + 1


def time_bytes(timestamp: int) -> bytes:
    """In order of time."""
    return _TIME.pack(timestamp - _LEAST)


def time_of(place: bytes) -> int:
    time: int = _TIME.unpack_from(place, TIME_AT)[0]
    return time + _LEAST


class TimerRows:
    """Of one queue."""

    def __init__(self, name: str, prefix: bytes, max_parallelism: int) -> None:
        self.name = name
        self.prefix = prefix
        self._max_parallelism = max_parallelism
        self._reader = ObjectReader(f"timers '{name}'", fixed=True)

    def place(self, timestamp: int, key: Any, namespace: Any) -> bytes | None:
        """Where a timer of a held key lies; None: nowhere."""
        own = key_bytes(key)
        space = _NOTHING if namespace is None else alike_bytes(namespace)
        if own is None or space is None:
            return None
        try:
            group = stable_hash(key) % self._max_parallelism
            head = _HEAD.pack(group, int(timestamp) - _LEAST)
        except (TypeMismatchError, struct.error):
            return None
        return b"".join((self.prefix, head, own, space))

    def start(self, group: int, timestamp: int) -> bytes:
        """Where the timers of a key group begin that are not before a timestamp."""
        return self.start_of(group) + time_bytes(timestamp)

    def start_of(self, group: int) -> bytes:
        """What all places of a key group begin with."""
        return self.prefix + group.to_bytes(2, "big")

    def value(self, number: int, key: Any, namespace: Any) -> bytes:
        head = _NUMBER.pack(number)
        if namespace is None and _told_by_place(key):
            return head
        space = dumps(namespace, f"namespace of timers '{self.name}'")
        own = dumps(given(key), f"key of timers '{self.name}'")
        return b"".join((head, _REST.pack(len(space)), space, own))

    def read(self, place: bytes, data: bytes) -> tuple[int, Any, Any]:
        """(number, held key, namespace)"""
        number: int = _NUMBER.unpack_from(data)[0]
        if len(data) == _NUMBER.size:
            return number, _key_in(place), None
        what = f"timers '{self.name}'"
        space, own = [loads(part, what, self._reader) for part in _parts(data)]
        (key,) = held_keys(findable([own]))
        return number, key, space


def timers_table(
    name: str, kind: str, layout: Layout, pairs: list[Pair], max_parallelism: int
) -> StateTable:
    """As of `TimerFreeze`, in order of places."""
    spaces: list[bytes | None] = []
    keys: list[Any] = []
    """A pickle, or a tuple with the key."""
    for place, data in pairs:
        if len(data) == _NUMBER.size:
            spaces.append(None)
            keys.append((_key_in(place),))
        else:
            space, own = _parts(data)
            spaces.append(space)
            keys.append(own)
    numbers = [_NUMBER.unpack_from(data)[0] for _, data in pairs]
    nothing = [(None,) if space is None else space for space in spaces]
    namespace_column, namespace_encoding = _column(nothing, f"namespace of timers '{name}'")
    key_column, key_encoding = _column(keys, f"key of timers '{name}'")
    data = pa.table(
        {
            KEY_GROUP: pa.array(groups_of(place for place, _ in pairs)),
            "timestamp": pa.array([time_of(place) for place, _ in pairs], pa.int64()),
            "sequence": pa.array(numbers, pa.int64()),
            "namespace": namespace_column,
            "key": key_column,
        }
    )
    return StateTable(name, kind, data, {"key": key_encoding, "namespace": namespace_encoding})


def _column(found: Iterable[Any], what: str) -> tuple[pa.Array, str]:
    """Encoded; of pickles nothing but plain values is read."""
    found = list(found)
    values = [one[0] if isinstance(one, tuple) else plain(one) for one in found]
    if not any(value is UNREAD for value in values):
        return encode(values, what)
    pickles = [dumps(one[0], what) if isinstance(one, tuple) else one for one in found]
    return pa.array(pickles, type=ARROW_TYPES[PICKLE]), PICKLE


def pickles_of(data: bytes) -> tuple[bytes, ...]:
    """All that there are in what a timer is stored as."""
    return () if len(data) == _NUMBER.size else _parts(data)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    """The pickles of namespace and key."""
    (length,) = _REST.unpack_from(data, _NUMBER.size)
    at = _NUMBER.size + _REST.size
    return data[at : at + length], data[at + length :]


def _told_by_place(key: Any) -> bool:
    kind = type(key)
    return kind is str or kind is bytes or (kind is int and _LEAST <= key < -_LEAST)


def _key_in(place: bytes) -> Any:
    """The key, as `key_bytes` has it, of those that `_told_by_place`; the namespace is behind."""
    tag = place[KEY_AT]
    if tag == _INT:
        return _NUMBER.unpack_from(place, KEY_AT + 1)[0]
    data = place[KEY_AT + 5 : -1]
    return data.decode("utf-8", "surrogatepass") if tag == _STR else data
