"""Keyed state of which only what is in use has to fit into memory.

In RocksDB lie the states of the row face, timers that are not due soon, tables that are asked for
as `cold`, entries that say when they are due, and rows kept at positions, in logs, chunks or
buffers. All else is as in the memory backend. Snapshots are the same, so a job may start from one
with the other backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.clock import Clock
from ...core.ids import KeyGroupRange
from ..backend import StateTable
from ..declared_types import declared_type
from ..descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from ..expiry import Expiry
from ..faces import BulkValueState
from ..increments import Since
from ..memory import MemorySnapshot, _RowEntry, _WholeEntry
from ..row_states import Spaces
from ..row_tables import thaw
from ..row_views import RowDescriptor, declared_entries
from ..stored_files import InheritedFiles, StoredState
from ..timers import MemoryTimerQueue
from ..ttl import StateTtlConfig
from ..whole import Freeze
from .column_states import ColdColumns
from .database.files import hidden_of
from .database.freeze import FrozenFiles, InheritedFreeze, PieceFreeze
from .database.layouts import first_of, tables_of
from .database.task_database import TaskDatabase
from .tables.keyed_values import ColdKeyedValues
from .values.elements import ColdElements
from .values.entries_freeze import ColdFreeze
from .values.expiring import ColdExpiring, ColdExpiringBulkValueState
from .values.lists import ColdLists, ColdListState
from .values.maps import ColdMaps, ColdMapState
from .values.spaces import ColdSpaces, ColdState
from .values.views import (
    ColdAggregatingState,
    ColdBulkValueState,
    ColdReducingState,
    ColdValueState,
)

ELEMENTS: dict[str, type[ColdElements[Any]]] = {"list": ColdLists, "map": ColdMaps}
"""Kinds of states of which each element may lie in RocksDB, and what they are here."""

SAMPLED = 100
"""So many rows of a state are some."""

RESTORED = 1 << 15
"""So many restored rows are taken in before room is made."""


class RocksSnapshot(MemorySnapshot):
    """`database`: RocksDB's files, where the snapshot has them; the tables are of what is in
    memory then."""

    def tables(self) -> Iterator[StateTable]:
        parts, self._parts = self._parts, ()
        for part in parts:
            if isinstance(part, PieceFreeze):
                yield from part.tables(self._max_parallelism)
            else:
                table = part.table(self._max_parallelism)
                if table is not None:
                    yield table


class RocksKeyedStateBackend(ColdColumns):
    """All keyed state of one operator in one subtask."""

    def __init__(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        database: TaskDatabase,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(key_groups, max_parallelism, database, clock)
        self._hidden: frozenset[bytes] = frozenset()
        """Places that came with files and do not count, of states that were not asked for."""

    @property
    def inherits(self) -> bool:
        return True

    def inherit(self, files: InheritedFiles) -> None:
        database = self._database
        first, *others = files.as_of(self.key_groups)
        self._hidden = database.inherit(first, self.key_groups)
        for former in others:
            database.inherit_more(former, self.key_groups)
        if not files.same_program:
            database.disown()

    def inherited_samples(self) -> list[StateTable]:
        found: list[StateTable] = []
        for state in self._database.waiting.values():
            pairs = first_of(state.layout, self._database.scan(state.prefix), SAMPLED)
            found += tables_of(state.name, state.kind, state.layout, pairs, self.max_parallelism)
        return found

    def get_bulk_state(self, descriptor: ValueStateDescriptor) -> BulkValueState:
        self._row(descriptor, False)
        entry = self._entries[descriptor.name]
        if isinstance(entry, _RowEntry) and isinstance(entry.expiring, ColdExpiring):
            return ColdExpiringBulkValueState(entry.expiring)
        spaces = self._spaces_of(descriptor)
        if spaces is None:
            return super().get_bulk_state(descriptor)
        return ColdBulkValueState(spaces.state)

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        elements = self._elements_of(descriptor.name)
        if elements is not None:
            return elements.keys()
        spaces = self._spaces_of(descriptor)
        if spaces is None:
            return super().keys_of(descriptor)
        spaces.state.begin_snapshot()
        keys = dict.fromkeys(spaces[None].merged())
        stored = spaces.state.stored(self._database)
        keys |= dict.fromkeys(key for namespace, key, _ in stored if namespace is None)
        return list(keys)

    def snapshot(self, since: Since | None = None) -> RocksSnapshot:
        database = self._database
        for state in self._cold:
            if isinstance(state, ColdElements | ColdState | ColdKeyedValues):
                state.begin_snapshot(since is not None)
        database.by_files = since is not None and database.open
        try:
            taken = super().snapshot(since)
            files = self._files() if database.by_files else None
        finally:
            database.by_files = False
        parts = [*taken._parts]
        if files is None and database.waiting:
            parts += [self._inherited(state) for state in database.waiting.values()]
        snapshot = RocksSnapshot(parts, self.max_parallelism, taken.continued)
        snapshot.database = files
        return snapshot

    def _files(self) -> FrozenFiles:
        prefixes = {state.prefix for state in self._database.waiting.values()}
        self._hidden = frozenset(place for place in self._hidden if place[:2] in prefixes)
        shown = [state.shown() for state in self._cold]
        return FrozenFiles(self._database.hold(), self._database.states, shown, self._hidden)

    def _inherited(self, state: StoredState) -> InheritedFreeze:
        view = self._database.view()
        assert view is not None, "it came with files"
        above = tuple(self._restored.get(state.name, ()))
        return InheritedFreeze(state, hidden_of(state.prefix, self._hidden), view, above)

    def _waiting(self, name: str, kind: str) -> list[StateTable]:
        """With what came in files, if that is to be read."""
        state = self._database.waiting.get(name)
        if state is None:
            return super()._waiting(name, kind)
        stored = [*self._inherited(state).tables(self.max_parallelism)]
        tables = [*stored, *self._restored.get(name, ())]
        if tables:
            self._restored[name] = tables
        waiting = super()._waiting(name, kind)
        self._database.forget(name)
        return waiting

    def validate(self) -> None:
        for name, entry in self._entries.items():
            assert name not in self._restored
            if isinstance(entry, _RowEntry) and isinstance(entry.spaces, ColdElements):
                entry.spaces.validate()
            elif isinstance(entry, _RowEntry) and isinstance(entry.spaces, ColdSpaces):
                assert None in entry.spaces
                assert all(not s.empty for ns, s in entry.spaces.items() if ns is not None)
            elif isinstance(entry, _WholeEntry) and isinstance(entry.state, MemoryTimerQueue):
                entry.state.validate()

    def _new_row(self, kind: str, descriptor: RowDescriptor) -> _RowEntry:
        if descriptor.ttl_config is not None:
            return self._new_expiring(kind, descriptor, descriptor.ttl_config)
        if kind in ELEMENTS:
            return self._new_elements(kind, descriptor)
        state = ColdState(descriptor, kind, self._database, self.max_parallelism)
        for table in self._waiting(descriptor.name, kind):
            for start in range(0, table.data.num_rows, RESTORED):
                rows = table.data.slice(start, RESTORED)
                part = thaw([replace(table, data=rows)], descriptor)
                for namespace, entries in part.items():
                    if entries:
                        state.spaces.space(namespace).update(entries)
                state.make_room()
        self._cold.append(state)
        self.time.states.append(state)
        return _RowEntry(kind, state.spaces)  # type: ignore[arg-type]

    def _new_expiring(
        self, kind: str, descriptor: RowDescriptor, config: StateTtlConfig
    ) -> _RowEntry:
        expiry, waiting = (
            Expiry.of(config, self.time),
            partial(self._waiting, descriptor.name, kind),
        )
        database, groups = self._database, self.max_parallelism
        state = ColdExpiring(descriptor, kind, expiry, waiting, database, groups, self._hidden)
        self._cold.append(state)
        self.time.states.append(state)
        return _RowEntry(kind, state.spaces, config, state)

    def _new_elements(self, kind: str, descriptor: RowDescriptor) -> _RowEntry:
        state = ELEMENTS[kind](descriptor, kind, self._database, self.max_parallelism)
        for table in self._waiting(descriptor.name, kind):
            for start in range(0, table.data.num_rows, RESTORED):
                rows = table.data.slice(start, RESTORED)
                state.restore(thaw([replace(table, data=rows)], descriptor))
        self._cold.append(state)
        self.time.states.append(state)
        return _RowEntry(kind, state)  # type: ignore[arg-type]

    def _view(self, descriptor: RowDescriptor, entry: _RowEntry) -> Any:
        spaces: Any = entry.spaces
        if not isinstance(entry.spaces, (ColdSpaces, ColdElements)):
            return super()._view(descriptor, entry)
        declared = declared_type(f"state '{descriptor.name}'", descriptor.type_info)
        match descriptor:
            case ListStateDescriptor():
                return ColdListState(self.current, spaces, declared)
            case MapStateDescriptor():
                return ColdMapState(self.current, spaces, *declared_entries(descriptor))
            case ValueStateDescriptor():
                return ColdValueState(self.current, spaces, declared)
            case ReducingStateDescriptor():
                function = descriptor.reduce_function
                return ColdReducingState(self.current, spaces, function, declared)
            case AggregatingStateDescriptor():
                function = descriptor.agg_function
                return ColdAggregatingState(self.current, spaces, function, declared)
        raise AssertionError(descriptor)

    def _freeze_rows(self, name: str, kind: str, spaces: Spaces) -> Freeze:
        if isinstance(spaces, ColdElements):
            return spaces.freeze()
        if isinstance(spaces, ColdSpaces):
            return ColdFreeze.of(spaces.state)
        return super()._freeze_rows(name, kind, spaces)

    def _spaces_of(self, descriptor: StateDescriptor) -> ColdSpaces | None:
        entry = self._entries.get(descriptor.name)
        if isinstance(entry, _RowEntry) and isinstance(entry.spaces, ColdSpaces):
            return entry.spaces
        return None

    def _elements_of(self, name: str) -> ColdElements[Any] | None:
        entry = self._entries.get(name)
        if isinstance(entry, _RowEntry) and isinstance(entry.spaces, ColdElements):
            return entry.spaces
        return None
