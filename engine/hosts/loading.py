"""What a job starts from, as its coordinator finds, verifies and claims it.

Used by the storage's worker, but where it is said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...checkpoint.folder_storage import open_folder
from ...checkpoint.manifest import Manifest
from ...checkpoint.storage import CheckpointStorage, Latest
from ...checkpoint.transfers import Transfers
from ...core.config import JobConfig
from ...core.errors import ConfigurationError, CorruptCheckpointError
from ...core.ids import CheckpointId
from .checkpoint_books import CheckpointBooks
from .claimed import Claimed
from .restore import find_origin, load_foreign, load_latest
from .result_log import ResultLog
from .tenure import Tenure

LOOKS: Final = 3
"""So often a checkpoint is looked for that a job may remove meanwhile which is not fenced yet."""

Found = tuple[Latest, CheckpointStorage]
"""What there is, and where the files of its manifest are."""


@dataclass(frozen=True)
class Loaded:
    """What was loaded last. `storage`: where the files of its manifest are. `origin`: the job and
    its checkpoint from which the attempt starts, if it is another job's. `epochs`: as of
    `Tenure.epochs`."""

    storage: CheckpointStorage
    origin: tuple[str, int] | None = None
    epochs: tuple[int, int] = (0, 0)


class Loading:
    """Of one coordinator, over all attempts."""

    def __init__(
        self,
        storage: CheckpointStorage,
        tenure: Tenure,
        books: CheckpointBooks,
        config: JobConfig,
        transfers: Transfers,
        why_not: Callable[[Manifest], str | None],
        results: ResultLog | None = None,
    ) -> None:
        """`why_not`: why the job must not start from a manifest, if so; from any thread. `results`:
        what coordinators before have written down is looked for, too."""
        self._results = results
        self._storage = storage
        self._tenure = tenure
        self._books = books
        self._transfers = transfers
        self._why_not = why_not
        self._restore_from = config.restore_from
        self._claims = config.claim_restored
        self._trusts = config.checkpoint.local_recovery and config.checkpoint.keeps_copies
        """Whether tasks may have copies of what this process published."""
        self._trusted: CheckpointId | None = None
        """The newest of those. Changed by the driver's thread, while nobody loads."""
        self._doubted = False
        """Whether an attempt has started, of which it is not known that all tasks could restore.
        Set by the storage's worker before the attempt is deployed, and else by the driver's
        thread."""

    def on_running(self) -> None:
        """All tasks of the attempt have what they start from, and run. The driver's thread."""
        self._doubted = False

    def on_published(self, n: CheckpointId) -> None:
        """Checkpoint `n`, of the job's own, is complete. The driver's thread."""
        self._trusted = n if self._trusts else None
        self._doubted = False

    def load(self, after: int, unknown: frozenset[CheckpointId], running: bool = False) -> Found:
        """To read what tasks have copies of would take as long as if they had none: it only has to
        be there. If then not all tasks could restore from it, it is read the next time: of a file
        may be neither a copy nor what was written, and the checkpoint before has to do. `unknown`:
        checkpoints that may be there, and are not looked at. `running`: tasks have it, and go on;
        nothing is read again for them."""
        trusted = self._doubt()
        self._tenure.begin()
        if running:
            trusted = self._newest_published()
        latest, storage = load_latest(self._storage, None, after, self._transfers, trusted, unknown)
        if self._results is not None:
            self._results.find(self._tenure.epochs[0], latest.manifest, bool(latest.rejected))
        if latest.manifest is None and self._restore_from is not None:
            latest, storage = self._load_foreign(self._restore_from, latest)
        if self._claims and storage is not self._storage and latest.manifest is not None:
            self._books.claim(Claimed(storage, latest.manifest))
        latest = self._books.with_claim(latest)
        self._books.look()
        return latest, storage

    def _newest_published(self) -> CheckpointId | None:
        for n in reversed(self._storage.list()):
            with suppress(CorruptCheckpointError):
                return self._storage.load(n).checkpoint_id
        return None

    def find(self, after: int, newest: int, unknown: frozenset[CheckpointId]) -> Found:
        """As `load`, changing nothing in the storage, and not looking at checkpoints behind
        `newest`."""
        trusted = self._doubt()
        return load_latest(
            self._storage, self._restore_from, after, self._transfers, trusted, unknown, newest
        )

    def _doubt(self) -> CheckpointId | None:
        """What is trusted now, and not once more until tasks could restore from it."""
        trusted = None if self._doubted else self._trusted
        self._doubted = True
        return trusted

    def _load_foreign(self, restore_from: str, own: Latest) -> Found:
        """What another job has left, or another coordinator still adds to: that is fenced first,
        then its newest checkpoint is looked for again, and read. What this job cannot start from
        fences nobody."""
        for left in reversed(range(LOOKS)):
            try:
                found, manifest = open_folder(restore_from)
                origin = find_origin(found, manifest)
                if origin is not None and self._why_not(manifest) is None:
                    self._tenure.fence(origin, manifest.checkpoint_id)
                return load_foreign(restore_from, own, self._transfers)
            except (CorruptCheckpointError, ConfigurationError):
                if not left:
                    raise  # else it may have been removed at the same time
        raise AssertionError("unreachable")
