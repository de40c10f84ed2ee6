"""A map state whose entries may lie in RocksDB, each at a place of its own (`elements`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...backend import CurrentKey, NamespacedState
from ...copies import FIXED, all_fixed, is_fixed
from ...declared_types import DeclaredType
from ...faces import MapState
from ...row_deltas import own_key
from ..database.entry_bytes import entry_parts
from ..database.key_bytes import alike_bytes
from .element_layouts import map_bytes, map_parts
from .elements import At, ColdElements, Owned
from .spaces import ABSENT


class OwnedMap(Owned):
    """`held` are the entries in memory, in the order of the map if nothing is `below`. All have
    numbers, in that order.

    A map key without bytes (`alike_bytes`) gives its map no place: it is kept in memory whole."""

    __slots__ = ("_gone", "_numbers", "changed", "entries")

    def __init__(self, at: At, place: bytes | None, cold: bool) -> None:
        super().__init__(at, place, cold)
        self.entries: dict[Any, Any] = {}
        self._numbers: dict[Any, int] = {}
        self.changed: dict[Any, None] = {}
        """Keys of entries that RocksDB does not have as they are."""
        self._gone: dict[Any, None] = {}
        """Keys of entries that are to be deleted there."""

    @property
    def size(self) -> int:
        return len(self.entries)

    @property
    def held(self) -> dict[Any, Any]:
        return self.entries

    def get(self, key: Any, state: ColdElements[Any]) -> Any:
        """The value, ABSENT if there is none."""
        found = self.entries.get(key, ABSENT)
        if found is ABSENT and self.below and key not in self._gone:
            return self._load(key, state)
        return found

    def given_away(self, key: Any, value: Any, state: ColdElements[Any]) -> None:
        """The value may be changed by whoever has it."""
        if self.stored and not is_fixed(value):
            self.changed[key] = None
            state.note(self)

    def put(self, key: Any, value: Any, state: ColdElements[Any]) -> None:
        known = key in self.entries  # what cannot be a key says so here
        if self.place is not None and alike_bytes(key) is None:
            self._keep(state)
        if not known and self.get(key, state) is ABSENT:
            self._numbers[key] = state.number()
            if self._gone:
                self._gone.pop(key, None)
            state.elements += 1
        self.entries[key] = value
        if self.place is not None:
            self.changed[key] = None
        state.note(self)

    def remove(self, key: Any, state: ColdElements[Any]) -> None:
        if alike_bytes(key) is None:
            if self.below:
                self.complete(state)
            if key in self.entries:
                key = own_key(self.entries, key)
        known = self.entries.pop(key, ABSENT) is not ABSENT
        if known:
            del self._numbers[key]
            self.changed.pop(key, None)
            state.elements -= 1
        if self.stored and not self.wiped and (known or self.below):
            self._gone[key] = None
            state.gone += 1
            state.note(self)

    def clear(self, state: ColdElements[Any]) -> None:
        state.elements -= len(self.entries)
        self.entries, self._numbers, self.changed, self._gone = {}, {}, {}, {}
        self.wiped, self.below = self.stored, False
        state.note(self)

    def is_empty(self, state: ColdElements[Any]) -> bool:
        if self.entries or not self.below:
            return not self.entries
        assert self.place is not None
        for _, data in state.scan(self.place):
            _, own, _ = map_parts(entry_parts(data)[2])
            if not self._gone or state.value_of(own) not in self._gone:
                return False
        return True

    def complete(self, state: ColdElements[Any]) -> None:
        assert self.place is not None
        found = []
        for _, data in state.scan(self.place):
            number, own, stored = map_parts(entry_parts(data)[2])
            key = state.value_of(own)
            if key not in self.entries and key not in self._gone:
                found.append((number, key, state.value_of(stored)))
        state.elements += len(found)
        state.loaded += len(found)
        found += [(self._numbers[key], key, value) for key, value in self.entries.items()]
        found.sort(key=_first_of)
        self.entries = {key: value for _, key, value in found}
        self._numbers = {key: number for number, key, _ in found}
        self.below = False

    def to_write(
        self, state: ColdElements[Any], deletes: list[bytes], puts: list[tuple[bytes, bytes]]
    ) -> None:
        if self.wiped:
            former = state.place_of(self.at)
            assert former is not None
            deletes += [at for at, _ in state.scan(former)]
        place = self.place
        if place is None:
            return
        deletes += [place + own for own in map(alike_bytes, self._gone) if own is not None]
        head = state.head(self.at) if self.changed else (b"", b"")
        for key in self.changed:
            key = own_key(self.entries, key)
            own = alike_bytes(key)
            assert own is not None, "else it was kept"
            pickles = state.pickled(key), state.pickled(self.entries[key])
            puts.append((place + own, map_bytes(head, self._numbers[key], *pickles)))

    def written(self, state: ColdElements[Any], puts: list[tuple[bytes, bytes]]) -> None:
        if self.wiped:
            self.wiped = self.stored = False
        if self.place is not None:
            self.changed, self._gone = {}, {}
            self.stored = self.below or bool(self.entries)

    def restore(self, stored: Any, state: ColdElements[Any]) -> None:
        for key, value in stored.items():
            if self.place is not None and alike_bytes(key) is None:
                self._keep(state)
            self.entries[key] = value
            self._numbers[key] = state.number()
            if self.place is not None:
                self.changed[key] = None
        state.elements += len(stored)

    def sample(self) -> Iterable[Any]:
        return [next(reversed(self.entries.values()))] if self.entries else ()

    def _load(self, key: Any, state: ColdElements[Any]) -> Any:
        own = alike_bytes(key)
        if own is None:
            self.complete(state)
            return self.entries.get(key, ABSENT)
        assert self.place is not None
        data = state.database.get(self.place + own)
        if data is None:
            return ABSENT
        number, first, stored = map_parts(entry_parts(data)[2])
        key = state.value_of(first)
        value = self.entries[key] = state.value_of(stored)
        self._numbers[key] = number
        state.elements += 1
        state.loaded += 1
        return value

    def _keep(self, state: ColdElements[Any]) -> None:
        """Have no place from here on."""
        if self.below:
            self.complete(state)
        self.wiped, self.changed, self._gone = self.stored, {}, {}
        self.place = None
        state.note(self)


class ColdMaps(ColdElements[OwnedMap]):
    make = OwnedMap


class ColdMapState(NamespacedState, MapState):
    """One view of a state, moved to another namespace by `of`."""

    def __init__(
        self,
        cell: CurrentKey,
        state: ColdMaps,
        declared: DeclaredType | None = None,
        declared_key: DeclaredType | None = None,
    ) -> None:
        self._cell = cell
        self._state = state
        self._declared = declared
        self._declared_key = declared_key
        self._namespace: Any = None

    def of(self, namespace: Any) -> ColdMapState:
        self._namespace = namespace
        return self

    def get(self, key: Any) -> Any:
        at, state = (self._namespace, self._cell.key), self._state
        owned = state.hot.get(at) or state.find(at)
        found = owned.entries.get(key, ABSENT)
        if found is ABSENT:
            if not owned.below:
                return None
            found = owned.get(key, state)
            if found is ABSENT:
                return None
        if owned.stored and type(found) not in FIXED:
            owned.given_away(key, found, state)
        return found

    def put(self, key: Any, value: Any) -> None:
        if self._declared is not None or self._declared_key is not None:
            self._check(key, value)
        at, state = (self._namespace, self._cell.key), self._state
        owned = state.hot.get(at) or state.find(at)
        entries = owned.entries
        if key in entries:
            entries[key] = value
            if owned.place is not None:
                owned.changed[key] = None
            state.dirty[at] = owned
            state.changes += 1
        else:
            owned.put(key, value, state)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        entries = dict(dict_value)
        for key, value in entries.items():
            self._check(key, value)
        if entries:
            owned = self._owned()
            for key, value in entries.items():
                owned.put(key, value, self._state)

    def remove(self, key: Any) -> None:
        owned = self._owned()
        owned.remove(key, self._state)
        if not owned.entries and not owned.stored:
            self._state.forget(owned)

    def clear(self) -> None:
        owned = self._owned()
        owned.clear(self._state)
        if not owned.wiped:
            self._state.forget(owned)

    def contains(self, key: Any) -> bool:
        return self._owned().get(key, self._state) is not ABSENT

    def items(self) -> Iterable[tuple[Any, Any]]:
        owned = self._whole()
        if owned.stored and not all_fixed([*owned.entries.values()]):
            for key, value in owned.entries.items():
                owned.given_away(key, value, self._state)
        return list(owned.entries.items())

    def keys(self) -> Iterable[Any]:
        return list(self._whole().entries)

    def values(self) -> Iterable[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return self._owned().is_empty(self._state)

    def _owned(self) -> OwnedMap:
        at = (self._namespace, self._cell.key)
        found = self._state.hot.get(at)
        return self._state.find(at) if found is None else found

    def _whole(self) -> OwnedMap:
        owned = self._owned()
        if owned.below:
            owned.complete(self._state)
        return owned

    def _check(self, key: Any, value: Any) -> None:
        declared, declared_key = self._declared, self._declared_key
        if declared is not None and value is not None and not declared.fits(value):
            declared.refuse(value)
        if declared_key is not None and key is not None and not declared_key.fits(key):
            declared_key.refuse(key)


def _first_of(item: tuple[int, Any, Any]) -> int:
    return item[0]
