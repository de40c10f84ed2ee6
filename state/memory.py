"""Keyed state in memory: dicts for the row face, numpy arrays for the column face.

Everything lives under one name space: a name is a value, list, map, ... state, a timer queue, a
table, entries, a buffer, or rows. A snapshot freezes each and encodes later. Freezing is the
synchronous part: of the row face and of timers it copies what the dicts hold (`row_tables.freeze`),
of lists of values 8 bytes each (`value_lists`), of numbers per slot and of kept rows nothing
(`slot_columns`); where an earlier snapshot is continued, what changed only. Restored tables wait
undecoded until their name is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ..core.clock import Clock
from ..core.errors import StateError
from ..core.ids import KeyGroupRange
from ..core.key_kinds import given, held_key
from .backend import (
    AccColumn,
    CurrentKey,
    KeyedSnapshot,
    KeyedStateBackend,
    NamespacedState,
    StateTable,
)
from .buffer_changes import BufferRecord
from .buffers import MemoryBufferState
from .carry import check_restored, join
from .descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from .event_time import EVENT_TIME, frozen_time, restore_time
from .expiry import Expiry, StateTime
from .faces import AggregatingState, BulkValueState, ListState, MapState, ReducingState, ValueState
from .increments import Since
from .row_deltas import RowRecord
from .row_states import MemoryBulkValueState, Spaces
from .row_tables import freeze, thaw
from .row_views import RowDescriptor, kind_of, view_of
from .timers import MemoryTimerQueue
from .whole import Freeze, WholeState

if TYPE_CHECKING:
    from .away import Due
    from .counted_values import CountedValues
    from .entry_table import MemoryEntryTable
    from .expiring_spaces import ExpiringSpaces
    from .object_keys import ObjectKeys
    from .rows.chunks import KeysOf, RowChunks
    from .rows.format import GroupsOf
    from .rows.log import RowLog
    from .rows.slab import RowTable
    from .seen_values import SeenValues
    from .table_state import MemoryTableState
    from .ttl import StateTtlConfig
    from .value_store import MakeStores


@dataclass
class _RowEntry:
    """A row-face state and the views handed out: [plain, namespaced], made on first use."""

    kind: str
    spaces: Spaces
    ttl: StateTtlConfig | None = None
    expiring: ExpiringSpaces | None = None
    """What `ttl` says of the spaces; None where nothing expires."""
    views: dict[bool, Any] = field(default_factory=dict)
    record: RowRecord | None = None
    """None: snapshots of it continue no others."""


@dataclass
class _WholeEntry:
    kind: str
    state: WholeState


@dataclass(frozen=True)
class _Carried:
    """Restored tables of a name that was never asked for."""

    tables: tuple[StateTable, ...]

    def table(self, max_parallelism: int) -> StateTable | None:
        return join(self.tables)


class MemorySnapshot(KeyedSnapshot):
    """Frozen states, by name."""

    def __init__(
        self, parts: Sequence[Freeze], max_parallelism: int, continued: Collection[str] = ()
    ) -> None:
        self._parts = parts
        self.continued = frozenset(continued)
        self._max_parallelism = max_parallelism

    def tables(self) -> Iterator[StateTable]:
        for part in self._parts:
            table = part.table(self._max_parallelism)
            if table is not None:
                yield table


class MemoryKeyedStateBackend(KeyedStateBackend):
    """All keyed state of one operator in one subtask, in memory.

    Invariant: a name is in at most one of `_entries` (in use) and `_restored` (waiting).
    """

    def __init__(
        self, key_groups: KeyGroupRange, max_parallelism: int, clock: Clock | None = None
    ) -> None:
        """`clock`: what state expires by; None: the machine's."""
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.current = CurrentKey()
        self.time = StateTime(clock)
        self._entries: dict[str, _RowEntry | _WholeEntry] = {}
        self._restored: dict[str, list[StateTable]] = {}
        self._objects: ObjectKeys | None = None
        """None until a state has keys that are objects."""

    def set_current_key(self, key: Any) -> None:
        self.current.key = held_key(key)

    def get_current_key(self) -> Any:
        return given(self.current.key)

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        return cast(ValueState, self._row(descriptor, False))

    def get_bulk_state(self, descriptor: ValueStateDescriptor) -> BulkValueState:
        self._row(descriptor, False)
        entry = self._entries[descriptor.name]
        assert isinstance(entry, _RowEntry)
        if entry.expiring is not None:
            from .expiring_states import ExpiringBulkValueState

            return ExpiringBulkValueState(
                entry.expiring, None if entry.record is None else entry.record.changes
            )
        return MemoryBulkValueState(
            entry.spaces, None if entry.record is None else entry.record.changes
        )

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return cast(ListState, self._row(descriptor, False))

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        return cast(MapState, self._row(descriptor, False))

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        return cast(ReducingState, self._row(descriptor, False))

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        return cast(AggregatingState, self._row(descriptor, False))

    def keys_of(self, descriptor: StateDescriptor) -> list[Any]:
        entry = self._entries.get(descriptor.name)
        if not isinstance(entry, _RowEntry):
            return []
        return list(entry.spaces[None]) if entry.expiring is None else entry.expiring.keys()

    def namespaced(self, descriptor: RowDescriptor) -> NamespacedState:
        return cast(NamespacedState, self._row(descriptor, True))

    def timers(self, name: str) -> MemoryTimerQueue:
        return cast(MemoryTimerQueue, self._whole(name, "timers", MemoryTimerQueue))

    def table(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        key_columns: int | None = None,
        values: MakeStores | None = None,
        cold: bool = False,
    ) -> MemoryTableState:
        from .table_state import MemoryTableState

        def make() -> MemoryTableState:
            return MemoryTableState(name, keys, columns, key_columns, values)

        state = self._whole(name, "table", make)
        table = cast(MemoryTableState, state)
        table.check_same(keys, columns, key_columns)
        return table

    def object_keys(self, owner: str) -> ObjectKeys:
        from .object_keys import ObjectKeys

        if self._objects is None:
            self._objects = ObjectKeys(owner)
        return self._objects

    def forget_object_keys(self) -> None:
        if self._objects is not None and self._objects.crowded:
            held = self._objects.marks()
            for entry in self._entries.values():
                if isinstance(entry, _WholeEntry):
                    entry.state.mark_objects(held)
            self._objects.forget(held)

    def entries(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: MakeStores | None = None,
        due: Due | None = None,
    ) -> MemoryEntryTable:
        from .entry_table import MemoryEntryTable

        def make() -> MemoryEntryTable:
            return MemoryEntryTable(name, keys, columns, owner, values)

        entries = cast(MemoryEntryTable, self._whole(name, "entries", make))
        entries.check_same(keys, columns, owner)
        return entries

    def buffer(self, name: str, schema: pa.Schema, cold: bool = False) -> MemoryBufferState:
        def make() -> MemoryBufferState:
            return MemoryBufferState(name, schema, BufferRecord() if cold else None)

        buffer = cast(MemoryBufferState, self._whole(name, "buffer", make))
        buffer.check_same(schema)
        return buffer

    def rows(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[int],
        numbers: Sequence[AccColumn] = (),
        ordered: bool = True,
    ) -> RowTable:
        from .rows.slab import RowTable
        from .stored_keys import refuse_objects

        refuse_objects(schema.types, name)

        def make() -> RowTable:
            return RowTable(name, schema, keys, numbers, ordered, self.max_parallelism)

        rows = cast(RowTable, self._whole(name, "rows", make))
        rows.check_same(schema, keys, numbers, ordered)
        return rows

    def counted_values(
        self, name: str, keys: pa.Schema, kind: pa.DataType, views: int
    ) -> CountedValues:
        from .counted_values import CountedValues
        from .stored_keys import refuse_objects

        refuse_objects(keys.types, name)

        def make() -> CountedValues:
            return CountedValues(name, keys, kind, views)

        values = cast(CountedValues, self._whole(name, "values", make))
        values.check_same(CountedValues, keys, kind, views)
        return values

    def seen_values(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> SeenValues:
        from .seen_values import SeenValues
        from .stored_keys import refuse_objects

        refuse_objects(keys.types, name)

        def make() -> SeenValues:
            return SeenValues(name, keys, kind, views)

        values = cast(SeenValues, self._whole(name, "values", make))
        values.check_same(SeenValues, keys, kind, views)
        return values

    def log(
        self,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        numbers: Sequence[AccColumn] = (),
        marks: Sequence[AccColumn] = (),
    ) -> RowLog:
        from .rows.log import RowLog
        from .stored_keys import refuse_objects

        refuse_objects(schema.types, name)

        def make() -> RowLog:
            return RowLog(name, schema, groups_of, numbers, marks)

        log = cast(RowLog, self._whole(name, "rows", make))
        log.check_same(schema, numbers, marks)
        return log

    def chunks(self, name: str, schema: pa.Schema, keys_of: KeysOf) -> RowChunks:
        from .rows.chunks import RowChunks
        from .stored_keys import refuse_objects

        refuse_objects(schema.types, name)

        def make() -> RowChunks:
            return RowChunks(name, schema, keys_of, self.max_parallelism)

        chunks = cast(RowChunks, self._whole(name, "rows", make))
        chunks.check_same(schema)
        return chunks

    def snapshot(self, since: Since | None = None) -> MemorySnapshot:
        parts: list[Freeze] = []
        continued = []
        for name in sorted({*self._entries, *self._restored}):
            entry = self._entries.get(name)
            match entry:
                case _RowEntry(record=record) if since is not None and record is not None:
                    part, continues = self._freeze_changes(name, entry, record, since)
                    parts.append(part)
                    continued += [name] * continues
                case _RowEntry(kind, spaces, _, None):
                    parts.append(self._freeze_rows(name, kind, spaces))
                case _RowEntry(expiring=expiring) if expiring is not None:
                    parts.append(expiring.freeze(name))
                case _WholeEntry(_, state) if since is not None:
                    part, continues = state.freeze_since(name, since)
                    parts.append(part)
                    continued += [name] * continues
                case _WholeEntry(_, state):
                    parts.append(state.freeze(name))
                case None:
                    parts.append(_Carried(tuple(self._restored[name])))
        parts += frozen_time(self.time, self.key_groups)
        return MemorySnapshot(parts, self.max_parallelism, continued)

    def restore(self, tables: Iterable[StateTable]) -> None:
        if self._entries or self._restored:
            raise StateError(
                f"state {sorted({*self._entries, *self._restored})} exists already: restore once, "
                "before using any state"
            )
        for table in tables:
            waiting = self._restored.setdefault(table.name, [])
            check_restored(table, self.key_groups, waiting[0].kind if waiting else None)
            waiting.append(table)
        for table in self._restored.pop(EVENT_TIME, ()):
            restore_time(self.time, table)

    def validate(self) -> None:
        """Assert the invariants."""
        assert not self._entries.keys() & self._restored.keys()
        for entry in self._entries.values():
            if isinstance(entry, _RowEntry):
                assert None in entry.spaces
                assert all(data for ns, data in entry.spaces.items() if ns is not None)
            elif isinstance(entry.state, MemoryTimerQueue):
                entry.state.validate()

    def _row(self, descriptor: RowDescriptor, namespaced: bool) -> Any:
        kind = kind_of(descriptor)
        name = descriptor.name
        entry = self._entries.get(name)
        if entry is None:
            entry = self._new_row(kind, descriptor)
            self._enter(name, entry)
        if not isinstance(entry, _RowEntry) or entry.kind != kind:
            raise _kind_mismatch(name, entry.kind, kind)
        if entry.ttl != descriptor.ttl_config:
            raise StateError(
                f"state '{name}' has the time to live {entry.ttl} and is asked for with "
                f"{descriptor.ttl_config}: give all descriptors of the name the same one"
            )
        view = entry.views.get(namespaced)
        if view is None:
            view = self._view(descriptor, entry)
            entry.views[namespaced] = view
        return view

    def _view(self, descriptor: RowDescriptor, entry: _RowEntry) -> Any:
        view = view_of(descriptor, self.current, entry.spaces, entry.expiring)
        return view if entry.record is None else view.noting(entry.record.changes)

    def _freeze_changes(
        self, name: str, entry: _RowEntry, record: RowRecord, since: Since
    ) -> tuple[Freeze, bool]:
        expiring = entry.expiring
        if expiring is not None:
            return record.freeze(entry.spaces, since, name, partial(expiring.freeze, name))
        return record.freeze(entry.spaces, since, name, partial(freeze, name, entry.kind))

    def _freeze_rows(self, name: str, kind: str, spaces: Spaces) -> Freeze:
        """Of a state that does not expire."""
        return freeze(name, kind, spaces)

    def _new_row(self, kind: str, descriptor: RowDescriptor) -> _RowEntry:
        config, waiting = descriptor.ttl_config, self._waiting(descriptor.name, kind)
        if config is None:
            return _RowEntry(kind, thaw(waiting, descriptor), record=RowRecord(kind))
        from .expiring_spaces import ExpiringSpaces

        expiry = Expiry.of(config, self.time)
        record = RowRecord(kind)
        expiring = ExpiringSpaces(descriptor, kind, expiry, waiting, record.changes)
        self.time.states.append(expiring)
        return _RowEntry(kind, expiring.spaces, config, expiring, record=record)

    def _whole(self, name: str, kind: str, make: Callable[[], WholeState]) -> WholeState:
        entry = self._entries.get(name)
        if entry is None:
            state = make()
            state.restore(self._waiting(name, kind))
            entry = _WholeEntry(kind, state)
            self._enter(name, entry)
        if not isinstance(entry, _WholeEntry) or entry.kind != kind:
            raise _kind_mismatch(name, entry.kind, kind)
        return entry.state

    def _waiting(self, name: str, kind: str) -> list[StateTable]:
        """The restored tables of a name, which must be of this kind."""
        tables = self._restored.get(name, [])
        if tables and tables[0].kind != kind:
            raise _kind_mismatch(name, tables[0].kind, kind)
        return tables

    def _enter(self, name: str, entry: _RowEntry | _WholeEntry) -> None:
        """From here on the state lives in its entry; what was restored has been read."""
        self._entries[name] = entry
        self._restored.pop(name, None)


def _kind_mismatch(name: str, known: str, asked: str) -> StateError:
    return StateError(
        f"state '{name}' is a '{known}' state and is asked for as a '{asked}' state: use one kind, "
        "or another name"
    )
