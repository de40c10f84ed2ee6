"""What snapshots have of RocksDB: tables of a state, piece by piece, or the files as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...stored import StateTable
from ...stored_files import StoredFiles, StoredState
from .files import is_needed
from .held_files import HeldFiles
from .layouts import shadowed, tables_of
from .task_database import DatabaseView


class PieceFreeze(ABC):
    """A point in time of one state, encoded as several tables."""

    @abstractmethod
    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        """Once, on any thread; each sorted by key group."""


@dataclass(frozen=True)
class InheritedFreeze(PieceFreeze):
    """A point in time of a state that came with files and was never asked for."""

    state: StoredState
    hidden: frozenset[bytes]
    view: DatabaseView
    above: tuple[StateTable, ...]
    """What was restored of the state beside the files."""

    def table(self, max_parallelism: int) -> StateTable | None:
        raise AssertionError("asked for its tables")

    def tables(self, max_parallelism: int) -> Iterator[StateTable]:
        state = self.state
        more = shadowed(state.layout, state.prefix, self.above, max_parallelism)
        hidden = self.hidden | more
        pairs = (pair for pair in self.view.scan(state.prefix) if pair[0] not in hidden)
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
        return list(self._hidden.union(*[places() for places in self._shown]))

    def hold(self) -> None:
        self._held.link()

    def files(self) -> dict[str, Path]:
        return {path.name: path for path in sorted(self._held.files().iterdir()) if is_needed(path)}

    def remove(self) -> None:
        self._held.give_up()
        self._held.remove()
