"""A restore that reads what lies on its own machine from there.

A copy is used if it has the length and the checksum that its handle says. One that has not, or
cannot be read, is said once, and the storage's file is read.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

import pyarrow as pa
import xxhash

from ..core.errors import CorruptCheckpointError
from ..core.ids import CheckpointId
from .handles import FileHandle
from .local_copies import copy_name
from .local_files import CopyFolders
from .names import check_handle_path, folder_name
from .storage import CheckpointStorage, checked

log = logging.getLogger("strom")

_PIECE: Final = 1 << 20
"""Bytes."""


@dataclass
class RestoreFigures:
    """What a restore read: of copies on this machine, and of the storage."""

    local_files: int = 0
    local_bytes: int = 0
    remote_files: int = 0
    remote_bytes: int = 0


class CopiesFirst:
    """Files of a checkpoint of the job itself, from their copies where there are any, else from the
    storage. Read from any thread."""

    def __init__(self, storage: CheckpointStorage, folders: CopyFolders | None, who: str) -> None:
        """`folders`: None: there are no copies, and what is read is only counted. `who`: the task,
        for the log."""
        self._storage = storage
        self._folders = folders
        self._who = who
        self._lock = Lock()
        self.figures = RestoreFigures()
        """Guarded by the lock."""
        self._told = False
        """Whether it was said that a copy cannot be used."""

    def read_file(self, checkpoint_id: CheckpointId, handle: FileHandle) -> pa.Buffer:
        if handle.inline is not None:
            return self._storage.read_file(checkpoint_id, handle)
        found = self._copy_of(checkpoint_id, handle)
        if found is None:
            read = self._storage.read_file(checkpoint_id, handle)
            with self._lock:
                self.figures.remote_files += 1
                self.figures.remote_bytes += handle.size
            return read
        self._count(handle)
        return found

    def link_file(self, checkpoint_id: CheckpointId, handle: FileHandle, path: Path) -> bool:
        """As of a storage: a link to the copy, if that is a whole file, on the same disk."""
        if self._folders is None or handle.inline is not None or handle.offset is not None:
            return False
        try:
            check_handle_path(handle.path, folder_name(checkpoint_id), handle.shared)
            place = self._folders.place(copy_name(checkpoint_id, handle))
            if place is None or not handle.size:
                return False
            _check(place, handle)
        except (OSError, CorruptCheckpointError) as error:
            self._on_unusable(error)
            return False
        try:
            os.link(place, path)
        except OSError:  # another disk, for instance: it is copied
            return False
        self._count(handle)
        return True

    def _count(self, handle: FileHandle) -> None:
        with self._lock:
            self.figures.local_files += 1
            self.figures.local_bytes += handle.size

    def _copy_of(self, n: CheckpointId, handle: FileHandle) -> pa.Buffer | None:
        if self._folders is None:
            return None
        try:
            check_handle_path(handle.path, folder_name(n), handle.shared)
            found = self._folders.read(copy_name(n, handle), handle.offset or 0, handle.size)
            return None if found is None else checked(found[0], handle, str(found[1]))
        except (OSError, CorruptCheckpointError) as error:
            self._on_unusable(error)
            return None

    def _on_unusable(self, error: Exception) -> None:
        with self._lock:
            said, self._told = self._told, True
        if not said:
            log.warning(
                "%s: a copy of a checkpoint's file on this machine cannot be used, the storage's "
                "is read: %s",
                self._who,
                error,
            )


def _check(place: Path, handle: FileHandle) -> None:
    """As `checked`, of a file that is not kept in memory. Nor is it mapped: what the disk cannot
    read would end the process."""
    sum_, size = xxhash.xxh64(), 0
    with open(place, "rb") as file:
        while piece := file.read(_PIECE):
            sum_.update(piece)
            size += len(piece)
    found = size, sum_.hexdigest()
    if found != (handle.size, handle.checksum):
        raise CorruptCheckpointError(
            f"{place}: expected {handle.size} bytes with xxh64 {handle.checksum}, found {found[0]} "
            f"with {found[1]}"
        )
