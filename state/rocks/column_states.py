"""State that operators on columns keep, timers and rows, as far as it may leave memory.

The backend of `backend` but for what users' functions keep, and for snapshots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pyarrow as pa

from ...core.clock import Clock
from ...core.ids import KeyGroupRange
from ..away import Due
from ..backend import AccColumn
from ..buffers import MemoryBufferState
from ..entry_table import MemoryEntryTable
from ..live_keys import LiveKeys
from ..memory import MemoryKeyedStateBackend
from ..rows.chunks import KeysOf, RowChunks
from ..rows.format import GroupsOf
from ..rows.log import RowLog
from ..rows.slab import RowTable
from ..table_state import MemoryTableState
from ..timers import MemoryTimerQueue
from ..value_store import MakeStores
from .database.rows_database import RowsDatabase
from .database.task_database import TaskDatabase
from .entries.entry_rows import entries_fit
from .entries.entry_table import ColdEntryTable
from .kept.buffer_pieces import pieces_fit
from .kept.nested_columns import rows_fit
from .kept.row_buffer import ColdBufferState
from .kept.row_cache import RowCache
from .kept.row_chunks import ColdRowChunks
from .kept.row_log import ColdRowLog
from .kept.row_table import ColdRowTable
from .tables.keyed_values import ColdKeyedValues, keyed_values_fit
from .tables.object_rows import objects_fit
from .tables.slot_rows import fits
from .tables.table_state import ColdTableState
from .tables.valued_rows import values_fit
from .timers.timer_queue import ColdTimerQueue
from .values.elements import ColdElements
from .values.expiring import ColdExpiring
from .values.spaces import ColdState


class ColdColumns(MemoryKeyedStateBackend):
    """`database`: that of the task."""

    def __init__(
        self,
        key_groups: KeyGroupRange,
        max_parallelism: int,
        database: TaskDatabase,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(key_groups, max_parallelism, clock)
        self._database = database
        self._cold: list[
            ColdState
            | ColdTableState
            | ColdElements[Any]
            | ColdExpiring
            | ColdTimerQueue
            | ColdEntryTable
        ] = []
        self._kept: list[RowCache | ColdBufferState] = []
        self._beside: RowsDatabase | None = None
        """Where kept rows lie; None until there are some."""

    def timers(self, name: str) -> MemoryTimerQueue:
        def make() -> ColdTimerQueue:
            queue = ColdTimerQueue(name, self._database, self.max_parallelism)
            self._cold.append(queue)
            self.time.states.append(queue)
            return queue

        return cast(MemoryTimerQueue, self._whole(name, "timers", make))

    def table(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        key_columns: int | None = None,
        values: MakeStores | None = None,
        cold: bool = False,
    ) -> MemoryTableState:
        may_leave = cold and (fits(keys, columns) or objects_fit(keys, columns))
        if not may_leave or not values_fit(values or {}):
            return super().table(name, keys, columns, key_columns, values)

        def make() -> ColdTableState:
            state = ColdTableState(
                name, keys, columns, key_columns, self._database, self.max_parallelism, values
            )
            self._cold.append(state)
            self.time.states.append(state)
            return state

        table = self._whole(name, "table", make)
        assert isinstance(table, MemoryTableState)
        table.check_same(keys, columns, key_columns)
        return table

    def entries(
        self,
        name: str,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        owner: str,
        values: MakeStores | None = None,
        due: Due | None = None,
    ) -> MemoryEntryTable:
        may_leave = due is not None and entries_fit(LiveKeys(keys), columns, owner)
        if due is None or not may_leave or not values_fit(values or {}):
            return super().entries(name, keys, columns, owner, values)

        def make() -> ColdEntryTable:
            of = name, keys, columns, owner, due, self._database, self._rows_database()
            table = ColdEntryTable(*of, self.max_parallelism, values)
            self._cold.append(table)
            return table

        entries = self._whole(name, "entries", make)
        assert isinstance(entries, MemoryEntryTable)
        entries.check_same(keys, columns, owner)
        return entries

    def buffer(self, name: str, schema: pa.Schema, cold: bool = False) -> MemoryBufferState:
        if not cold or not pieces_fit(schema):
            return super().buffer(name, schema, cold)

        def make() -> ColdBufferState:
            buffer = ColdBufferState(name, schema, self._rows_database())
            self._keep(buffer)
            return buffer

        buffer = self._whole(name, "buffer", make)
        assert isinstance(buffer, MemoryBufferState)
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
        if not rows_fit(schema):
            return super().rows(name, schema, keys, numbers, ordered)

        def make() -> ColdRowTable:
            table = ColdRowTable(
                name, schema, keys, numbers, ordered, self.max_parallelism, self._rows_database()
            )
            self._keep(table.cache)
            return table

        rows = self._whole(name, "rows", make)
        assert isinstance(rows, RowTable)
        rows.check_same(schema, keys, numbers, ordered)
        return rows

    def keyed_values(
        self, name: str, keys: pa.Schema, kind: pa.DataType, views: int, extremes: int
    ) -> ColdKeyedValues | None:
        if not keyed_values_fit(keys, kind):
            return None

        def make() -> ColdKeyedValues:
            of = name, keys, kind, views, extremes, self._database, self.max_parallelism
            values = ColdKeyedValues(*of)
            self._cold.append(values)
            self.time.states.append(values)
            return values

        values = self._whole(name, "values", make)
        assert isinstance(values, ColdKeyedValues)
        values.check_asked(keys, kind, views, extremes)
        return values

    def log(
        self,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        numbers: Sequence[AccColumn] = (),
        marks: Sequence[AccColumn] = (),
    ) -> RowLog:
        if not rows_fit(schema):
            return super().log(name, schema, groups_of, numbers, marks)

        def make() -> ColdRowLog:
            log = ColdRowLog(name, schema, groups_of, numbers, marks, self._rows_database())
            self._keep(log.cache)
            return log

        log = self._whole(name, "rows", make)
        assert isinstance(log, RowLog)
        log.check_same(schema, numbers, marks)
        return log

    def chunks(self, name: str, schema: pa.Schema, keys_of: KeysOf) -> RowChunks:
        if not rows_fit(schema):
            return super().chunks(name, schema, keys_of)

        def make() -> ColdRowChunks:
            database = self._rows_database()
            chunks = ColdRowChunks(name, schema, keys_of, self.max_parallelism, database)
            self._keep(chunks.cache)
            return chunks

        chunks = self._whole(name, "rows", make)
        assert isinstance(chunks, RowChunks)
        chunks.check_same(schema)
        return chunks

    def _rows_database(self) -> RowsDatabase:
        if self._beside is None:
            self._beside = RowsDatabase(self._database.config)
        return self._beside

    def _keep(self, cache: RowCache | ColdBufferState) -> None:
        self._kept.append(cache)
        self.time.states.append(cache)

    def report(self, gauge: Callable[[str, float], None]) -> None:
        caches = [*self._cold, *self._kept]
        if caches:
            gauge("state.bytes.cache", sum(state.used for state in caches))
            gauge("state.bytes.rocksdb", self._database.budget.rocksdb_used)
            gauge("state.entries.spilled", sum(state.spilled for state in caches))
            gauge("state.entries.loaded", sum(state.loaded for state in caches))

    def close(self) -> None:
        for state in [*self._cold, *self._kept]:
            state.close()
        if self._beside is not None:
            self._beside.close()
