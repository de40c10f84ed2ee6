"""A point in time of entries, in memory and in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...entry_table import EntryFreeze
from ...stored import StateTable
from ..database.freeze import PieceFreeze
from ..database.layouts import Layout, tables_of
from ..database.task_database import DatabaseView


@dataclass(frozen=True, kw_only=True)
class ColdEntryFreeze(EntryFreeze, PieceFreeze):
    """`view`: None where nothing lies in RocksDB, or a checkpoint has its files."""

    prefix: bytes
    layout: Layout
    view: DatabaseView | None

    @staticmethod
    def of(
        hot: EntryFreeze, prefix: bytes, layout: Layout, view: DatabaseView | None
    ) -> ColdEntryFreeze:
        """What is in memory, and what is away."""
        return ColdEntryFreeze(
            hot.name,
            hot.owner,
            hot.keys,
            hot.owners,
            hot.stored,
            hot.numbers,
            hot.values,
            hot.changes,
            hot.layer,
            prefix=prefix,
            layout=layout,
            view=view,
        )

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.view is not None:
            pairs = self.view.scan(self.prefix)
            yield from tables_of(self.name, "entries", self.layout, pairs, max_parallelism)
        table = self.table(max_parallelism)
        if table is not None:
            yield table
