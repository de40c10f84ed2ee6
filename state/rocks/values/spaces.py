"""One row-face state whose entries may lie in RocksDB: what is in use is in dicts.

An entry is in one of three places, and counts where it comes first:

    hot    the dict itself: read or written lately. A hit costs what it costs in memory.
    old    entries that were hot once; one that is asked for becomes hot again
    cold   RocksDB, under  state (2 bytes) | key group (2) | namespace | key  ->  `entry_bytes`

Before a batch, when hot and old are more than the state may hold, the oldest of old are written to
RocksDB in one go; if there are none, all that is hot becomes old. What was read from RocksDB is
written there again when it is evicted, for it may have been changed in place. Entries whose key or
namespace has no bytes (`key_bytes`) stay in memory (`kept`).

From the first snapshot on that may hold RocksDB's files, what is hot is written before each, and
whenever it is much (`HOT`), and becomes old. Then what is old is in RocksDB, too, and leaves memory
unwritten; a snapshot has RocksDB's entries, and of memory what is kept alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any

from ....core.key_kinds import given, held_keys
from ....core.keys import findable
from ...descriptors import StateDescriptor
from ...object_reader import ObjectReader
from ...pickling import loads
from ..database.entry_bytes import entry_bytes, entry_parts, namespace_part
from ..database.key_bytes import alike_bytes
from ..database.layouts import LAYOUT
from ..database.places import place_under
from ..database.plain_pickles import WrittenValues
from ..database.sizes import size_of
from ..database.task_database import DatabaseView, TaskDatabase
from .declared_layout import begun

ABSENT = object()
"""Nothing is stored."""

AROUND = 150
"""Bytes that an entry takes beside its value: its key, and its places in dicts."""

SAMPLED = 4
"""So many values are measured before a batch."""

LOADED = 1 << 14
"""After so many entries read, evict some: there may be no batch for long, when timers fire."""


HOT = 1 << 13
"""So many hot entries are written, where all that is old is in RocksDB: a snapshot writes no more
while the task stands still."""

SMALL = 1 << 20
"""A state of fewer bytes is frozen whole, as long as nothing of its operator is in RocksDB."""

WRITTEN = 1 << 14
"""So many entries are written at once."""

_SPACE_AT = 4
"""Where the namespace begins in a place."""

_BEHIND = b"\xff"
"""Behind all keys and namespaces, which begin with letters."""


class Space(dict[Any, Any]):
    """The entries of one namespace; the dict itself holds those that are hot."""

    __slots__ = ("below", "cold", "gone", "kept", "namespace", "old", "prefix", "state")

    def __init__(self, state: ColdState, namespace: Any) -> None:
        super().__init__()
        self.state = state
        self.namespace = namespace
        self.prefix = alike_bytes(namespace)
        """None: nothing of it can be cold."""
        self.old: dict[Any, Any] = {}
        self.kept: dict[Any, Any] = {}
        self.cold = 0
        """At least so many entries are in RocksDB as there are; 0 if there are none."""
        self.gone: set[Any] = set()
        """Keys that are to be deleted in RocksDB."""
        self.below = False
        """Whether an entry may be elsewhere than here."""

    def find(self, key: Any) -> Any:
        """What is stored under a key that is not hot, which it is from here on; ABSENT if
        nothing."""
        stored = self.old.pop(key, ABSENT)
        if stored is not ABSENT and self.namespace is not None and self.state.through:
            self.gone.add(key)  # RocksDB's entry does not count twice
            self.cold -= 1
        if stored is ABSENT and self.kept:
            stored = self.kept.pop(key, ABSENT)
        if stored is ABSENT and self.cold and key not in self.gone:
            stored = self.state.load(self, key)
        if stored is not ABSENT:
            self[key] = stored
        return stored

    def remove(self, key: Any) -> None:
        """Forget the key, wherever it is."""
        self.pop(key, None)
        if self.below:
            self.old.pop(key, None)
            self.kept.pop(key, None)
            if self.cold and key not in self.gone and self._there(key):
                self.gone.add(key)

    def _there(self, key: Any) -> bool:
        """Whether RocksDB may have it. Of a namespace is known how many entries it has there, so
        that it can go with the last one."""
        return self.namespace is None or self.state.load(self, key) is not ABSENT

    @property
    def empty(self) -> bool:
        """Whether it is known that nothing is stored."""
        return not (self or self.old or self.kept or self.cold)

    def merged(self) -> dict[Any, Any]:
        """All that is in memory."""
        return {**self.kept, **self.old, **self} if self.below else self

    def rest(self) -> None:
        """All that is hot becomes old, as the youngest."""
        if self:
            for key in self.old.keys() & self.keys():
                del self.old[key]
            self.old.update(self)
            self.clear()
            self.below = True

    def wake(self) -> None:
        """All that is old is hot again."""
        if self.old:
            for key in self:
                self.old.pop(key, None)
            self.old.update(self)
            self.clear()
            self.update(self.old)
            self.old.clear()


class ColdState:
    """All namespaces of one state."""

    def __init__(
        self, descriptor: StateDescriptor, kind: str, database: TaskDatabase, max_parallelism: int
    ) -> None:
        """`kind`: of the state, as of `StateTable`."""
        self.name = name = descriptor.name
        self.kind = kind
        self.database = database
        self.spaces = ColdSpaces(self)
        self.prefix, here = begun(database, descriptor, kind, {LAYOUT: "entries"})
        self._checked = WrittenValues(database, self.prefix)
        self._max_parallelism = max_parallelism
        self._what = f"value of state '{name}'"
        self._reader = ObjectReader(self._what)
        self._each = float(AROUND)
        """Bytes of an entry, about."""
        self._entries = 0
        """In memory, when last counted."""
        self._loads = 0
        self.through = False
        """Whether all that is old is in RocksDB, too."""
        self._to_delete: list[bytes] = []
        """In RocksDB, of namespaces that are gone."""
        self.spilled = 0
        """Entries written to RocksDB so far."""
        self.loaded = 0
        """Entries read from it so far."""
        database.budget.join(self)
        if here:
            self._take_over()

    @property
    def used(self) -> int:
        """Bytes of what is in memory, about."""
        return int(self._entries * self._each)

    def load(self, space: Space, key: Any) -> Any:
        """From RocksDB, ABSENT if it is not there. In a namespace it is deleted there."""
        place = self._place(space, key)
        data = None if place is None else self.database.get(place)
        if data is None:
            return ABSENT
        self.loaded += 1
        self._loads += 1
        if self._loads > LOADED:
            self.make_room()
        if space.namespace is not None:
            space.gone.add(key)
            space.cold -= 1
        return self._read(data)[2]

    def load_many(self, keys: Iterable[Any]) -> None:
        """Make hot what is stored under these keys, outside namespaces."""
        space = self.spaces[None]
        missing = [key for key in dict.fromkeys(keys) if key not in space]
        if not space.below or not missing:
            return
        wanted = []
        for key in missing:
            if key in space.old or key in space.kept or not space.cold:
                space.find(key)
            elif key not in space.gone:
                place = self._place(space, key)
                if place is not None:
                    wanted.append((place, key))
        wanted.sort(key=itemgetter(0))
        found = self.database.get_many([place for place, _ in wanted])
        for (_, key), data in zip(wanted, found, strict=True):
            if data is not None:
                self.loaded += 1
                space[key] = self._read(data)[2]

    def sweep(self, records: int) -> None:
        """See `Sweeping`: so the task says that a batch or a watermark is done."""
        self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        """Nothing expires here."""

    def make_room(self) -> None:
        """Write to RocksDB what is more than the state may hold. Between two accesses."""
        self._loads = 0
        if self.database.waits(self.used, self.database.budget.limit(self)):
            return
        spaces = list(self.spaces.values())
        hot = sum(map(len, spaces))
        self._entries = hot + sum(len(space.old) + len(space.kept) for space in spaces)
        self._measure()
        most = int(self.database.budget.limit(self) // self._each)
        excess = self._entries - most
        if self.through and (hot > HOT or excess > 0):
            self._write_through(spaces)
            self._forget(spaces, excess)
            return
        if excess <= 0:
            self._write(spaces, [])
            return
        if 2 * hot > most or hot == self._entries:
            for space in spaces:
                space.rest()
        puts: list[tuple[bytes, bytes]] = []
        leaving: list[tuple[Space, list[Any]]] = []
        for space in spaces:
            if len(puts) >= excess:
                break
            keys, written = self._evicted(space, excess - len(puts))
            puts += written
            leaving.append((space, keys))
        self._write(spaces, puts)
        for space, keys in leaving:
            space.cold += len(keys)
            for key in keys:
                del space.old[key]
        self._entries -= len(puts)
        self.spilled += len(puts)
        for space in spaces:
            if space.empty:
                self.drop(space)

    def drop(self, space: Space) -> None:
        """Forget a namespace that is empty."""
        if space.namespace is not None and self.spaces.get(space.namespace) is space:
            self._to_delete += self._places_gone(space)
            space.gone.clear()
            del self.spaces[space.namespace]

    def begin_snapshot(self, continued: bool = False) -> None:
        """What is deleted is so in RocksDB, too. `continued`: the snapshot may hold RocksDB's
        files."""
        if not self.through and continued and (self.database.open or self.used > SMALL):
            for space in self.spaces.values():
                space.wake()
            self.through = True
        if self.through:
            self._write_through(list(self.spaces.values()))
        else:
            self._write(self.spaces.values(), [])

    def stored(self, source: TaskDatabase | DatabaseView) -> Iterator[tuple[Any, Any, Any]]:
        """(namespace, key, value) of all in RocksDB, in order of key groups; those that are in
        memory, too."""
        for _, data in source.scan(self.prefix):
            yield self._read(data)

    def places(self, namespace: Any, keys: Iterable[Any]) -> Iterator[bytes]:
        """Where the entries of these keys are in RocksDB, those that can be there."""
        space = Space(self, namespace)
        for key in keys:
            place = self._place(space, key)
            if place is not None:
                yield place

    def in_memory_alone(self) -> dict[Any, dict[Any, Any]]:
        """By namespace, what a snapshot does not find in RocksDB. After `begin_snapshot`."""
        return {
            namespace: space.kept if self.through else space.merged()
            for namespace, space in self.spaces.items()
        }

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Places in RocksDB whose entries do not count, as it is now: their keys are in memory. To
        be called once, on any thread."""
        if self.through:
            return tuple
        keys = [(space, [*space.merged()]) for space in self.spaces.values() if space.cold]
        return lambda: (
            place for space, some in keys for place in self.places(space.namespace, some)
        )

    def close(self) -> None:
        self.database.budget.leave(self)

    def _take_over(self) -> None:
        """Entries came with RocksDB's files: of those outside namespaces is enough to know that
        there are some, the others are counted."""
        space, view = self.spaces[None], self.database.view()
        assert view is not None
        assert space.prefix is not None
        at, counts = self.prefix, Counter[bytes]()
        while (place := view.first(at)) is not None and place.startswith(self.prefix):
            group = place[:_SPACE_AT]
            if place.startswith(space.prefix, _SPACE_AT):
                space.cold, space.below = 1, True
                at = group + space.prefix + _BEHIND
                continue
            counts.update([namespace_part(data) for _, data in self.database.scan(group)])
            at = group + _BEHIND
        for namespace, count in counts.items():
            space = self.spaces.space(loads(namespace, f"namespace of state '{self.name}'"))
            space.cold, space.below = space.cold + count, True

    def _write_through(self, spaces: list[Space]) -> None:
        """Have in RocksDB all but what is kept; what was hot is old. If something cannot be
        written, it stays hot."""
        for space in spaces:
            hot = list(space)
            for start in range(0, len(hot), WRITTEN):
                self._put(space, hot[start : start + WRITTEN])
        self._write(spaces, [])
        for space in spaces:
            if space.empty:
                self.drop(space)

    def _put(self, space: Space, keys: list[Any]) -> None:
        """Write some of the hot entries; they are old from here on, and those without a place are
        kept."""
        places = [self._place(space, key) for key in keys]
        puts = [
            (place, self._written(space.namespace, key, space[key]))
            for place, key in zip(places, keys, strict=True)
            if place is not None
        ]
        self._write([space], puts)
        for place, key in zip(places, keys, strict=True):
            (space.kept if place is None else space.old)[key] = space.pop(key)
        space.cold += len(puts)
        space.below = True
        self.spilled += len(puts)

    def _forget(self, spaces: list[Space], excess: int) -> None:
        """The oldest leave memory: RocksDB has them."""
        for space in spaces:
            if excess <= 0:
                return
            for key in list(islice(space.old, excess)):
                del space.old[key]
                excess -= 1
                self._entries -= 1

    def _write(self, spaces: Iterable[Space], puts: list[tuple[bytes, bytes]]) -> None:
        """These, behind what is to be deleted."""
        some = [space for space in spaces if space.gone]
        deletes = [place for space in some for place in self._places_gone(space)]
        self.database.write(self._to_delete + deletes, puts)
        self._to_delete = []
        for space in some:
            space.gone.clear()

    def _places_gone(self, space: Space) -> list[bytes]:
        places = [self._place(space, key) for key in space.gone]
        return [place for place in places if place is not None]

    def _evicted(self, space: Space, count: int) -> tuple[list[Any], list[tuple[bytes, bytes]]]:
        """The oldest keys, and their entries as they are to be written; what has no place is kept.
        If something cannot be written, all stays where it is."""
        keys, puts = [], []
        for key in list(islice(space.old, count)):
            place = self._place(space, key)
            if place is None:
                space.kept[key] = space.old.pop(key)
                continue
            keys.append(key)
            puts.append((place, self._written(space.namespace, key, space.old[key])))
        return keys, puts

    def _place(self, space: Space, key: Any) -> bytes | None:
        """Where the entry is in RocksDB; None: nowhere."""
        return place_under(self.prefix, space.prefix, key, self._max_parallelism)

    def _written(self, namespace: Any, key: Any, stored: Any) -> bytes:
        return self._checked.entry(entry_bytes(namespace, given(key), stored, self._what))

    def _read(self, data: bytes) -> tuple[Any, Any, Any]:
        what, reader = self._what, self._reader
        namespace, key, stored = [loads(part, what, reader) for part in entry_parts(data)]
        if type(key) not in _AS_THEY_ARE:
            (key,) = held_keys(findable([key]))
        return namespace, key, stored

    def _measure(self) -> None:
        """Look at some of the youngest entries."""
        space = self.spaces[None]
        if not space and len(self.spaces) > 1:
            space = next(reversed(self.spaces.values()))
        for stored in islice(reversed(space.values()), SAMPLED):
            self._each += (AROUND + size_of(stored) - self._each) / 16


class ColdSpaces(dict[Any, Space]):
    """Namespace -> its entries."""

    def __init__(self, state: ColdState) -> None:
        super().__init__()
        self.state = state
        self[None] = Space(state, None)

    def space(self, namespace: Any) -> Space:
        """Made on first use."""
        space = self.get(namespace)
        if space is None:
            space = self[namespace] = Space(self.state, namespace)
        return space


_AS_THEY_ARE = frozenset({int, str, bytes, type(None)})
