"""State that expires, of which only what is in use has to be in memory.

It is the state of the memory backend, `expiring_spaces`, of which the keys that were stamped
longest ago leave for RocksDB, and come back when they are asked for: each with all that it has, a
list or a map too. A key that is in memory counts, whatever RocksDB holds of it.

What has expired there is found by a hand that goes over it, a few entries for each batch, and by
whoever asks for it. RocksDB may hold what expired before its key was removed from memory: it has an
older stamp, so it has expired, too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

from ....core.key_kinds import given, held_keys
from ....core.keys import findable
from ...descriptors import StateDescriptor
from ...expiring_spaces import ExpiringSpaces
from ...expiring_states import ExpiringBulkValueState
from ...expiry import UNKNOWN, Expiry
from ...object_reader import ObjectReader
from ...pickling import dumps, loads
from ...row_changes import Marks, RowChanges
from ...row_states import Spaces
from ...stored import StateTable
from ...stored_files import StoredState
from ..database.entry_bytes import entry_parts, joined_parts
from ..database.files import hidden_of
from ..database.key_bytes import alike_bytes
from ..database.places import place_under
from ..database.plain_pickles import WrittenValues
from ..database.sizes import size_of
from ..database.task_database import TaskDatabase
from .declared_layout import begun
from .spaces import ABSENT, AROUND, LOADED, SAMPLED
from .stamped_freeze import StampedFreeze
from .stamped_layout import Stamped, stamped_bytes, stamped_layout, stamped_parts, stamps_in
from .stamped_spaces import StampedSpace, StampedSpaces

RESTORED = 1 << 15
"""So many restored rows are taken in before room is made."""

LOOKED_AT = 4
"""Of so many records one is worth a look at an entry in RocksDB."""

At = tuple[Any, Any]
"""(namespace, held key)"""


class ColdExpiring(ExpiringSpaces):
    """See the module."""

    spaces: Any

    def __init__(
        self,
        descriptor: StateDescriptor,
        kind: str,
        expiry: Expiry,
        tables: Callable[[], Iterable[StateTable]],
        database: TaskDatabase,
        max_parallelism: int,
        hidden: Iterable[bytes] = (),
    ) -> None:
        """`tables`: what was restored and has not been taken over with RocksDB's files. `hidden`:
        places that came with these, some of this state, and do not count."""
        self.database = database
        layout = stamped_layout(expiry.column)
        self.prefix, self.cold = begun(database, descriptor, kind, layout)
        """`cold`: whether RocksDB has any of it."""
        self.layout = layout
        self._checked = WrittenValues(database, self.prefix)
        self.gone: dict[At, None] = {}
        """To be deleted in RocksDB, if it is there."""
        self.spilled = self.loaded = 0
        self._what = f"value of state '{descriptor.name}'"
        self._reader = ObjectReader(self._what)
        self._max_parallelism = max_parallelism
        self._each = float(2 * AROUND)
        """Bytes of a key, about."""
        self._entries = 0
        """Keys in memory, when last counted."""
        self._kept: set[At] = set()
        """In memory as long as they live: they have no place."""
        self._kept_once = 0
        """How many there were when last looked over."""
        self._loads = 0
        self._hand = self.prefix
        """Where in RocksDB to look next for what has expired."""
        if self.cold and expiry.event and not expiry.time.restored:
            expiry.time.unknown = True
        if self.cold:  # what is not among the tables has expired there, not so in RocksDB
            database.write(sorted(hidden_of(self.prefix, hidden)), [])
        super().__init__(descriptor, kind, expiry, tables(), RowChanges(kind))
        database.budget.join(self)

    @property
    def used(self) -> int:
        """Bytes of what is in memory, about."""
        return int(self._entries * self._each)

    def of(self, namespace: Any, space: StampedSpace) -> StampedSpace:
        """The keys in memory of this namespace: `space`, if there are none yet."""
        return self.spaces.setdefault(namespace, space)  # type: ignore[no-any-return]

    def load(self, namespace: Any, key: Any) -> Any:
        """What RocksDB has under a key that is not in memory; ABSENT if nothing."""
        at = (namespace, key)
        place = None if at in self.gone else self._place(at)
        data = None if place is None else self.database.get(place)
        if data is None:
            return ABSENT
        self._loads += 1
        self.loaded += 1
        if self._loads > LOADED:
            self.make_room()
        return self._stored(data)

    def load_many(self, keys: Iterable[Any]) -> None:
        """Have in memory what is stored under these keys, outside namespaces."""
        space = self.spaces[None]
        if not self.cold:
            return
        wanted = []
        for key in dict.fromkeys(keys):
            if key not in space and (None, key) not in self.gone:
                place = self._place((None, key))
                if place is not None:
                    wanted.append((place, key))
        wanted.sort(key=itemgetter(0))
        found = self.database.get_many([place for place, _ in wanted])
        for (_, key), data in zip(wanted, found, strict=True):
            if data is not None:
                self.loaded += 1
                space[key] = self._stored(data)

    def sweep(self, records: int) -> None:
        super().sweep(records)
        if self.cold and self.expiry.per_record:
            self._look(records // LOOKED_AT + 1)
        self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        super().begin_event_time(watermark)
        if not self.cold or not self.expiry.event:
            return
        puts: list[tuple[bytes, bytes]] = []
        for place, data in self.database.scan(self.prefix):
            namespace, key, rest = entry_parts(data)
            if UNKNOWN in stamps_in(rest):
                parts = [
                    (watermark if stamp == UNKNOWN else stamp, map_key, value)
                    for stamp, map_key, value in stamped_parts(rest)
                ]
                puts.append((place, joined_parts(namespace, key, stamped_bytes(parts))))
            if len(puts) >= LOADED:
                self.database.write([], puts)
                puts = []
        self.database.write([], puts)

    def make_room(self) -> None:
        """Write to RocksDB what is more than the state may hold. Between two accesses. What cannot
        be written stays where it is."""
        self._loads = 0
        self._entries = sum(map(len, self.spaces.values()))
        self._measure()
        budget = self.database.budget
        limit = budget.limit(self)
        if self.used <= limit and len(self.gone) <= LOADED:
            return
        if self.database.waits(self.used, limit):
            return
        self._look_over_kept()
        leaving: list[tuple[StampedSpace, Any]] = []
        puts: list[tuple[bytes, bytes]] = []
        excess = self._entries - int(limit // self._each)
        for namespace, space in self.spaces.items():
            if excess <= len(puts):
                break
            for key in self._oldest(namespace, space, excess - len(puts)):
                place = self._place((namespace, key))
                if place is None:
                    self._kept.add((namespace, key))
                else:
                    puts.append((place, self._written((namespace, key), dict.get(space, key))))
                    leaving.append((space, key))
        self.database.write(self._deletes(), puts)
        self.gone = {}
        self.cold = self.cold or bool(puts)
        for space, key in leaving:
            OrderedDict.pop(space, key)
            if not space and space.namespace is not None:
                del self.spaces[space.namespace]
        self.spilled += len(puts)
        self._entries -= len(puts)

    def begin_snapshot(self) -> None:
        """What is deleted is so in RocksDB, too."""
        self.database.write(self._deletes(), [])
        self.gone = {}

    def keys(self) -> list[Any]:
        found = dict.fromkeys(super().keys())
        if self.cold:
            self.begin_snapshot()
            cutoff = self.expiry.background() - self.expiry.ttl
            for _, data in self.database.scan(self.prefix):
                namespace, key = self._owner(data)
                if namespace is None and key not in self.spaces[None] and self._live(data, cutoff):
                    found[key] = None
        return list(found)

    def freeze(self, name: str, some: Spaces | None = None) -> Any:
        assert some is None, "no snapshot of it continues another"
        self.begin_snapshot()
        view = self.database.view() if self.cold and not self.database.by_files else None
        cutoff = self.expiry.background() - self.expiry.ttl
        state = StoredState(self.name, self.kind, self.prefix, self.layout)
        hot = super().freeze(name)
        return StampedFreeze(state, self.expiry, hot, self.shown(), view, cutoff)

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Places in RocksDB whose entries do not count, as it is now: their keys are in memory. To
        be called once, on any thread."""
        if not self.cold:
            return tuple
        keys = [(namespace, list(space)) for namespace, space in self.spaces.items()]

        def places() -> Iterator[bytes]:
            for namespace, some in keys:
                for key in some:
                    place = self._place((namespace, key))
                    if place is not None:
                        yield place

        return places

    def close(self) -> None:
        self.database.budget.leave(self)

    # --- entries ---------------------------------------------------------------------------------

    def _place(self, at: At) -> bytes | None:
        """Where it is in RocksDB; None: nowhere."""
        namespace, key = at
        return place_under(self.prefix, alike_bytes(namespace), key, self._max_parallelism)

    def _oldest(self, namespace: Any, space: StampedSpace, count: int) -> list[Any]:
        """Keys that may leave memory, those first that were stamped longest ago."""
        kept = self._kept
        if not kept:
            return list(islice(space, count))
        return list(islice((key for key in space if (namespace, key) not in kept), count))

    def _look_over_kept(self) -> None:
        """Forget those that are not stored any more, now and then."""
        if len(self._kept) > 2 * self._kept_once + SAMPLED:
            spaces: dict[Any, StampedSpace] = self.spaces
            self._kept = {at for at in self._kept if at[1] in dict.get(spaces, at[0], ())}
            self._kept_once = len(self._kept)

    def _written(self, at: At, stored: Any) -> bytes:
        head = self._pickled(at[0]), self._pickled(given(at[1]))
        return joined_parts(*head, stamped_bytes(self._parts(stored)))

    def _parts(self, stored: Any) -> Iterator[Stamped]:
        """Stamp, and the pickles of map key and value, of each element."""
        match self.kind:
            case "list":
                for value, stamp in stored:
                    yield stamp, b"", self._pickled(value)
            case "map":
                for key, (value, stamp) in stored.items():
                    yield stamp, self._pickled(key), self._pickled(value)
            case _:
                yield stored[1], b"", self._pickled(stored[0])

    def _pickled(self, value: Any) -> bytes:
        return self._checked.pickle(dumps(value, self._what))

    def _stored(self, data: bytes) -> Any:
        what, reader = self._what, self._reader
        parts = [
            (key, (loads(value, what, reader), stamp))
            for stamp, key, value in stamped_parts(entry_parts(data)[2])
        ]
        match self.kind:
            case "list":
                return deque([pair for _, pair in parts])
            case "map":
                return OrderedDict((loads(key, what, reader), pair) for key, pair in parts)
        return parts[0][1]

    def _owner(self, data: bytes) -> At:
        namespace, key, _ = entry_parts(data)
        found = held_keys(findable([loads(key, self._what, self._reader)]))
        return loads(namespace, self._what, self._reader), found[0]

    def _live(self, data: bytes, cutoff: int) -> bool:
        """Whether something of an entry in RocksDB has not expired."""
        gone = self.expiry.gone
        return not all(gone(stamp, cutoff) for stamp in stamps_in(entry_parts(data)[2]))

    def _deletes(self) -> list[bytes]:
        return [place for at in self.gone if (place := self._place(at)) is not None]

    def _look(self, count: int) -> None:
        """Delete what has expired among the next entries in RocksDB."""
        view = self.database.view()
        if view is None or self.database.waits(0, 0):
            return
        cutoff, gone = self.expiry.background() - self.expiry.ttl, []
        found = list(islice(view.scan(self.prefix, self._hand), count))
        self._hand = found[-1][0] + b"\x00" if len(found) == count else self.prefix
        for place, data in found:
            if not self._live(data, cutoff):
                gone.append(place)
        self.database.write(gone, [])

    def _drop_keys(
        self, data: OrderedDict[Any, Any], cutoff: int, limit: int, marks: Marks | None
    ) -> int:
        # RocksDB may have what was overwritten, and it may live longer: the stamps of lists and
        # maps go back, and what has expired may be shown
        assert isinstance(data, StampedSpace)
        front = list(islice(data, limit)) if self.cold and self._front_gone(data, cutoff) else ()
        looked = super()._drop_keys(data, cutoff, limit, marks)
        self.gone |= dict.fromkeys((data.namespace, key) for key in front if key not in data)
        return looked

    def _front_gone(self, data: StampedSpace, cutoff: int) -> bool:
        first = next(iter(data.values()), None)
        return first is not None and self.expiry.gone(self._latest(first), cutoff)

    def _measure(self) -> None:
        """Look at some of the keys that came last."""
        for space in islice(reversed(self.spaces.values()), 2):
            for stored in islice(reversed(dict.values(space)), SAMPLED):
                self._each += (2 * AROUND + self._size(stored) - self._each) / 16

    def _size(self, stored: Any) -> int:
        """Bytes, about."""
        match self.kind:
            case "list":
                return len(stored) * (AROUND + size_of(stored[-1][0]))
            case "map":
                return len(stored) * (2 * AROUND + size_of(next(reversed(stored.values()))[0]))
        return size_of(stored[0])

    # --- restored --------------------------------------------------------------------------------

    def _restore(self, tables: Iterable[StateTable]) -> None:
        self.spaces = StampedSpaces(self)
        for table in tables:
            for start in range(0, table.data.num_rows, RESTORED):
                self._read(replace(table, data=table.data.slice(start, RESTORED)))
                self.make_room()
        for space in self.spaces.values():
            for key in sorted(space, key=lambda key: self._latest(space[key])):
                space.move_to_end(key)


class ColdExpiringBulkValueState(ExpiringBulkValueState):
    """What RocksDB has of the keys of a batch is read at once."""

    def __init__(self, state: ColdExpiring) -> None:
        super().__init__(state)
        self._state = state

    def fetch(self, keys: Sequence[Any], times: Sequence[int] | None = None) -> dict[Any, Any]:
        self._state.load_many(keys)
        return super().fetch(keys, times)
