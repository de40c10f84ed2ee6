"""Snapshots of values that lie in memory and in RocksDB.

The synchronous part copies what is in memory, as of any row-face state, and takes a view of
RocksDB, which copies nothing. Encoded, RocksDB's entries come first, in tables of bounded size and
in order of key groups; entries that were in memory count instead of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from ...row_tables import RowFreeze, freeze
from ...stored import StateTable
from ..database.freeze import PieceFreeze
from ..database.layouts import LAYOUT, tables_of
from ..database.task_database import DatabaseView
from .spaces import ColdState


@dataclass(frozen=True)
class ColdFreeze(PieceFreeze):
    """A point in time of one state. `cold`: None if nothing lies in RocksDB, or if the snapshot has
    RocksDB's files."""

    state: ColdState
    hot: RowFreeze
    cold: DatabaseView | None

    @staticmethod
    def of(state: ColdState) -> ColdFreeze:
        """After `ColdState.begin_snapshot`."""
        view = None if state.database.by_files else state.database.view()
        return ColdFreeze(state, freeze(state.name, state.kind, state.in_memory_alone()), view)

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.cold is not None:
            state, shown = self.state, frozenset(self.shown())
            pairs = (pair for pair in self.cold.scan(state.prefix) if pair[0] not in shown)
            layout = {LAYOUT: "entries"}
            yield from tables_of(state.name, state.kind, layout, pairs, max_parallelism)
        table = self.hot.table(max_parallelism)
        if table is not None:
            yield table

    def shown(self) -> Iterator[bytes]:
        """Places in RocksDB that do not count: their keys are in memory. On any thread."""
        keys = iter(self.hot.keys)
        for namespace, count in self.hot.namespaces:
            yield from self.state.places(namespace, islice(keys, count))
