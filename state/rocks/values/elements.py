"""Lists and maps under keys, of which only what is in use is in memory.

RocksDB has an entry for each run of elements that was added to a list, and one for each entry of a
map (`element_layouts`), so neither is written, or read, whole for one of its elements:

    a list   grows without being read: what was added lies in memory until it is written. Whoever
             asks for the elements gets them all, and has them in memory then.
    a map    one entry is asked for by its place; all of them, where somebody goes over the map.

What belongs to one namespace and key is an `Owned`. It is in one of three places, as values are
(`spaces`): hot, old, or not in memory; one with no place in RocksDB is kept in memory for ever.
What was changed is written when it leaves memory, and before a snapshot: snapshots have of these
states what RocksDB has, and what is kept. Where there are snapshots it is written between two
batches, too, when it is `UNWRITTEN` changes, so that little is left to them. A state that is small
and never left memory is a table, as in the memory backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Generic, TypeVar

from ....core.key_kinds import given, held_keys
from ....core.keys import findable
from ...descriptors import StateDescriptor
from ...object_reader import ObjectReader
from ...pickling import dumps, loads
from ...row_states import Spaces
from ...row_tables import RowFreeze, freeze
from ...stored import StateTable
from ..database.entry_bytes import entry_parts
from ..database.freeze import PieceFreeze
from ..database.key_bytes import alike_bytes
from ..database.layouts import tables_of
from ..database.places import place_under
from ..database.plain_pickles import WrittenValues
from ..database.sizes import size_of
from ..database.task_database import DatabaseView, TaskDatabase
from .declared_layout import begun
from .element_layouts import FIRST_AT, LAST_NUMBER, element_layout, number_bytes, number_of
from .spaces import AROUND, LOADED, SAMPLED

UNWRITTEN = 1 << 13
"""So many changes are written between two batches: a snapshot has no more of them to write."""

LEAVING = 1 << 10
"""So many owners are looked at in one go that may leave memory."""

SMALL = 1 << 20
"""Bytes of a state that is not worth a local database."""

At = tuple[Any, Any]
"""(namespace, held key)"""

H = TypeVar("H", bound="Owned")


class Owned(ABC):
    """What is stored under one namespace and key, as far as it is in memory.

    `below`: RocksDB may have more of it. `stored`: RocksDB has, or may have, some of it. `wiped`:
    what RocksDB has does not count, and is to be deleted before anything is written."""

    __slots__ = ("at", "below", "place", "stored", "wiped")

    def __init__(self, at: At, place: bytes | None, cold: bool) -> None:
        """`cold`: whether RocksDB may have it. `place`: what all its places begin with; None: it
        has none, and stays in memory."""
        self.at = at
        self.place = place
        self.below = self.stored = cold and place is not None
        self.wiped = False

    @property
    @abstractmethod
    def size(self) -> int:
        """Elements in memory."""

    @property
    @abstractmethod
    def held(self) -> Any:
        """The list or the dict in memory; all of it, if nothing is below."""

    @abstractmethod
    def complete(self, state: ColdElements[Any]) -> None:
        """Have all of it in memory."""

    @abstractmethod
    def to_write(
        self, state: ColdElements[Any], deletes: list[bytes], puts: list[tuple[bytes, bytes]]
    ) -> None:
        """Add what makes RocksDB have it as it is. Deletes are done first."""

    @abstractmethod
    def written(self, state: ColdElements[Any], puts: list[tuple[bytes, bytes]]) -> None:
        """RocksDB has it as it is. `puts`: those that it asked for."""

    @abstractmethod
    def restore(self, stored: Any, state: ColdElements[Any]) -> None:
        """Take in elements that are behind those there are, none of them known."""

    @abstractmethod
    def sample(self) -> Iterable[Any]:
        """An element, if there is one."""


class ColdElements(ABC, Generic[H]):
    """All of one list or map state."""

    make: ClassVar[type[Any]]
    """The kind of `Owned`."""

    def __init__(
        self, descriptor: StateDescriptor, kind: str, database: TaskDatabase, max_parallelism: int
    ) -> None:
        self.name = name = descriptor.name
        self.kind = kind
        self.database = database
        self.prefix, self.cold = begun(database, descriptor, kind, element_layout(kind))
        """`cold`: whether RocksDB has any of it."""
        self._checked = WrittenValues(database, self.prefix)
        self._what = f"value of state '{name}'"
        self._reader = ObjectReader(self._what)
        self.hot: dict[At, H] = {}
        self.old: dict[At, H] = {}
        self.kept: dict[At, H] = {}
        self.dirty: dict[At, H] = {}
        """What RocksDB does not have as it is."""
        self.elements = 0
        """In memory."""
        self.changes = 0
        """Since the last write."""
        self.loaded = self.spilled = 0
        """Elements read from RocksDB and written to it, so far."""
        self._loads = 0
        self._continued = False
        """Whether snapshots look for it in RocksDB, so that little is to be left to them."""
        self.gone = 0
        """Entries to be deleted there, since the last write."""
        self._number = self._last_number() if self.cold else 0
        self._each = 100.0
        """Bytes of an element, about."""
        self._max_parallelism = max_parallelism
        database.budget.join(self)

    @property
    def used(self) -> int:
        """Bytes of what is in memory, about."""
        owners = len(self.hot) + len(self.old) + len(self.kept)
        return int(owners * 2 * AROUND + self.elements * self._each)

    def find(self, at: At) -> H:
        """What is under this namespace and key, if it is not hot, which it is from here on."""
        if self._loads > LOADED:
            self.sweep(0)
        self._loads += 1
        found = self.old.pop(at, None)
        if found is None and self.kept:
            found = self.kept.pop(at, None)
        if found is None:
            found = self.make(at, self.place_of(at), self.cold)
        self.hot[at] = found
        return found

    def forget(self, owned: H) -> None:
        """Nothing is left of it, in memory or in RocksDB."""
        self.hot.pop(owned.at, None)
        self.dirty.pop(owned.at, None)

    def note(self, owned: H, changes: int = 1) -> None:
        """It has changed."""
        self.dirty[owned.at] = owned
        self.changes += changes

    def number(self) -> int:
        """The next one: each is higher than all before, in files taken over, too."""
        self._number += 1
        return self._number

    def sweep(self, records: int) -> None:
        """See `Sweeping`: so the task says that a batch or a watermark is done."""
        database = self.database
        due = (self._continued and self.changes > UNWRITTEN) or self.gone > LOADED
        if due and not database.waits(self.used, database.budget.limit(self)):
            self.write()
        self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        """Nothing expires here."""

    def make_room(self) -> None:
        """Let go of what is more than the state may hold. Between two accesses."""
        self._loads = 0
        self._measure()
        budget = self.database.budget
        limit = budget.limit(self)
        if self.used <= limit or self.database.waits(self.used, limit):
            return
        self.write()
        if 2 * len(self.hot) > len(self.old):
            self.old.update(self.hot)
            self.hot = {}
        while self.old and self.used > limit:
            for at in list(islice(self.old, LEAVING)):
                owned = self.old.pop(at)
                if owned.place is not None:
                    self.elements -= owned.size
                elif owned.size:
                    self.kept[at] = owned
                if self.used <= limit:
                    break

    def write(self) -> None:
        """Have RocksDB hold all but what is kept in memory. If something cannot be written, nothing
        is, and all stays as it was."""
        deletes: list[bytes] = []
        puts: list[tuple[bytes, bytes]] = []
        groups, ends = set(), []
        for owned in self.dirty.values():
            owned.to_write(self, deletes, puts)
            ends.append(len(puts))
            if owned.place is not None:
                groups.add(owned.place[:FIRST_AT])
        if deletes or puts:
            last = number_bytes(self._number)
            numbers = [(group + LAST_NUMBER, last) for group in sorted(groups)]
            self.database.write(deletes, puts + numbers)
            self.cold = True
        start = 0
        for (at, owned), end in zip(self.dirty.items(), ends, strict=True):
            owned.written(self, puts[start:end])
            start = end
            if not owned.size and not owned.stored:
                self.hot.pop(at, None)
                self.old.pop(at, None)
                self.kept.pop(at, None)
        self.spilled += len(puts)
        self.changes = self.gone = 0
        self.dirty = {}

    def begin_snapshot(self, continued: bool) -> None:
        """Have in RocksDB what the snapshot is to find there. `continued`: it may hold RocksDB's
        files."""
        if self.cold or (continued and (self.database.open or self.used > SMALL)):
            self._continued = True
            self.write()

    def freeze(self) -> ElementsFreeze:
        """After `begin_snapshot`."""
        some: Iterable[Owned] = self._in_memory()
        if self.cold:
            some = [owned for owned in some if owned.place is None]
        view = self.database.view() if self.cold and not self.database.by_files else None
        return ElementsFreeze(self, freeze(self.name, self.kind, _spaces(some)), view)

    def shown(self) -> Callable[[], Iterable[bytes]]:
        """Nothing in RocksDB that does not count is left there by a snapshot."""
        return tuple

    def place_of(self, at: At) -> bytes | None:
        """What the places of an owner begin with; None: it has none."""
        namespace, key = at
        return place_under(self.prefix, alike_bytes(namespace), key, self._max_parallelism)

    def scan(self, place: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What RocksDB has of an owner."""
        return self.database.scan(place)

    def keys(self) -> list[Any]:
        """Those outside namespaces under which something is stored."""
        self.begin_snapshot(self.cold)
        found = [owned.at for owned in self._in_memory() if owned.size]
        keys = dict.fromkeys(key for namespace, key in found if namespace is None)
        if self.cold:
            for place, data in self.database.scan(self.prefix):
                if place[FIRST_AT:] != LAST_NUMBER:
                    namespace, key = self.owner_of(data)
                    if namespace is None:
                        keys[key] = None
        return list(keys)

    def owner_of(self, data: bytes) -> At:
        """Namespace and key of an entry."""
        namespace, key = [self.value_of(part) for part in entry_parts(data)[:2]]
        return namespace, held_keys(findable([key]))[0]

    def value_of(self, data: bytes) -> Any:
        """Of a pickle."""
        return loads(data, self._what, self._reader)

    def pickled(self, value: Any) -> bytes:
        return self._checked.pickle(dumps(value, self._what))

    def head(self, at: At) -> tuple[bytes, bytes]:
        """Pickles of namespace and key."""
        namespace, key = at
        space = _NONE if namespace is None else self.pickled(namespace)
        return space, self.pickled(given(key))

    def restore(self, spaces: Spaces) -> None:
        """Take in what was stored, behind what there is."""
        for namespace, entries in spaces.items():
            for key, stored in entries.items():
                at = (namespace, key)
                owned = self.hot.get(at) or self.find(at)
                owned.restore(stored, self)
                self.note(owned, len(stored))
        self.sweep(0)

    def validate(self) -> None:
        """Assert the invariants."""
        everything = [*self._in_memory()]
        assert self.elements == sum(owned.size for owned in everything)
        assert len({*self.hot, *self.old, *self.kept}) == len(everything)
        for owned in everything:
            assert owned.stored or not owned.below
            assert owned.stored or not owned.wiped
            assert not (owned.stored and owned.place is None) or owned.wiped

    def close(self) -> None:
        self.database.budget.leave(self)

    def _in_memory(self) -> Iterator[H]:
        yield from self.kept.values()
        yield from self.old.values()
        yield from self.hot.values()

    def _last_number(self) -> int:
        """The highest that was given, of what came with files."""
        view, last, at = self.database.view(), 0, self.prefix
        assert view is not None
        while (place := view.first(at)) is not None and place.startswith(self.prefix):
            group = place[:FIRST_AT]
            data = self.database.get(group + LAST_NUMBER)
            assert data is not None, "written with whatever is written of the group"
            last = max(last, number_of(data))
            at = group + b"\xff"
        return last

    def _measure(self) -> None:
        """Look at some elements."""
        for owned in islice(reversed((self.dirty or self.hot).values()), SAMPLED):
            for element in owned.sample():
                self._each += (AROUND / 2 + size_of(element) - self._each) / 16


@dataclass(frozen=True)
class ElementsFreeze(PieceFreeze):
    """A point in time of one state. `cold`: None if nothing lies in RocksDB, or if the snapshot has
    RocksDB's files."""

    state: ColdElements[Any]
    here: RowFreeze
    cold: DatabaseView | None

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.cold is not None:
            state = self.state
            layout, pairs = element_layout(state.kind), self.cold.scan(state.prefix)
            yield from tables_of(state.name, state.kind, layout, pairs, max_parallelism)
        table = self.here.table(max_parallelism)
        if table is not None:
            yield table


_NONE = dumps(None, "")


def _spaces(some: Iterable[Owned]) -> Spaces:
    spaces: Spaces = {None: {}}
    for owned in some:
        if owned.size:
            namespace, key = owned.at
            spaces.setdefault(namespace, {})[key] = owned.held
    return spaces
