"""What the backend asks of a state that is one object: timers, tables, entries, buffers, rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Protocol

from ..core.arrays import Bools
from .increments import Since
from .stored import StateTable


class Freeze(Protocol):
    """A point in time of one state, to be encoded later on any thread."""

    def table(self, max_parallelism: int) -> StateTable | None: ...


class WholeState(ABC):
    """A state of which one object is the whole."""

    @abstractmethod
    def freeze(self, name: str) -> Freeze:
        """The synchronous half of a snapshot."""

    def freeze_since(self, name: str, since: Since) -> tuple[Freeze, bool]:
        """As `freeze`, where earlier snapshots may be continued: what changed, and True; or all of
        it, and False, as states do that record no changes."""
        return self.freeze(name), False

    @abstractmethod
    def restore(self, tables: Iterable[StateTable]) -> None:
        """Into an empty state, once."""

    @abstractmethod
    def mark_objects(self, held: Bools) -> None:
        """Set the codes of all objects that are in its keys (`object_keys`): codes that no state
        sets are forgotten, and given to other keys."""


class WholeWithoutCodes(WholeState):
    """One that holds no codes of objects: the backend refuses columns of them."""

    def mark_objects(self, held: Bools) -> None:
        return None
