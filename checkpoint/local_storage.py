"""What a task writes for a checkpoint, kept on its machine, too.

Each file goes to the storage and to a local one, piece by piece; a file of a local database, which
never changes, is linked instead, if both are on one disk. What cannot be copied (a full disk) has
no copy, which is said once and fails nothing. Which copies stay is `local_copies`'s to say.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any

from ..core.ids import CheckpointId
from .cancellation import Cancellation
from .handles import FileHandle, SubtaskSnapshot
from .local_copies import LocalCopies, copy_name
from .local_files import Both, Copy, CopyFolders
from .manifest import Manifest
from .names import SHARED, folder_name, shared_name
from .storage import CheckpointStorage

log = logging.getLogger("strom")


class CopyingStorage:
    """A storage, as one task writes to it in one attempt; what it writes is copied. Files are
    written on any thread, events come on any."""

    def __init__(self, storage: CheckpointStorage, folders: CopyFolders, who: str) -> None:
        """`who`: the task, for the log."""
        self.packs = storage.packs
        self._storage = storage
        self._folders = folders
        self._who = who
        self._lock = Lock()
        self._copies = LocalCopies()
        """Guarded by the lock, as what follows."""
        self._linked: set[str] = set()
        """Copies that are there before their files are written."""
        self._failed = False
        """Whether it was said that something cannot be copied."""

    # --- what becomes of copies ------------------------------------------------------------

    def began(self, manifest: Manifest | None) -> None:
        """The attempt starts from this checkpoint of the job, None: from none. Before it writes."""
        needs = () if manifest is None else _names(manifest.checkpoint_id, manifest.files())
        with self._lock:
            due = self._copies.began(needs, self._folders.names())
        self._folders.remove(due)

    def written(self, n: CheckpointId, snapshot: SubtaskSnapshot) -> None:
        """The task's part of `n` is durable."""
        with self._lock:
            self._copies.written(n, _names(n, snapshot.files))

    def completed(self, n: CheckpointId) -> None:
        with self._lock:
            due = self._copies.completed(n)
        self._folders.remove(due)

    def aborted(self, n: CheckpointId) -> None:
        """With all earlier ones that are open."""
        with self._lock:
            due = self._copies.aborted(n)
        self._folders.remove(due)

    def close(self) -> None:
        """The task is over."""
        with self._lock:
            self._copies.close()

    # --- what is written -------------------------------------------------------------------

    def offer(self, checkpoint_id: CheckpointId, name: str, shared: bool, source: Path) -> None:
        target = _name(checkpoint_id, self._storage.own_name(name), shared)
        try:
            place = self._folders.new(target)
            place.unlink(missing_ok=True)
            os.link(source, place)
        except OSError:  # another disk, for instance: it is copied as it is written
            return
        if self._keep(checkpoint_id, target):
            with self._lock:
                self._linked.add(target)

    def write_stream(
        self,
        checkpoint_id: CheckpointId,
        name: str,
        write: Callable[[Any], None],
        shared: bool = False,
        cancellation: Cancellation | None = None,
    ) -> FileHandle:
        target = _name(checkpoint_id, self._storage.own_name(name), shared)
        with self._lock:
            linked = target in self._linked
            self._linked.discard(target)
        copy = None if linked else Copy(lambda: self._folders.new(target), self._on_failure)

        def both(sink: Any) -> None:
            write(sink if copy is None else Both(sink, copy.begun()))

        try:
            handle = self._storage.write_stream(checkpoint_id, name, both, shared, cancellation)
        except BaseException:
            if copy is not None:
                copy.discard()
            self._remove(checkpoint_id, [target])
            raise
        if copy is not None and copy.finish(handle.size):
            self._keep(checkpoint_id, target)
        return handle

    def remove_files(self, checkpoint_id: CheckpointId, handles: Iterable[FileHandle]) -> None:
        handles = list(handles)
        self._remove(checkpoint_id, _names(checkpoint_id, handles))
        self._storage.remove_files(checkpoint_id, handles)

    def _keep(self, n: CheckpointId, name: str) -> bool:
        with self._lock:
            wanted = self._copies.made(n, name)
        if not wanted:
            self._folders.remove([name])
        return wanted

    def _remove(self, n: CheckpointId, names: Iterable[str]) -> None:
        names = list(names)
        with self._lock:
            self._copies.removed(n, names)
        self._folders.remove(names)

    def _on_failure(self, error: OSError) -> None:
        with self._lock:
            said, self._failed = self._failed, True
        if not said:
            log.warning(
                "%s: files of its checkpoints cannot be copied to this machine's disk (%s): a "
                "restart reads them from the checkpoint storage",
                self._who,
                error,
            )


def _name(n: CheckpointId, name: str, shared: bool) -> str:
    return f"{SHARED}/{shared_name(n, name)}" if shared else f"{folder_name(n)}/{name}"


def _names(n: CheckpointId, handles: Iterable[FileHandle]) -> set[str]:
    return {copy_name(n, handle) for handle in handles if handle.inline is None}
