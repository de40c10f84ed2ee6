"""Files that are written hidden and published by a rename.

    <path>/.staging/<job>/<operator>-<tag>/<attempt>-<subtask>-<random>-<n>.<suffix>  being written
    <path>/.staging/<job>/<operator>-<tag>/held/...                                to be merged
    <path>/part-<operator>-<subtask>-<checkpoint>-<seq>-<tag>.<suffix>             published

The staged name is unique: two attempts, also one thought dead, never write to one file. The
published name is fixed when the file is prepared, so publishing twice is publishing once. Its tag
is a hash of job and operator id: a later job writing into the same folder starts again with
checkpoint 1 and must add files, not replace them.

Leftovers. After a restore, the committables of former subtasks are dealt out to all new ones, so
no subtask can tell which staged files of a dead attempt still wait for another subtask to publish
them. But once a checkpoint of this attempt has completed, every subtask has recovered; what
is still staged under an older attempt then belongs to nobody. Subtask i of p removes the files of
former subtasks i, i + p, i + 2p, ...; a single subtask need not wait. Held files are no leftovers:
a file is held only when a checkpoint that names it is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

from ...api.connectors.base import WriterContext
from ...core.errors import ConnectorError
from .paths import filesystem, is_local, make_folder, sync_folders

_CREATE_TRIES = 3
"""A writer that closes may take an empty folder away between its making and its use."""

HELD = "held"

_STAGED = re.compile(r"(\d+)-(\d+)-[0-9a-f]+-\d+\.\w+")


@dataclass(frozen=True, slots=True)
class FileCommittable:
    """A complete staged file and the name to publish it under; paths within the filesystem."""

    staged: str
    final: str
    rows: int
    size: int


class StagingArea:
    """Names, publishes and clears the files of one sink subtask."""

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any] | None,
        suffix: str,
        context: WriterContext,
        prefix: str = "part",
        ending: str | None = None,
    ) -> None:
        """prefix, ending: of published names; ending None: a dot and `suffix`."""
        self.fs, self.root = filesystem(url, options)
        self.root = self.root.rstrip("/")
        self._context = context
        self._suffix = suffix
        self._prefix = prefix
        self._ending = f".{suffix}" if ending is None else ending
        self._operator = _safe(context.operator_id)
        self._tag = _tag(context.job_id, context.operator_id)
        operator = f"{self._operator}-{self._tag}"
        self.folder = f"{self.root}/.staging/{_safe(context.job_id)}/{operator}"
        self._writer = uuid4().hex[:8]
        self._opened = count()
        """Files are created on several threads."""
        self._unsettled: set[str] = set()
        """Local folders in which files were published since the last `settle`."""

    def create(self) -> tuple[str, Any]:
        """A new staged file, open for writing."""
        who = f"{self._context.attempt}-{self._context.subtask}-{self._writer}"
        path = f"{self.folder}/{who}-{next(self._opened)}.{self._suffix}"
        for _ in range(_CREATE_TRIES - 1):
            make_folder(self.fs, self.folder)
            try:
                return path, self.fs.open(path, "wb")
            except FileNotFoundError:
                continue
        make_folder(self.fs, self.folder)
        return path, self.fs.open(path, "wb")

    def seal(self, file: Any) -> None:
        """Close a complete file; afterwards a crash of the machine does not lose it."""
        if is_local(self.fs):
            file.flush()
            os.fsync(file.fileno())
            sync_folders([self.folder])
        file.close()

    def final_path(self, checkpoint_id: int, sequence: int, folder: str = "") -> str:
        """Where file number `sequence` of this subtask and checkpoint is published; `folder` ends
        with a slash unless empty."""
        subtask = self._context.subtask
        name = f"{self._prefix}-{self._operator}-{subtask}-{checkpoint_id}-{sequence}-{self._tag}"
        return f"{self.root}/{folder}{name}{self._ending}"

    def held_path(self, staged: str) -> str:
        """Where a staged file lies while it waits to be merged."""
        return f"{staged.rsplit('/', 1)[0]}/{HELD}/{staged.rsplit('/', 1)[-1]}"

    def exists(self, path: str) -> bool:
        """Whether it is there now, whatever a filesystem remembers of it."""
        if not is_local(self.fs):
            self.fs.invalidate_cache()
        return self._exists(path)

    def _exists(self, path: str) -> bool:
        """fsspec's own `exists` says no where it cannot tell."""
        try:
            self.fs.info(path)
        except FileNotFoundError:
            return False
        return True

    def publish(self, committable: FileCommittable) -> None:
        """Idempotent. Atomic where the filesystem renames; on object stores a copy, which appears
        as a whole, and a removal. A crash of the machine may undo it until `settle`."""
        staged, final = committable.staged, committable.final
        folder = final.rsplit("/", 1)[0]
        if is_local(self.fs):
            self._unsettled.add(folder)
        for left in reversed(range(_CREATE_TRIES)):
            make_folder(self.fs, folder)
            try:
                if is_local(self.fs):
                    os.replace(staged, final)
                else:
                    self.fs.mv(staged, final)
                return
            except FileNotFoundError as error:
                if self.exists(final):
                    return
                if left and self.exists(staged):
                    continue
                raise ConnectorError(
                    f"cannot publish '{final}': neither it nor its staged file '{staged}' exists. "
                    f"Its {committable.rows} rows are lost; restore from an older checkpoint, and "
                    "do not remove '.staging' folders of jobs that may be restored"
                ) from error

    def settle(self) -> None:
        """Behind `publish`, and before what was published is forgotten: afterwards a crash of the
        machine does not undo it."""
        folders, self._unsettled = self._unsettled, set()
        sync_folders(folders)

    def revoke(self, after: int) -> None:
        """Remove this job's published files of checkpoints later than `after`, in the names of
        which former subtasks of this one's share stand."""
        self.fs.invalidate_cache()
        operator = re.escape(self._operator)
        prefix = re.escape(self._prefix)
        mine = re.compile(rf"{prefix}-{operator}-(\d+)-(\d+)-\d+-{self._tag}.*")
        for path in self.fs.find(self.root):
            match = mine.fullmatch(path.rsplit("/", 1)[-1])
            if match and self._mine(int(match[1])) and int(match[2]) > after:
                self.discard(path)

    def discard(self, path: str) -> None:
        """Remove a staged file, if it is there."""
        try:
            self.fs.rm_file(path)
        except FileNotFoundError:
            return

    def sweep(self) -> None:
        """Remove what dead attempts left; see the module. Removes emptied folders as well."""
        self.fs.invalidate_cache()
        try:
            paths = self.fs.ls(self.folder, detail=False)
        except FileNotFoundError:
            return
        for path in paths:
            match = _STAGED.fullmatch(path.rsplit("/", 1)[-1])
            if match is None:
                continue
            attempt, subtask = int(match[1]), int(match[2])
            if attempt < self._context.attempt and self._mine(subtask):
                self.discard(path)

    def remove_empty_folders(self) -> None:
        """Take away the staging folders if this writer was the last one with files there."""
        with suppress(OSError):
            self.fs.rmdir(f"{self.folder}/{HELD}")
        for folder in (self.folder, *_parents(self.folder, 2)):
            try:
                if self.fs.ls(folder, detail=False):
                    return
                self.fs.rmdir(folder)
            except OSError:
                return

    def _mine(self, subtask: int) -> bool:
        return subtask % self._context.parallelism == self._context.subtask


def published_name(job_id: str, operator_id: str) -> re.Pattern[str]:
    """What names of files match that this job's sink has published; group 1: the checkpoint."""
    operator, tag = re.escape(_safe(operator_id)), _tag(job_id, operator_id)
    return re.compile(rf".*-{operator}-\d+-(\d+)-\d+-{tag}.*")


def _tag(job_id: str, operator_id: str) -> str:
    return hashlib.sha256(f"{job_id}/{operator_id}".encode()).hexdigest()[:8]


def _parents(path: str, levels: int) -> list[str]:
    parents = []
    for _ in range(levels):
        path = path.rsplit("/", 1)[0]
        parents.append(path)
    return parents


def _safe(name: str) -> str:
    """As part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).lstrip(".") or "_"
