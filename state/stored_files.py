"""A local database of state as a checkpoint holds it: its files, and what lies in them. A leaf of
`state`: checkpoints know of nothing else of the database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..core.ids import KeyGroupRange

IMMUTABLE: Final = ".sst"
"""How names of files end that never change: later checkpoints may use them, too."""


@dataclass(frozen=True)
class StoredState:
    """A state of which entries lie in a database. `prefix`: what their places begin with, 2 bytes;
    `layout`: how they are to be read (`rocks.layouts`)."""

    name: str
    kind: str
    prefix: bytes
    layout: dict[str, str] = field(default_factory=dict)


class StoredFiles(ABC):
    """A point in time of a database, beside the tables of a snapshot: what these hold of a key
    counts, not what lies in the database. For one writer, on any thread."""

    states: tuple[StoredState, ...]

    @abstractmethod
    def hold(self) -> None:
        """Make the files last; the database may be written to from here on. As early as can be: the
        task may wait for it."""

    @abstractmethod
    def files(self) -> Mapping[str, Path]:
        """By name, all files that have to be kept. StateError if they cannot be had."""

    @abstractmethod
    def remove(self) -> None:
        """The files are not needed any more, whether anybody asked for them or not."""

    @abstractmethod
    def hidden(self) -> list[bytes]:
        """Places in the database that do not count, for the tables hold their keys; once, in no
        order: to sort them took more than half of a checkpoint's time."""


@dataclass(frozen=True)
class FormerDatabase:
    """That of one former subtask, which had these key groups. `fetch` puts the files into a folder,
    which it makes; `hidden`: places that do not count, of entries which the tables hold."""

    states: tuple[StoredState, ...]
    fetch: Callable[[Path], None]
    groups: KeyGroupRange
    hidden: frozenset[bytes] = frozenset()


@dataclass(frozen=True)
class InheritedFiles:
    """What a restored backend begins with: databases with key groups of its own, and others.
    `same_program`: it wrote them, or had them before."""

    databases: tuple[FormerDatabase, ...]
    same_program: bool

    def as_of(self, groups: KeyGroupRange) -> tuple[FormerDatabase, ...]:
        """The databases for a subtask with these key groups, that with the most of them first."""

        def common(former: FormerDatabase) -> int:
            first = max(former.groups.first, groups.first)
            return min(former.groups.last, groups.last) - first

        return tuple(sorted(self.databases, key=common, reverse=True))
