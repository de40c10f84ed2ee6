"""Who needs what of a job's checkpoints on its storage, and what is published and removed there.

The coordinator's storage worker calls this; a call that hangs is left behind, and goes on beside
those that come after it (`ordered_work`). What they change of the books they change under a lock,
which is held while nobody waits for the storage.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Final

from ...checkpoint.folder_storage import folder_at
from ...checkpoint.manifest import Manifest
from ...checkpoint.shared_files import SharedFiles
from ...checkpoint.storage import CheckpointStorage, Latest
from ...core.errors import CheckpointError, FencedError
from ...core.ids import CheckpointId
from .claimed import Claimed
from .restore import stored_in
from .result_log import ResultLog
from .tenure import Tenure

log = logging.getLogger("strom")

SWEEPS: Final = 3
"""So often what is left of a checkpoint that never completed is looked for again, with the next
ones that are deleted: the listing of an object store may be late."""


class CheckpointBooks:
    """Of one coordinator. Adds and removes nothing once that is fenced."""

    def __init__(
        self, storage: CheckpointStorage, tenure: Tenure, results: ResultLog | None = None
    ) -> None:
        """`tenure`: of `storage`. `results`: what is to be written down ahead of publications."""
        self._results = results
        self._storage = storage
        self._tenure = tenure
        self._lock = threading.Lock()
        self._shared = SharedFiles()
        """Under the lock."""
        self._swept: dict[CheckpointId, int] = {}
        """Checkpoints that never completed and were deleted, and how many more times they will be.
        Under the lock."""
        self._undone: set[CheckpointId] = set()
        """Those whose removal has begun and is not known to have been done. Under the lock."""
        self._claimed: Claimed | None = None
        """What the job started from and is to delete when it is not needed any more; until it is
        gone."""
        self._claim_is_due = False
        """Whether that is so. What could not be removed is tried again with the next checkpoint
        that goes."""
        self.published = 0
        """Checkpoints published so far, told or not."""

    # --- what is there ---------------------------------------------------------------------

    def claim(self, claimed: Claimed) -> None:
        """The job starts from this, and is to remove it."""
        self._claimed, self._claim_is_due = claimed, False

    def with_claim(self, latest: Latest) -> Latest:
        """What the storage holds, and what the job is to remove beside."""
        if self._claimed is None:
            return latest
        return replace(latest, ids=tuple(sorted({*latest.ids, self._claimed.checkpoint_id})))

    def look(self) -> None:
        """Begin anew with what the manifests say, while no task runs; what nobody needs goes.
        CheckpointError if they cannot be read."""
        if not self._storage.shares:
            return
        found = stored_in(self._storage)
        with self._lock:
            due = self._shared.found(found.users, found.unreadable, found.present)
            self._undone.clear()  # the job master knows of them now
        self._remove(due)
        if not found.unreadable:
            self._sweep_epochs(found.epochs)

    def _sweep_epochs(self, counting: frozenset[int]) -> None:
        """Those of former coordinators that nobody needs any more."""
        try:
            self._tenure.sweep(counting)
        except CheckpointError as error:
            self._warn("what former coordinators have left stays for now", error)

    # --- what comes ------------------------------------------------------------------------

    def publish(self, manifest: Manifest, savepoint: str | None) -> None:
        """`savepoint`: the folder of one; None: a checkpoint of the job's own. FencedError, other
        CheckpointErrors; then nothing of it is visible."""
        if savepoint is not None:
            folder_at(savepoint).publish(manifest)
            self._tenure.check()
            self.published += 1
            return
        n = manifest.checkpoint_id
        with self._lock:
            self._shared.completed(n, manifest.shared)
        try:
            if self._results is not None:
                self._results.write(int(n))
            self._storage.publish(replace(manifest, epoch=self._tenure.epochs[0]))
            self._check_tenure(manifest)
        except BaseException:
            with self._lock:
                self._shared.discarded(n)
            raise
        self.published += 1
        if self._results is not None:
            self._merge_results(self._results)

    def _merge_results(self, results: ResultLog) -> None:
        """Nobody goes on from before the oldest checkpoint that there is."""
        with self._lock:
            oldest = self._shared.oldest
        try:
            results.merge(int(oldest))
        except CheckpointError as error:
            self._warn("files of its results stay as many as they are", error)

    def _check_tenure(self, manifest: Manifest) -> None:
        """Behind the publication, see `epochs`. FencedError: it is complete for nobody here, and
        stays only where the successor starts from it."""
        try:
            self._tenure.check()
        except FencedError:
            if not self._tenure.counts(manifest.checkpoint_id):
                self._storage.withdraw(manifest)
            raise
        except BaseException:
            self._storage.withdraw(manifest)
            raise

    # --- what goes -------------------------------------------------------------------------

    def forget(self) -> None:
        """All checkpoints of the job are deleted."""
        if self._tenure.holds():
            self._storage.forget()

    def delete(self, n: CheckpointId) -> None:
        """The job's own, or the one that it started from and has claimed. With it what could not be
        removed before, and once more what was left of those that never completed, if a listing was
        late. Nothing, once fenced."""
        with self._lock:
            self._undone.add(n)  # also if it cannot be told now who holds the job
        if not self._tenure.holds():
            return  # who has taken over may need it
        with self._lock:
            complete = self._shared.knows(n)
            self._swept.pop(n, None)
            swept = self._sweep()
        self._delete_files(n)
        self.delete_undone()
        for m in swept:
            self._delete_files(m)
        if not complete and self._storage.shares:
            with self._lock:
                self._swept[n] = SWEEPS
        claimed = self._claimed
        if claimed is not None and (self._claim_is_due or claimed.checkpoint_id == n):
            self._claim_is_due = True
            self._remove_claimed(claimed)

    def delete_undone(self) -> None:
        """Once more what could not be removed. Not what a job that has started anew meanwhile may
        have begun with."""
        if not self._tenure.holds():
            return
        for m in sorted(self._undone):
            if m in self._undone:
                self._delete_files(m)

    def _sweep(self) -> list[CheckpointId]:
        """Those that are to be deleted once more."""
        due = sorted(self._swept)
        self._swept = {m: times - 1 for m, times in self._swept.items() if times > 1}
        return due

    def _remove_claimed(self, claimed: Claimed) -> None:
        try:
            claimed.remove()
        except CheckpointError as error:
            self._warn("what it started from and has claimed stays for now", error)
        else:
            self._claimed = None

    def _delete_files(self, n: CheckpointId) -> None:
        self._storage.delete(n)
        present = () if self._shared.knows(n) else self._storage.list_shared()
        with self._lock:
            due = self._shared.discarded(n, present)
            self._undone.discard(n)
        self._remove(due)

    def _remove(self, names: list[str]) -> None:
        """What cannot be removed now is removed with the next checkpoint that goes."""
        try:
            self._storage.delete_shared(names)
        except CheckpointError as error:
            self._warn("files that no checkpoint needs stay", error)
        else:
            with self._lock:
                self._shared.removed(names)

    def _warn(self, what: str, error: CheckpointError) -> None:
        log.warning("job %s: %s: %s", self._storage.job_id, what, error)


def remove_savepoint(location: str) -> None:
    """All files of what was written of one."""
    folder_at(location).delete(CheckpointId(0))
