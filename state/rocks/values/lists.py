"""A list state whose lists may lie in RocksDB, in runs of elements (`elements`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...backend import CurrentKey, NamespacedState
from ...copies import all_fixed
from ...declared_types import DeclaredType
from ...faces import ListState, elements
from ..database.entry_bytes import entry_parts
from .element_layouts import number_bytes, run_bytes, run_parts
from .elements import At, ColdElements, Owned

RUN = 256
"""So many elements are an entry at most."""


class OwnedList(Owned):
    """If something is `below`, `held` are elements behind it, and no run has any of them. If not,
    the runs at `runs` have the first `_known` of `held`."""

    __slots__ = ("_fixed", "_known", "_runs", "items")

    def __init__(self, at: At, place: bytes | None, cold: bool) -> None:
        super().__init__(at, place, cold)
        self.items: list[Any] = []
        self._known = 0
        self._fixed = 0
        """So many of the first cannot be changed by anybody."""
        self._runs: list[bytes] | None = None
        """Places, where they are known."""

    @property
    def size(self) -> int:
        return len(self.items)

    @property
    def held(self) -> list[Any]:
        return self.items

    def complete(self, state: ColdElements[Any]) -> None:
        assert self.place is not None
        found: list[Any] = []
        runs = []
        for place, data in state.scan(self.place):
            runs.append(place)
            found += [state.value_of(part) for part in run_parts(entry_parts(data)[2])]
        self._runs, self._known = runs, len(found)
        self.items = found + self.items
        self._fixed = 0
        self.below, self.stored = False, bool(runs)
        state.elements += len(found)
        state.loaded += len(found)

    def given_away(self, state: ColdElements[Any]) -> None:
        """Elements that are written may be changed by whoever has them."""
        if not self._known or len(self.items) == self._fixed:
            return
        if all_fixed(self.items[self._fixed :]):
            self._fixed = len(self.items)
        else:
            self.replaced(state)

    def replaced(self, state: ColdElements[Any]) -> None:
        """What RocksDB has does not count."""
        self.wiped, self.below, self._known, self._fixed = self.stored, False, 0, 0
        state.note(self)

    def to_write(
        self, state: ColdElements[Any], deletes: list[bytes], puts: list[tuple[bytes, bytes]]
    ) -> None:
        if self.wiped:
            assert self.place is not None
            runs = self._runs
            deletes += [at for at, _ in state.scan(self.place)] if runs is None else runs
        if self.place is None:
            return
        new = self.items[self._known :]
        head = state.head(self.at) if new else (b"", b"")
        for start in range(0, len(new), RUN):
            place = self.place + number_bytes(state.number())
            pickles = [state.pickled(element) for element in new[start : start + RUN]]
            puts.append((place, run_bytes(head, pickles)))

    def written(self, state: ColdElements[Any], puts: list[tuple[bytes, bytes]]) -> None:
        if self.wiped:
            self.wiped = self.stored = False
            self._runs = []
        if self.place is None:
            return
        runs = [place for place, _ in puts]
        self.stored = self.stored or bool(runs)
        if self.below:
            state.elements -= len(self.items)
            self.items, self._fixed = [], 0
            return
        self._known = len(self.items)
        if self._runs is None:
            self._runs = []
        self._runs += runs

    def restore(self, stored: Any, state: ColdElements[Any]) -> None:
        self.items += stored
        state.elements += len(stored)

    def sample(self) -> Iterable[Any]:
        return self.items[-1:]


class ColdLists(ColdElements[OwnedList]):
    make = OwnedList


class ColdListState(NamespacedState, ListState):
    """One view of a state, moved to another namespace by `of`."""

    def __init__(
        self, cell: CurrentKey, state: ColdLists, declared: DeclaredType | None = None
    ) -> None:
        self._cell = cell
        self._state = state
        self._declared = declared
        self._namespace: Any = None

    def of(self, namespace: Any) -> ColdListState:
        self._namespace = namespace
        return self

    def get(self) -> Iterator[Any]:
        owned, state = self._owned(), self._state
        if owned.below:
            owned.complete(state)
        owned.given_away(state)
        return iter(list(owned.items))

    def add(self, value: Any) -> None:
        declared, state = self._declared, self._state
        if declared is not None and value is not None and not declared.fits(value):
            declared.refuse(value)
        at = (self._namespace, self._cell.key)
        owned = state.hot.get(at) or state.find(at)
        owned.items.append(value)
        state.dirty[at] = owned
        state.elements += 1
        state.changes += 1

    def add_all(self, values: Iterable[Any]) -> None:
        added, state = elements(values, "add_all"), self._state
        self._check(added)
        if added:
            owned = self._owned()
            owned.items += added
            state.elements += len(added)
            state.note(owned, len(added))

    def update(self, values: Iterable[Any]) -> None:
        replaced, state = elements(values, "update"), self._state
        self._check(replaced)
        owned = self._owned()
        state.elements += len(replaced) - len(owned.items)
        owned.items = replaced
        owned.replaced(state)
        state.changes += len(replaced)
        if not replaced and not owned.wiped:
            state.forget(owned)

    def clear(self) -> None:
        self.update(())

    def _owned(self) -> OwnedList:
        at = (self._namespace, self._cell.key)
        found = self._state.hot.get(at)
        return self._state.find(at) if found is None else found

    def _check(self, values: Iterable[Any]) -> None:
        declared = self._declared
        if declared is not None:
            for value in values:
                if value is not None and not declared.fits(value):
                    declared.refuse(value)
