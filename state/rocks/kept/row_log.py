"""A `RowLog` of which rows may lie in RocksDB.

A row has a position in a `RowCache` as long as it is in the log, under whatever number: 10 bytes in
memory, beside its numbers and marks. Numbering rows anew moves positions alone, and releases those
of rows that are gone. Snapshots are those of a `RowLog`, in tables of bounded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Groups, Int64s
from ....core.batch import take_column
from ....core.growing import GrowingList
from ....core.taking import null_array
from ...increments import Layer
from ...key_groups import group_order
from ...rows.arena import as_kind, refuse_too_many, stored_schema
from ...rows.changes import RowsDelta
from ...rows.format import FrozenRows, GroupsOf, Numbers, encoded_rows
from ...rows.log import Known, RowLog
from ...rows.positions import FrozenPositions, PositionPool
from ...stored import AccColumn, StateTable
from ...turns import Turns
from ..database.freeze import PieceFreeze
from ..database.rows_database import RowsDatabase
from .row_cache import READ, RowCache
from .row_table import PIECE


class RowStock:
    """Rows at positions, whatever numbers they have."""

    def __init__(
        self, name: str, schema: pa.Schema, groups_of: GroupsOf, database: RowsDatabase
    ) -> None:
        self.stored = stored_schema(schema)
        self.turns = Turns()
        self.pool = PositionPool()
        stored = self.stored

        def groups(arrays: Sequence[pa.Array]) -> Groups:
            return groups_of(pa.RecordBatch.from_arrays(list(arrays), schema=stored))

        self.cache = RowCache(name, self.stored.types, groups, self.turns, database)

    def add(self, rows: pa.RecordBatch) -> Int64s:
        """The positions of new rows."""
        self.release(self.pool.reclaim())
        positions = self.pool.take(rows.num_rows)
        if self.pool.end > self.cache.room:
            with self.turns.moving():
                self.cache.grow(self.pool.end)
        for start in range(0, rows.num_rows, READ):
            part = slice(start, start + READ)
            self.cache.write(positions[part], rows.slice(start, READ).columns)
        return positions

    def columns(self, indices: Sequence[int], at: Int64s, schema: pa.Schema) -> list[pa.Array]:
        """Some columns of the rows at these positions, of their types in `schema`."""
        kinds = [schema.field(index).type for index in indices]
        found = self.cache.read(indices, at.astype(np.int64))
        return [as_kind(column, kind) for column, kind in zip(found, kinds, strict=True)]

    def rows(self, at: Int64s, schema: pa.Schema) -> pa.RecordBatch:
        """The rows at these positions."""
        columns = self.columns(range(len(schema)), at, schema)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def give_up(self, positions: Int64s) -> None:
        """The rows at these are of no more use, but to snapshots."""
        self.release(self.pool.release(positions))

    def release(self, positions: Int64s) -> None:
        if len(positions):
            self.cache.release(positions)

    def validate(self, at: Int64s) -> None:
        """Assert the invariants, and that these are the positions in use."""
        self.pool.validate()
        self.cache.validate()
        assert len(np.unique(at)) == len(at) == len(self.pool)
        assert self.cache.holds(at)


class ColdArena:
    """A `LogArena`."""

    def __init__(self, schema: pa.Schema, stock: RowStock) -> None:
        self.schema = schema
        self.stored_schema = stock.stored
        self._stock = stock
        self.at = GrowingList(np.int32)
        """By number, the position of the row."""

    def __len__(self) -> int:
        return self.at.length

    def append(self, rows: pa.RecordBatch) -> None:
        refuse_too_many(len(self) + rows.num_rows, self.schema)
        self.at.append(self._stock.add(rows))

    def append_from(self, other: ColdArena, rows: Int64s) -> None:
        self.at.append(other.at.array[rows])

    def gather(self, rows: Int64s, columns: list[int] | None = None) -> list[pa.Array]:
        chosen = list(range(len(self.schema))) if columns is None else columns
        there = rows >= 0
        if there.all():
            return self._stock.columns(chosen, self.at.array[rows], self.schema)
        if not there.any():
            return [null_array(len(rows), self.schema.field(index).type) for index in chosen]
        found = self._stock.columns(chosen, self.at.array[rows[there]], self.schema)
        at = pa.array(np.cumsum(there) - 1, mask=~there)
        return [take_column(column, at) for column in found]

    @property
    def nbytes(self) -> int:
        return self._stock.cache.nbytes + int(self.at.array.nbytes)

    def keep(self, rows: Int64s) -> None:
        """The other rows are of no more use; they are not to be read any more."""
        others = np.ones(len(self), np.bool_)
        others[rows] = False
        self._stock.give_up(self.at.used[others].astype(np.int64))


@dataclass(frozen=True)
class FrozenStock:
    """The rows of a log at a point in time, to be read once, on any thread."""

    stock: RowStock
    positions: FrozenPositions
    at: npt.NDArray[np.integer[Any]]
    """Positions by number."""
    live: Callable[[], Int64s]
    """The numbers of those that are shown."""
    known: Known

    def read(self) -> tuple[pa.RecordBatch, Numbers]:
        """All of them."""
        rows = self.live()
        found = self.some(rows)
        self.positions.over = True
        return found, self.known(rows, rows)

    def some(self, rows: Int64s) -> pa.RecordBatch:
        """These, as they are stored."""
        stored = self.stock.stored
        found = self.stock.cache.peek_all(self.at[rows].astype(np.int64), stored.types)
        arrays = [column.combine_chunks() for column in found]
        return pa.RecordBatch.from_arrays(arrays, schema=stored)

    def groups(self, rows: Int64s) -> Groups:
        return self.stock.cache.groups(
            range(len(self.stock.stored)), self.at[rows].astype(np.int64)
        )


@dataclass(frozen=True, kw_only=True)
class ColdFrozenLog(FrozenRows, PieceFreeze):
    """The rows of a log at a point in time, in memory and in RocksDB."""

    held: FrozenStock

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        rows, gone = self.held.live(), self.gone
        groups = self.held.groups(rows)
        order = group_order(groups)
        rows, groups = rows[order], groups[order]
        if not len(rows) and gone is not None and len(gone):
            yield self._table(groups, rows, gone)
        piece = self.held.stock.cache.portion(PIECE)
        for start in range(0, len(rows), piece):
            part = slice(start, start + piece)
            yield self._table(groups[part], rows[part], gone)
            gone = None if gone is None else gone[:0]
        self.held.positions.over = True

    def _table(self, groups: Groups, rows: Int64s, gone: Int64s | None) -> StateTable:
        return encoded_rows(
            self.name, groups, self.held.some(rows), self.held.known(rows, rows), self.layer, gone
        )


class ColdRowLog(RowLog):
    """As `RowLog`; of columns that `rows_fit`."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        numbers: Sequence[AccColumn],
        marks: Sequence[AccColumn],
        database: RowsDatabase,
    ) -> None:
        self._stock = RowStock(name, schema, groups_of, database)
        super().__init__(name, schema, groups_of, numbers, marks)

    @property
    def cache(self) -> RowCache:
        return self._stock.cache

    def keep(self, rows: Int64s) -> None:
        former = self._cold
        super().keep(rows)
        former.keep(rows)

    def freeze(
        self, name: str, layer: Layer = "whole", delta: RowsDelta | None = None
    ) -> ColdFrozenLog:
        held = self._freeze_held(layer, delta)
        gone = None if delta is None else delta.gone
        return ColdFrozenLog(name, self._groups_of, held.read, layer, gone, held=held)

    def validate(self) -> None:
        super().validate()
        self._stock.validate(self._cold.at.used.astype(np.int64))

    @property
    def _cold(self) -> ColdArena:
        assert isinstance(self._arena, ColdArena)
        return self._arena

    def _freeze_held(self, layer: Layer, delta: RowsDelta | None) -> FrozenStock:
        positions, at = self._stock.pool.freeze(), self._cold.at.used
        known, live = self._freeze_known(layer), self._freeze_live(delta)
        return FrozenStock(self._stock, positions, at, live, known)

    def _new_arena(self) -> ColdArena:
        return ColdArena(self.schema, self._stock)
