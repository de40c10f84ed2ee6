"""A `RowTable` of which rows may lie in RocksDB.

Positions, numbers, and the order of arrival stay in memory, and so does what finds a row there:
6 bytes per row. The columns are in a `RowCache`. Snapshots are those of a `RowTable`, in tables of
bounded size; rows that are in RocksDB are read for them beside the task, and stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ....core.arrays import Groups
from ...key_groups import group_order, key_groups_of
from ...rows.changes import RowsDelta
from ...rows.positions import Positions
from ...rows.slab import FrozenTable, RowTable
from ...stored import AccColumn, StateTable
from ..database.freeze import PieceFreeze
from ..database.rows_database import RowsDatabase
from .row_cache import READ, RowCache

PIECE = 1 << 16
"""So many rows make a table of a snapshot."""


class ColdRowTable(RowTable):
    """As `RowTable`; of columns that `rows_fit`."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        keys: Sequence[int],
        numbers: Sequence[AccColumn],
        ordered: bool,
        max_parallelism: int,
        database: RowsDatabase,
    ) -> None:
        super().__init__(name, schema, keys, numbers, ordered, max_parallelism)
        self.cache = RowCache(name, self._kinds, self._groups, self._turns, database)
        self._payload = self.cache

    def freeze(self, name: str, delta: RowsDelta | None = None) -> ColdFrozenTable:
        frozen = super().freeze(name, delta)
        positions, numbers = frozen.positions, frozen.numbers
        return ColdFrozenTable(name, self, positions, numbers, frozen.layer, delta)

    def stored_columns(self, positions: Positions) -> list[pa.ChunkedArray]:
        return self.cache.peek_all(positions, self._stored.types)

    def stored_column(self, index: int, positions: Positions) -> pa.ChunkedArray:
        most = self.cache.portion(READ)
        chunks = [
            self.cache.peek([index], positions[start : start + most])[0]
            for start in range(0, len(positions), most)
        ]
        return pa.chunked_array(chunks, self._stored.types[index])

    def groups(self, positions: Positions) -> Groups:
        """The key groups of rows; on any thread."""
        return self.cache.groups(self._keys, positions)

    def validate(self) -> None:
        super().validate()
        assert self.cache.holds(self._pool.used())

    def _groups(self, arrays: Sequence[pa.Array]) -> Groups:
        names = [self._schema.names[index] for index in self._keys]
        columns = [arrays[index] for index in self._keys]
        rows = pa.RecordBatch.from_arrays(columns, names=names)
        return key_groups_of(rows, self._max_parallelism)


@dataclass(frozen=True)
class ColdFrozenTable(FrozenTable, PieceFreeze):
    """Rows at a point in time, in memory and in RocksDB."""

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        at, gone = self._at(), self._gone()
        groups = self._groups(at, max_parallelism)
        order = group_order(groups)
        at, groups, numbers = at[order], groups[order], self._numbers()
        if len(gone) and not len(at):
            yield self._made(groups, at, numbers, gone)
        piece = self._cold.cache.portion(PIECE)
        for start in range(0, len(at), piece):
            part = slice(start, start + piece)
            yield self._made(groups[part], at[part], numbers, gone)
            gone = gone[:0]
        self.positions.over = True

    def _groups(self, at: Positions, max_parallelism: int) -> Groups:
        return self._cold.groups(at)

    @property
    def _cold(self) -> ColdRowTable:
        assert isinstance(self.rows, ColdRowTable)
        return self.rows
