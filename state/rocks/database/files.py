"""A database as a checkpoint has it: files, and what lies in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ....core.errors import CorruptCheckpointError, StateError
from ....core.ids import KeyGroupRange
from ...stored import StateTable
from ...stored_files import StoredState
from .layouts import Pair, shadowed, tables_of

_UNNEEDED: Final = re.compile(r"LOG.*|LOCK|IDENTITY|OPTIONS-[0-9]+|[0-9]+[.]log")
"""What RocksDB makes anew, or of which nothing is kept: there is no log of writes."""


def is_needed(path: Path) -> bool:
    """Whether a file is of the database."""
    return _UNNEEDED.fullmatch(path.name) is None


class DatabaseFiles:
    """The database in a folder, to be read and never written to. `where` names it in errors."""

    def __init__(self, folder: Path, where: str) -> None:
        from rocksdict import AccessType, Options, Rdict

        self._where = where
        try:
            self._db: Any = Rdict(
                str(folder), Options(raw_mode=True), access_type=AccessType.read_only()
            )
        except Exception as error:
            raise CorruptCheckpointError(f"{where}: RocksDB cannot open it: {error}") from error

    def close(self) -> None:
        self._db.close()

    def tables(
        self,
        state: StoredState,
        groups: KeyGroupRange,
        max_parallelism: int,
        hidden: frozenset[bytes] = frozenset(),
        above: Iterable[StateTable] = (),
    ) -> Iterator[StateTable]:
        """The rows of some key groups, but for `hidden` places and those of keys that the tables
        `above` hold. CorruptCheckpointError if the files or the entries are not as they must be."""
        try:
            hidden |= shadowed(state.layout, state.prefix, above, max_parallelism)
            pairs = (pair for pair in self.pairs(state.prefix, groups) if pair[0] not in hidden)
            yield from tables_of(state.name, state.kind, state.layout, pairs, max_parallelism)
        except StateError as error:
            raise CorruptCheckpointError(f"{self._where}: {error}") from error

    def pairs(self, prefix: bytes, groups: KeyGroupRange) -> Iterator[Pair]:
        """All entries of a state in some key groups, in order of their places."""
        first, last = [prefix + group.to_bytes(2, "big") for group in (groups.first, groups.last)]
        place = first
        for place, data in self._db.items(from_key=first):  # half as long as an iterator's steps
            if place[: len(last)] > last:
                return
            yield place, data
        self._check_end(place)

    def _check_end(self, place: bytes) -> None:
        """Nothing is behind a place: `items` ends as well where RocksDB cannot read on."""
        iterator = self._db.iter()
        try:
            iterator.seek(place)
            if iterator.valid() and iterator.key() == place:
                iterator.next()
            iterator.status()
        except Exception as error:
            raise CorruptCheckpointError(f"{self._where}: {error}") from error
        if iterator.valid():
            raise CorruptCheckpointError(f"{self._where}: entries behind {place!r} were left out")


def hidden_of(prefix: bytes, places: Iterable[bytes]) -> frozenset[bytes]:
    """Those of the places that are of one state."""
    return frozenset(place for place in places if place.startswith(prefix))
