"""What a job started from and has claimed: it removes it once it does not need it any more.

A checkpoint of another job may share files with other checkpoints of that job. Their manifests say
which: what none of them names goes with it. A folder that was moved or copied lies among others
that nobody knows, so files beside it stay.
"""

from __future__ import annotations

from ...checkpoint.manifest import Manifest
from ...checkpoint.shared_files import SharedFiles
from ...checkpoint.storage import CheckpointStorage
from .restore import stored_in


class Claimed:
    """A checkpoint or savepoint of another job, and the storage that holds its files."""

    def __init__(self, storage: CheckpointStorage, manifest: Manifest) -> None:
        self.checkpoint_id = manifest.checkpoint_id
        self._storage = storage
        self._needs = manifest.shared

    def remove(self) -> None:
        """Remove it. After a CheckpointError something of it may be left: call again."""
        shared = SharedFiles()
        if self._storage.shares and self._needs:
            found = stored_in(self._storage)
            others = [n for n in found.unreadable if n != self.checkpoint_id]
            shared.found({**found.users, self.checkpoint_id: self._needs}, others, ())
        self._storage.delete(self.checkpoint_id)
        if self._storage.shares:
            self._storage.delete_shared(shared.discarded(self.checkpoint_id))
        self._storage.forget(epochs=False)
