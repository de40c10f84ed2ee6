"""Snapshots of states that lie in memory and in RocksDB.

The synchronous part copies what is in memory, as of any row-face state, and takes a view of
RocksDB, which copies nothing. Encoded, RocksDB's entries come first, in tables of bounded size and
in order of key groups; entries that were in memory count instead of theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..row_tables import RowFreeze, freeze
from ..stored import StateTable
from ..stored_files import StoredFiles, StoredState
from .database import DatabaseView
from .files import is_needed
from .held_files import HeldFiles
from .layouts import LAYOUT, tables_of
from .spaces import ColdState


class PieceFreeze(ABC):
    """A point in time of one state, encoded as several tables."""

    @abstractmethod
    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        """Once, on any thread; each sorted by key group."""


@dataclass(frozen=True)
class ColdFreeze(PieceFreeze):
    """A point in time of one state. `cold`: None if nothing lies in RocksDB, or if the snapshot has
    RocksDB's files."""

    state: ColdState
    hot: RowFreeze
    cold: DatabaseView | None

    @staticmethod
    def of(state: ColdState) -> ColdFreeze:
        state.begin_snapshot()
        spaces = {namespace: space.merged() for namespace, space in state.spaces.items()}
        view = None if state.database.by_files else state.database.view()
        return ColdFreeze(state, freeze(state.name, state.kind, spaces), view)

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


@dataclass(frozen=True)
class InheritedFreeze(PieceFreeze):
    """A point in time of a state that came with files and was never asked for."""

    state: StoredState
    hidden: frozenset[bytes]
    view: DatabaseView

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        state = self.state
        pairs = (pair for pair in self.view.scan(state.prefix) if pair[0] not in self.hidden)
        yield from tables_of(state.name, state.kind, state.layout, pairs, max_parallelism)


class FrozenFiles(StoredFiles):
    """All files of an operator's RocksDB at one moment."""

    def __init__(
        self,
        held: HeldFiles,
        states: tuple[StoredState, ...],
        shown: Sequence[Callable[[], Iterable[bytes]]],
        hidden: frozenset[bytes],
    ) -> None:
        """`shown`: of each state that is in use; `hidden`: of the others."""
        self.states = states
        self._held = held
        self._shown = shown
        self._hidden = hidden

    def hidden(self) -> list[bytes]:
        return sorted(self._hidden.union(*[places() for places in self._shown]))

    def hold(self) -> None:
        self._held.link()

    def files(self) -> dict[str, Path]:
        return {path.name: path for path in sorted(self._held.files().iterdir()) if is_needed(path)}

    def remove(self) -> None:
        self._held.give_up()
        self._held.remove()
