"""Snapshots of state that expires and lies in memory and in RocksDB (`expiring`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...expiry import Expiry
from ...row_tables import RowFreeze
from ...stored import StateTable
from ...stored_files import StoredState
from ..database.entry_bytes import entry_parts, joined_parts
from ..database.freeze import PieceFreeze
from ..database.layouts import tables_of
from ..database.task_database import DatabaseView
from .stamped_layout import stamped_bytes, stamped_parts


@dataclass(frozen=True)
class StampedFreeze(PieceFreeze):
    """A point in time of one state. `cold`: None if nothing lies in RocksDB, or if the snapshot has
    RocksDB's files; `cutoff`: what was stamped then or before has expired."""

    state: StoredState
    expiry: Expiry
    hot: RowFreeze
    shown: Callable[[], Iterable[bytes]]
    cold: DatabaseView | None
    cutoff: int

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        if self.cold is not None:
            state, shown = self.state, frozenset(self.shown())
            pairs = self._live(
                pair for pair in self.cold.scan(state.prefix) if pair[0] not in shown
            )
            yield from tables_of(state.name, state.kind, state.layout, pairs, max_parallelism)
        table = self.hot.table(max_parallelism)
        if table is not None:
            yield table

    def _live(self, pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Without what has expired."""
        gone, cutoff = self.expiry.gone, self.cutoff
        for place, data in pairs:
            namespace, key, rest = entry_parts(data)
            parts = list(stamped_parts(rest))
            live = [part for part in parts if not gone(part[0], cutoff)]
            if len(live) == len(parts):
                yield place, data
            elif live:
                yield place, joined_parts(namespace, key, stamped_bytes(live))
