"""Files that are written hidden and published by a rename.

    <path>/.staging/<job>/<operator>-<tag>/<attempt>-<subtask>-<random>-<n>.<suffix>  being written
    <path>/part-<operator>-<subtask>-<checkpoint>-<seq>-<tag>.<suffix>             published

The staged name is unique: two attempts, also one thought dead, never write to one file. The
published name is fixed when the file is prepared, so publishing twice is publishing once. Its tag
is a hash of job and operator id: a later job writing into the same folder starts again with
checkpoint 1 and must add files, not replace them.

Leftovers. After a restore, the committables of former subtasks are dealt out to all new ones, so
no subtask can tell which staged files of a dead attempt still wait for another subtask to publish
them. But once a checkpoint of this attempt has completed, every subtask has recovered; what
is still staged under an older attempt then belongs to nobody. Subtask i of p removes the files of
former subtasks i, i + p, i + 2p, ...; a single subtask need not wait.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from ...api.connectors.base import WriterContext
from ...core.errors import ConnectorError
from .paths import filesystem, is_local

_CREATE_TRIES = 3
"""A writer that closes may take the empty folder away between its making and its use."""

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
        self, url: str, options: Mapping[str, Any] | None, suffix: str, context: WriterContext
    ) -> None:
        self.fs, self.root = filesystem(url, options)
        self.root = self.root.rstrip("/")
        self._context = context
        self._suffix = suffix
        self._operator = _safe(context.operator_id)
        identity = f"{context.job_id}/{context.operator_id}"
        self._tag = hashlib.sha256(identity.encode()).hexdigest()[:8]
        operator = f"{self._operator}-{self._tag}"
        self.folder = f"{self.root}/.staging/{_safe(context.job_id)}/{operator}"
        self._writer = uuid4().hex[:8]
        self._opened = 0

    def create(self) -> tuple[str, Any]:
        """A new staged file, open for writing."""
        who = f"{self._context.attempt}-{self._context.subtask}-{self._writer}"
        path = f"{self.folder}/{who}-{self._opened}.{self._suffix}"
        self._opened += 1
        for _ in range(_CREATE_TRIES - 1):
            self.fs.makedirs(self.folder, exist_ok=True)
            try:
                return path, self.fs.open(path, "wb")
            except FileNotFoundError:
                continue
        self.fs.makedirs(self.folder, exist_ok=True)
        return path, self.fs.open(path, "wb")

    def seal(self, file: Any) -> None:
        """Close a complete file; afterwards a crash of the machine does not lose it."""
        if is_local(self.fs):
            file.flush()
            os.fsync(file.fileno())
        file.close()

    def final_path(self, checkpoint_id: int, sequence: int, folder: str = "") -> str:
        """Where file number `sequence` of this subtask and checkpoint is published; `folder` ends
        with a slash unless empty."""
        subtask = self._context.subtask
        name = f"part-{self._operator}-{subtask}-{checkpoint_id}-{sequence}-{self._tag}"
        return f"{self.root}/{folder}{name}.{self._suffix}"

    def publish(self, committable: FileCommittable) -> None:
        """Idempotent. Atomic where the filesystem renames; on object stores a copy, which appears
        as a whole, and a removal."""
        staged, final = committable.staged, committable.final
        self.fs.makedirs(final.rsplit("/", 1)[0], exist_ok=True)
        try:
            if is_local(self.fs):
                os.replace(staged, final)
            else:
                self.fs.mv(staged, final)
        except FileNotFoundError as error:
            if not self.fs.exists(final):
                raise ConnectorError(
                    f"cannot publish '{final}': neither it nor its staged file '{staged}' exists. "
                    f"Its {committable.rows} rows are lost; restore from an older checkpoint, and "
                    "do not remove '.staging' folders of jobs that may be restored"
                ) from error

    def revoke(self, after: int) -> None:
        """Remove this job's published files of checkpoints later than `after`, in the names of
        which former subtasks of this one's share stand."""
        self.fs.invalidate_cache()
        operator = re.escape(self._operator)
        mine = re.compile(rf"part-{operator}-(\d+)-(\d+)-\d+-{self._tag}\..*")
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
        if not self.fs.exists(self.folder):
            return
        for path in self.fs.ls(self.folder, detail=False):
            match = _STAGED.fullmatch(path.rsplit("/", 1)[-1])
            if match is None:
                continue
            attempt, subtask = int(match[1]), int(match[2])
            if attempt < self._context.attempt and self._mine(subtask):
                self.discard(path)

    def remove_empty_folders(self) -> None:
        """Take away the staging folders if this writer was the last one with files there."""
        for folder in (self.folder, *_parents(self.folder, 2)):
            try:
                if self.fs.ls(folder, detail=False):
                    return
                self.fs.rmdir(folder)
            except OSError:
                return

    def _mine(self, subtask: int) -> bool:
        return subtask % self._context.parallelism == self._context.subtask


def _parents(path: str, levels: int) -> list[str]:
    parents = []
    for _ in range(levels):
        path = path.rsplit("/", 1)[0]
        parents.append(path)
    return parents


def _safe(name: str) -> str:
    """As part of a file name."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).lstrip(".") or "_"
