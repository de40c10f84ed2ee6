"""The task's part in local recovery: copies of what it writes, which its next attempt reads.

    `local_folders` of the deployment      where the host has room for copies; none: there are none
    CheckpointConfig.keeps_copies          what goes to the storage is copied there
    CheckpointConfig.local_recovery        a restore looks there first

Savepoints are not copied, nor is what another job wrote. All copies that a machine has of the
checkpoint that an attempt starts from are read, whichever task made them: so a job that was
rescaled, or a task that was moved, reads from the storage what is missing, and no more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from ...checkpoint.handles import SubtaskSnapshot
from ...checkpoint.local_files import CopyFolders
from ...checkpoint.local_reads import CopiesFirst
from ...checkpoint.local_storage import CopyingStorage
from ...checkpoint.uploads import FilesTo
from ...core.ids import CheckpointId
from .background import Background
from .deployment import TaskDeployment

log = logging.getLogger("strom")


class LocalRecovery:
    """Of one task in one attempt."""

    def __init__(self, deployment: TaskDeployment, background: Background) -> None:
        """Copies are removed in the background, if that is a thread of its own."""
        d = deployment
        config = d.config.checkpoint
        folders = CopyFolders(d.local_folders, d.task.subtask) if d.local_folders else None
        who = f"task {d.label}"
        own = d.restore is not None and d.restore.job_id == d.job_id and not d.restore.savepoint
        read = folders if own and config.local_recovery else None
        self._deployment = d
        self._background = background
        self._copying: CopyingStorage | None = None
        if folders is not None and config.keeps_copies and d.storage.copies:
            self._copying = CopyingStorage(d.storage, folders, who)
        self._restores = own
        self.files = CopiesFirst(d.restore_storage, read, who)
        """What is restored comes from here."""

    @property
    def storage(self) -> FilesTo:
        """What checkpoints are written to."""
        return self._deployment.storage if self._copying is None else self._copying

    def restored(self) -> None:
        """All is read that the attempt starts from; it has written nothing yet."""
        if self._copying is not None:
            self._copying.began(self._deployment.restore if self._restores else None)
        figures = self.files.figures
        if figures.local_files:
            log.info(
                "task %s: restored from %s files (%s bytes) on its machine, and %s (%s bytes) of "
                "the checkpoint storage",
                self._deployment.label,
                figures.local_files,
                figures.local_bytes,
                figures.remote_files,
                figures.remote_bytes,
            )

    def written(self, n: CheckpointId, snapshot: SubtaskSnapshot) -> None:
        """On any thread, before it is reported."""
        if self._copying is not None:
            self._copying.written(n, snapshot)

    def completed(self, n: CheckpointId) -> None:
        if self._copying is not None:
            self._remove(partial(self._copying.completed, n))

    def aborted(self, n: CheckpointId) -> None:
        if self._copying is not None:
            self._remove(partial(self._copying.aborted, n))

    def close(self) -> None:
        if self._copying is not None:
            self._copying.close()

    def _remove(self, what: Callable[[], None]) -> None:
        if self._background.threads:
            self._background.submit(what, _ignored)
        else:
            what()

    def figures(self) -> dict[str, Any]:
        """What the restore read."""
        return asdict(self.files.figures)


def _ignored(result: Any, error: BaseException | None) -> None:
    """Copies that stay go with the job's folder."""
