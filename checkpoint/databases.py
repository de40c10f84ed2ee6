"""Local databases in checkpoints: which of their files are written, and how they are read.

A task's RocksDB is a folder of files of which most never change. Those that the newest complete
checkpoint of the task holds are referred to (`increments`); new ones become shared files, and the
few small ones that say which files make the database are the checkpoint's own.

    RocksDB again, same parallelism      the files are put into a folder, and opened as they are
    RocksDB again, another one           likewise those of the former task with the most of the key
                                         groups, and all others' entries deleted, by range; files of
                                         further tasks are opened beside, and the entries of the key
                                         groups copied as they are, in bulk
    all else                             they are opened beside, and read as tables
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

from ..core.errors import CheckpointError, CorruptCheckpointError, StateError
from ..core.ids import EVEN, CheckpointId, Deal, KeyGroupRange, OperatorId
from ..state.key_groups import range_for
from ..state.stored import StateTable
from ..state.stored_files import (
    IMMUTABLE,
    FormerDatabase,
    InheritedFiles,
    StoredFiles,
    StoredState,
)
from .handles import DatabaseHandle, FileHandle
from .increments import Files
from .ipc_files import FilesFrom, from_ipc_file
from .manifest import Manifest
from .transfers import Pending
from .uploads import Uploads

_HIDDEN: Final = pa.schema([("place", pa.large_binary())])


Above: TypeAlias = Callable[[str], Iterable[StateTable]]
"""By name of a state, the whole tables that a snapshot has of it beside the database: they hold of
each key what counts. Of all key groups that are read."""


class DatabaseFilesFrom(FilesFrom, Protocol):
    """What the files of databases are read from. Each as of a storage."""

    def link_file(self, checkpoint_id: CheckpointId, handle: FileHandle, path: Path) -> bool: ...


class DatabaseUpload:
    """The files of a local database that no earlier checkpoint holds, while they are written."""

    def __init__(self, uploads: Uploads, name: str, stored: StoredFiles, known: Files) -> None:
        """Begin. `name`: what names of files begin with; `known`: those that are there. The local
        files are not needed any more then: what is still to be written is open."""
        self._states = stored.states
        self._files: list[tuple[str, FileHandle | Pending[FileHandle]]] = []
        for local, path in stored.files().items():
            handle = known.get(local) or _begun(
                uploads, f"{name}-{local}", path, local.endswith(IMMUTABLE)
            )
            self._files.append((local, handle))
        stored.remove()
        places = stored.hidden()
        self._hidden: Pending[FileHandle] | None = None
        if places:
            table = pa.table([pa.array(places, pa.large_binary())], schema=_HIDDEN)
            self._hidden = uploads.table(f"{name}-hidden.arrow", table)

    def handle(self) -> DatabaseHandle:
        """When all is written; raises what failed."""
        files = tuple(
            (local, file if isinstance(file, FileHandle) else file.result())
            for local, file in self._files
        )
        hidden = None if self._hidden is None else self._hidden.result()
        return DatabaseHandle(files, self._states, hidden)


def _begun(uploads: Uploads, name: str, path: Path, shared: bool) -> Pending[FileHandle]:
    try:
        return uploads.file(name, path, shared)
    except OSError as error:
        raise CheckpointError(
            f"the local database's file {path} cannot be read ({error}): the task may have ended"
        ) from error


def inherited(
    storage: DatabaseFilesFrom,
    manifest: Manifest,
    operator: OperatorId,
    subtask: int,
    parallelism: int,
    max_parallelism: int,
    same_program: bool = True,
    deal: Deal = EVEN,
) -> InheritedFiles | None:
    """The databases that former subtasks had with key groups of this one, which has those of
    `deal`. None if there is none, or
    if former subtasks had a state in layouts that are not read together: then they are read as
    tables."""
    shape, snapshots = manifest.shape(operator), manifest.snapshots(operator)
    if shape is None or shape.max_parallelism != max_parallelism:
        return None
    mine = range_for(subtask, parallelism, max_parallelism, deal)
    found = []
    for former, snapshot in enumerate(snapshots[: shape.parallelism]):
        theirs = range_for(former, shape.parallelism, max_parallelism, shape.deal)
        if theirs.last < mine.first or mine.last < theirs.first or snapshot.database is None:
            continue
        found.append(_former(storage, manifest.checkpoint_id, snapshot.database, theirs))
    states: dict[str, list[StoredState]] = {}
    for one in found:
        for state in one.states:
            states.setdefault(state.name, []).append(state)
    if not found or any(_differ(some) for some in states.values()):
        return None
    return InheritedFiles(tuple(found), same_program)


def _differ(states: list[StoredState]) -> bool:
    from ..state.rocks.database.layouts import together

    kinds = {state.kind for state in states}
    return len(kinds) > 1 or together(state.layout for state in states) is None


def _former(
    storage: DatabaseFilesFrom,
    checkpoint_id: CheckpointId,
    database: DatabaseHandle,
    groups: KeyGroupRange,
) -> FormerDatabase:
    def fetch(folder: Path) -> None:
        fetch_files(storage, checkpoint_id, database, folder)

    hidden = frozenset(hidden_places(storage, checkpoint_id, database))
    return FormerDatabase(database.states, fetch, groups, hidden)


def fetch_files(
    storage: DatabaseFilesFrom, checkpoint_id: CheckpointId, database: DatabaseHandle, folder: Path
) -> None:
    """All files, each found to be as it was written, in a folder that is made."""
    try:
        folder.mkdir()
        for name, handle in database.files:
            immutable = name.endswith(IMMUTABLE)
            if immutable and storage.link_file(checkpoint_id, handle, folder / name):
                continue
            (folder / name).write_bytes(storage.read_file(checkpoint_id, handle))
    except OSError as error:
        raise StateError(
            f"the files of a local database cannot be put into {folder} ({error}): see to space "
            "and permissions there, or set state.backend.rocksdb.localdir to another folder"
        ) from error


def hidden_places(
    storage: DatabaseFilesFrom, checkpoint_id: CheckpointId, database: DatabaseHandle
) -> list[bytes]:
    """Places in the database that do not count."""
    if database.hidden is None:
        return []
    table = from_ipc_file(storage, checkpoint_id, database.hidden)
    if table.schema != _HIDDEN or table.column(0).null_count:
        raise CorruptCheckpointError(
            f"{database.hidden.path}: expected a column of places, found {table.schema}"
        )
    places: list[bytes] = table.column(0).to_pylist()
    return places


@contextmanager
def opened(
    storage: DatabaseFilesFrom, checkpoint_id: CheckpointId, database: DatabaseHandle, where: str
) -> Iterator[OpenedDatabase]:
    """The database in a temporary folder, to be read. `where` names it in errors."""
    hidden = hidden_places(storage, checkpoint_id, database)
    with tempfile.TemporaryDirectory(prefix="strom-database-") as made:
        folder = Path(made) / "db"
        fetch_files(storage, checkpoint_id, database, folder)
        found = OpenedDatabase(folder, database, hidden, where)
        try:
            yield found
        finally:
            found.close()


class OpenedDatabase:
    """The entries that count of one database."""

    def __init__(
        self, folder: Path, handle: DatabaseHandle, hidden: list[bytes], where: str
    ) -> None:
        from ..state.rocks.database.files import DatabaseFiles

        self._files = DatabaseFiles(folder, where)
        self._handle = handle
        self._hidden = hidden

    def tables(
        self, groups: KeyGroupRange, max_parallelism: int, above: Above, name: str | None = None
    ) -> Iterator[StateTable]:
        """The rows of all states, or of one, in some key groups."""
        for state in self._handle.states:
            if name is None or state.name == name:
                own = frozenset(place for place in self._hidden if place[:2] == state.prefix)
                more = above(state.name)
                yield from self._files.tables(state, groups, max_parallelism, own, more)

    def close(self) -> None:
        self._files.close()


def read_database(
    storage: DatabaseFilesFrom,
    checkpoint_id: CheckpointId,
    database: DatabaseHandle,
    groups: KeyGroupRange,
    max_parallelism: int,
    above: Above,
    name: str | None = None,
) -> list[StateTable]:
    """The rows that count of some key groups of all states, or of one, as whole tables.
    CorruptCheckpointError for bad files."""
    first = database.files[0][1].path if database.files else "no file"
    where = f"the local database of checkpoint {checkpoint_id} ({first} and others)"
    with opened(storage, checkpoint_id, database, where) as found:
        return [*found.tables(groups, max_parallelism, above, name)]
