"""What is recorded of the inputs of operators, as files.

    <path>/<job id>/<operator id>/<subtask>/attempt-<n>/
        operator.json               whose it is: for people and tools
        operator.pickle             the operator as it was shipped, and the job's configuration
        base-<k>/                   its state at a checkpoint, in the format of a savepoint
        part-<k>-<n>-<xxh64>.arrow  what it got since, in order; n counts over all k
        failed.json                 why it failed, once it has

Parts are Arrow IPC files, a row for each thing that came (`SCHEMA`); `engine.task.recorder` writes
them. They are there whole or not at all where the filesystem keeps that promise; where it does not,
the checksum in the name tells a torn one. Bases and parts below the last complete checkpoint's are
removed, the base first: what is there of a base is all that is needed with the parts from it on.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from ..core.errors import CorruptCheckpointError
from ..core.ids import EVEN, CheckpointId, Deal, KeyGroupRange, OperatorId, TaskId
from ..state.increments import EVERY_GROUP
from ..state.key_groups import range_for
from .folder_storage import FolderStorage
from .handles import DatabaseHandle, FileHandle, KeyedHandle, OperatorSnapshot, SubtaskSnapshot
from .ipc_files import to_ipc_file
from .manifest import Manifest
from .names import MANIFEST, safe_name
from .storage import CheckpointStorage, Data, checksum, located

FORMAT: Final = 1

SCHEMA: Final = pa.schema(
    [
        ("kind", pa.dictionary(pa.int32(), pa.string())),
        ("port", pa.int32()),
        ("number", pa.int64()),
        ("data", pa.large_binary()),
        ("stamps", pa.large_binary()),
    ]
)

OPERATOR: Final = "operator.json"
PICKLE: Final = "operator.pickle"
FAILED: Final = "failed.json"

_PART: Final = re.compile(r"part-(\d+)-(\d+)-([0-9a-f]{16})\.arrow")
_BASE: Final = re.compile(r"base-(\d+)")
_ATTEMPT: Final = re.compile(r"attempt-(\d+)")

_FILES: Final = CheckpointId(0)
"""What files of a recording are said to be of."""


@dataclass(frozen=True, order=True)
class Part:
    """By its name: behind which base it comes, and its number."""

    base: int
    number: int
    checksum: str

    @property
    def name(self) -> str:
        return f"part-{self.base}-{self.number}-{self.checksum}.arrow"


class RecordingFolder(FolderStorage):
    """One attempt of one subtask of an operator."""

    def names(self) -> tuple[str, ...]:
        """Files and folders in it."""
        return self._names_in(self.folder)

    def parts(self) -> list[Part]:
        """In their order."""
        found = (_PART.fullmatch(name) for name in self.names())
        parts = [Part(int(one[1]), int(one[2]), one[3]) for one in found if one is not None]
        return sorted(parts, key=lambda part: part.number)

    def bases(self) -> list[int]:
        """All of which anything is there, ascending."""
        found = (_BASE.fullmatch(name) for name in self.names())
        return sorted(int(one[1]) for one in found if one is not None)

    def base(self, number: int) -> FolderStorage:
        return FolderStorage(self.filesystem, posixpath.join(self.folder, f"base-{number}"))

    def put(self, name: str, data: Data) -> None:
        """CheckpointError if it cannot be written."""
        self.write_file(_FILES, name, data)

    def write_part(self, base: int, number: int, rows: list[tuple[Any, ...]]) -> Part:
        """Rows as of SCHEMA."""
        columns = [
            pa.array(list(column), type=field.type)
            for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ]
        data = to_ipc_file(pa.table(columns, schema=SCHEMA))
        part = Part(base, number, checksum(data))
        self.put(part.name, data)
        return part

    def read_part(self, part: Part) -> pa.Table:
        """CorruptCheckpointError for one that is torn or altered."""
        where = posixpath.join(self.folder, part.name)
        data = self._read(where, CorruptCheckpointError)
        if checksum(data) != part.checksum:
            raise CorruptCheckpointError(f"{where}: torn or altered: its xxh64 is another")
        try:
            table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        except (pa.ArrowInvalid, OSError) as error:
            raise CorruptCheckpointError(f"{where}: not an Arrow IPC file: {error}") from error
        if table.schema != SCHEMA:
            raise CorruptCheckpointError(f"{where}: its columns are {table.schema.names}")
        return table

    def drop_before(self, base: int) -> None:
        """All bases below this one, and the parts behind them. CheckpointError."""
        for older in [one for one in self.bases() if one < base]:
            self.base(older).delete(_FILES)
        for part in [one for one in self.parts() if one.base < base]:
            path = posixpath.join(self.folder, part.name)
            with self._failing("delete", path):
                self._retried(lambda path=path: self._remove(path))  # type: ignore[misc]

    def clear(self) -> None:
        """All of it."""
        with self._failing("delete", self.folder):
            self._retried(lambda: self._removed(self.folder))


class RecordedSubtask:
    """The attempts of one subtask of an operator."""

    def __init__(self, filesystem: Any, folder: str) -> None:
        self._folder = FolderStorage(filesystem, folder)

    def attempts(self) -> list[int]:
        """Ascending."""
        found = (_ATTEMPT.fullmatch(name) for name in _names(self._folder))
        return sorted(int(one[1]) for one in found if one is not None)

    def attempt(self, number: int) -> RecordingFolder:
        folder = posixpath.join(self._folder.folder, f"attempt-{number}")
        return RecordingFolder(self._folder.filesystem, folder)

    def begin(self, number: int) -> RecordingFolder:
        """The folder for a new attempt, empty. Of the others the last one stays, and the last that
        failed. CheckpointError."""
        others = [one for one in self.attempts() if one != number]
        failed = [one for one in others if FAILED in self.attempt(one).names()]
        kept = {*others[-1:], *failed[-1:]}
        for one in [*(other for other in others if other not in kept), number]:
            self.attempt(one).clear()
        return self.attempt(number)


def recorded_subtask(
    location: str, job_id: str, operator: OperatorId, subtask: int
) -> RecordedSubtask:
    """What is recorded below an fsspec URL or path of one subtask of an operator."""
    filesystem, root = located(location, "record")
    parts = (root.rstrip("/") or "/", job_id, safe_name(operator), str(subtask))
    return RecordedSubtask(filesystem, posixpath.join(*parts))


def recorded_subtasks(location: str) -> Iterator[tuple[RecordedSubtask, str]]:
    """All that there is at an fsspec URL or path that was recorded to, or the folder of one job in
    it; with their folders."""
    filesystem, root = located(location, "record")
    root = root.rstrip("/") or "/"
    for depth in (2, 3):  # below a job's folder: operator, subtask; or job, operator, subtask
        for folder in _below(filesystem, root, depth):
            found = RecordedSubtask(filesystem, folder)
            if found.attempts():
                yield found, folder


def _below(filesystem: Any, folder: str, depth: int) -> Iterator[str]:
    if depth == 0:
        yield folder
        return
    here = FolderStorage(filesystem, folder)
    for name in sorted(here._names_in(folder, folders=True)):
        yield from _below(filesystem, posixpath.join(folder, name), depth - 1)


def _names(folder: FolderStorage) -> tuple[str, ...]:
    return folder._names_in(folder.folder)


def said(folder: RecordingFolder, name: str) -> dict[str, Any]:
    """A JSON file of the recording. CorruptCheckpointError if it is none."""
    data = folder.get(name)
    try:
        found = json.loads(data)
    except ValueError as error:
        found = error
    if not isinstance(found, dict):
        raise CorruptCheckpointError(f"{folder.folder}/{name}: not a JSON object")
    return found


def has_manifest(base: FolderStorage) -> bool:
    return MANIFEST in _names(base)


def copied(
    storage: CheckpointStorage,
    manifest: Manifest,
    operator: OperatorId,
    task: TaskId,
    parallelism: int,
    target: FolderStorage,
    deal: Deal = EVEN,
) -> Manifest:
    """Copy what `task` of `parallelism`, with its key groups of `deal`, is restored from, of one
    operator, into `target`: the manifest to publish there. Raises what reading and writing files
    does."""
    shape = manifest.shape(operator)
    kept: list[SubtaskSnapshot] = []
    number = 0

    def copy(handle: FileHandle) -> FileHandle:
        nonlocal number
        data = storage.read_file(manifest.checkpoint_id, handle)
        number += 1
        return target.write_file(manifest.checkpoint_id, f"copied-{number}.bin", data)

    for subtask in manifest.subtasks if shape is not None else ():
        for one in subtask.operators:
            if one.operator != operator or shape is None:
                continue
            most, former = shape.max_parallelism, subtask.task.subtask
            mine = range_for(task.subtask, parallelism, most, deal)
            theirs = range_for(former, shape.parallelism, most, shape.deal)
            near = theirs.first <= mine.last and mine.first <= theirs.last
            keyed = tuple(
                replace(handle, file=copy(handle.file))
                for handle in one.keyed
                if near and _concerns(handle, mine)
            )
            held = one.operator_state
            found = OperatorSnapshot(
                operator,
                keyed,
                None if held is None else replace(held, file=copy(held.file)),
                _database(one.database, copy) if near else None,
            )
            kept.append(SubtaskSnapshot(subtask.task, (found,)))
    shapes = tuple(one for one in manifest.operators if one.operator == operator)
    return replace(manifest, operators=shapes, subtasks=tuple(kept), enumerators={}, savepoint=True)


def _concerns(handle: KeyedHandle, mine: KeyGroupRange) -> bool:
    return any(group == EVERY_GROUP or group in mine for group, _, _ in handle.groups)


def _database(database: DatabaseHandle | None, copy: Any) -> DatabaseHandle | None:
    if database is None:
        return None
    files = tuple((name, copy(file)) for name, file in database.files)
    hidden = None if database.hidden is None else copy(database.hidden)
    return replace(database, files=files, hidden=hidden)
