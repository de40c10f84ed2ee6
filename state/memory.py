"""Keyed state in memory: dicts for the row face, numpy arrays for the column face.

Everything lives under one name space: a name is a value, list, map, ... state, a timer queue, a
table or a buffer. A snapshot freezes each (the synchronous part: copies) and encodes later.
Restored tables wait undecoded until their name is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from ..core.errors import StateError
from ..core.ids import KeyGroupRange
from .backend import AccColumn, CurrentKey, KeyedSnapshot, KeyedStateBackend, StateTable
from .buffers import MemoryBufferState
from .carry import check_restored, join
from .declared_types import declared_type
from .descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from .row_states import (
    MemoryAggregatingState,
    MemoryBulkValueState,
    MemoryListState,
    MemoryMapState,
    MemoryReducingState,
    MemoryValueState,
    Spaces,
)
from .row_tables import freeze, thaw
from .timers import MemoryTimerQueue

if TYPE_CHECKING:
    from .counted_values import CountedValues
    from .entry_table import MemoryEntryTable
    from .rows.chunks import KeysOf, RowChunks
    from .rows.format import GroupsOf
    from .rows.log import RowLog
    from .rows.slab import RowTable
    from .seen_values import SeenValues
    from .table_state import MemoryTableState
    from .value_store import Values

RowDescriptor = (
    ValueStateDescriptor
    | ListStateDescriptor
    | MapStateDescriptor
    | ReducingStateDescriptor
    | AggregatingStateDescriptor
)
RowState = (
    MemoryValueState
    | MemoryListState
    | MemoryMapState
    | MemoryReducingState
    | MemoryAggregatingState
)


class Freeze(Protocol):
    """A point in time of one state, to be encoded later on any thread."""

    def table(self, max_parallelism: int) -> StateTable | None: ...


@dataclass
class _RowEntry:
    """A row-face state and the views handed out: [plain, namespaced], made on first use."""

    kind: str
    spaces: Spaces
    views: dict[bool, RowState] = field(default_factory=dict)


class _Whole(Protocol):
    """Timers, tables and buffers: one object is the whole state."""

    def freeze(self, name: str) -> Freeze: ...
    def restore(self, tables: Iterable[StateTable]) -> None: ...


@dataclass
class _WholeEntry:
    kind: str
    state: _Whole


@dataclass(frozen=True)
class _Carried:
    """Restored tables of a name that was never asked for."""

    tables: tuple[StateTable, ...]

    def table(self, max_parallelism: int) -> StateTable | None:
        return join(self.tables)


class MemorySnapshot(KeyedSnapshot):
    """Frozen states, by name."""

    def __init__(self, parts: Sequence[Freeze], max_parallelism: int) -> None:
        self._parts = parts
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

    def __init__(self, key_groups: KeyGroupRange, max_parallelism: int) -> None:
        self.key_groups = key_groups
        self.max_parallelism = max_parallelism
        self.current = CurrentKey()
        self._entries: dict[str, _RowEntry | _WholeEntry] = {}
        self._restored: dict[str, list[StateTable]] = {}

    def set_current_key(self, key: Any) -> None:
        self.current.key = key

    def get_current_key(self) -> Any:
        return self.current.key

    def get_state(self, descriptor: ValueStateDescriptor) -> MemoryValueState:
        return cast(MemoryValueState, self._row(descriptor, False))

    def get_bulk_state(self, descriptor: ValueStateDescriptor) -> MemoryBulkValueState:
        self._row(descriptor, False)
        entry = self._entries[descriptor.name]
        assert isinstance(entry, _RowEntry)
        return MemoryBulkValueState(entry.spaces)

    def get_list_state(self, descriptor: ListStateDescriptor) -> MemoryListState:
        return cast(MemoryListState, self._row(descriptor, False))

    def get_map_state(self, descriptor: MapStateDescriptor) -> MemoryMapState:
        return cast(MemoryMapState, self._row(descriptor, False))

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> MemoryReducingState:
        return cast(MemoryReducingState, self._row(descriptor, False))

    def get_aggregating_state(
        self, descriptor: AggregatingStateDescriptor
    ) -> MemoryAggregatingState:
        return cast(MemoryAggregatingState, self._row(descriptor, False))

    def namespaced(self, descriptor: RowDescriptor) -> RowState:
        return self._row(descriptor, True)

    def timers(self, name: str) -> MemoryTimerQueue:
        return cast(MemoryTimerQueue, self._whole(name, "timers", MemoryTimerQueue))

    def table(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        key_columns: int | None = None,
        values: Mapping[str, Values] | None = None,
    ) -> MemoryTableState:
        from .table_state import MemoryTableState

        def make() -> MemoryTableState:
            return MemoryTableState(name, keys, columns, key_columns, values)

        state = self._whole(name, "table", make)
        table = cast(MemoryTableState, state)
        table.check_same(keys, columns, key_columns)
        return table

    def entries(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: Mapping[str, Values] | None = None,
    ) -> MemoryEntryTable:
        from .entry_table import MemoryEntryTable

        def make() -> MemoryEntryTable:
            return MemoryEntryTable(name, keys, columns, owner, values)

        entries = cast(MemoryEntryTable, self._whole(name, "entries", make))
        entries.check_same(keys, columns, owner)
        return entries

    def buffer(self, name: str, schema: pa.Schema) -> MemoryBufferState:
        state = self._whole(name, "buffer", lambda: MemoryBufferState(name, schema))
        buffer = cast(MemoryBufferState, state)
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

        def make() -> RowTable:
            return RowTable(name, schema, keys, numbers, ordered)

        rows = cast(RowTable, self._whole(name, "rows", make))
        rows.check_same(schema, keys, numbers, ordered)
        return rows

    def counted_values(
        self, name: str, keys: pa.Schema, kind: pa.DataType, views: int
    ) -> CountedValues:
        from .counted_values import CountedValues

        def make() -> CountedValues:
            return CountedValues(name, keys, kind, views)

        values = cast(CountedValues, self._whole(name, "values", make))
        values.check_same(CountedValues, keys, kind, views)
        return values

    def seen_values(self, name: str, keys: pa.Schema, kind: pa.DataType, views: int) -> SeenValues:
        from .seen_values import SeenValues

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

        def make() -> RowLog:
            return RowLog(name, schema, groups_of, numbers, marks)

        log = cast(RowLog, self._whole(name, "rows", make))
        log.check_same(schema, numbers, marks)
        return log

    def chunks(self, name: str, schema: pa.Schema, keys_of: KeysOf) -> RowChunks:
        from .rows.chunks import RowChunks

        def make() -> RowChunks:
            return RowChunks(name, schema, keys_of, self.max_parallelism)

        chunks = cast(RowChunks, self._whole(name, "rows", make))
        chunks.check_same(schema)
        return chunks

    def snapshot(self) -> MemorySnapshot:
        parts: list[Freeze] = []
        for name in sorted({*self._entries, *self._restored}):
            entry = self._entries.get(name)
            match entry:
                case _RowEntry(kind, spaces):
                    parts.append(freeze(name, kind, spaces))
                case _WholeEntry(_, state):
                    parts.append(state.freeze(name))
                case None:
                    parts.append(_Carried(tuple(self._restored[name])))
        return MemorySnapshot(parts, self.max_parallelism)

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

    def validate(self) -> None:
        """Assert the invariants."""
        assert not self._entries.keys() & self._restored.keys()
        for entry in self._entries.values():
            if isinstance(entry, _RowEntry):
                assert None in entry.spaces
                assert all(data for ns, data in entry.spaces.items() if ns is not None)
            elif isinstance(entry.state, MemoryTimerQueue):
                entry.state.validate()

    def _row(self, descriptor: RowDescriptor, namespaced: bool) -> RowState:
        kind = _kind_of(descriptor)
        name = descriptor.name
        entry = self._entries.get(name)
        if entry is None:
            entry = _RowEntry(kind, thaw(self._waiting(name, kind)))
            self._enter(name, entry)
        if not isinstance(entry, _RowEntry) or entry.kind != kind:
            raise _kind_mismatch(name, entry.kind, kind)
        view = entry.views.get(namespaced)
        if view is None:
            view = entry.views[namespaced] = _view(descriptor, self.current, entry.spaces)
        return view

    def _whole(self, name: str, kind: str, make: Callable[[], _Whole]) -> _Whole:
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


def _kind_of(descriptor: RowDescriptor) -> str:
    match descriptor:
        case ValueStateDescriptor():
            return "value"
        case ListStateDescriptor():
            return "list"
        case MapStateDescriptor():
            return "map"
        case ReducingStateDescriptor():
            return "reducing"
        case AggregatingStateDescriptor():
            return "aggregating"
    raise StateError(f"{descriptor!r} is not a descriptor of keyed state")


def _view(descriptor: RowDescriptor, cell: CurrentKey, spaces: Spaces) -> RowState:
    what = f"state '{descriptor.name}'"
    declared = declared_type(what, descriptor.type_info)
    match descriptor:
        case ValueStateDescriptor():
            return MemoryValueState(cell, spaces, declared)
        case ListStateDescriptor():
            return MemoryListState(cell, spaces, declared)
        case MapStateDescriptor():
            values = declared_type(what, descriptor.value_type_info)
            keys = declared_type(f"the map key of {what}", descriptor.type_info)
            return MemoryMapState(cell, spaces, values, keys)
        case ReducingStateDescriptor():
            return MemoryReducingState(cell, spaces, descriptor.reduce_function, declared)
        case AggregatingStateDescriptor():
            return MemoryAggregatingState(cell, spaces, descriptor.agg_function, declared)


def _kind_mismatch(name: str, known: str, asked: str) -> StateError:
    return StateError(
        f"state '{name}' is a '{known}' state and is asked for as a '{asked}' state: use one kind, "
        "or another name"
    )
