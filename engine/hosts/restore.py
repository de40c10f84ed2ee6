"""Which checkpoint an attempt starts from: the job's own newest, else the one it was told to."""

from __future__ import annotations

from collections.abc import Collection

from ...checkpoint.folder_storage import open_folder
from ...checkpoint.storage import CheckpointStorage, Latest
from ...checkpoint.transfers import INLINE, Transfers
from ...core.errors import (
    CheckpointFormatError,
    ConfigurationError,
    CorruptCheckpointError,
    MissingCheckpointError,
)
from ...core.ids import CheckpointId


def load_latest(
    storage: CheckpointStorage,
    restore_from: str | None,
    after: int,
    transfers: Transfers = INLINE,
    trusted: CheckpointId | None = None,
    without: Collection[CheckpointId] = (),
) -> tuple[Latest, CheckpointStorage]:
    """The job's own newest valid checkpoint but for those of `without`, of which the files are
    read, unless it is `trusted`; without one, the checkpoint or savepoint at
    `restore_from` (of another job), verified. With it the storage that holds its files. Raises
    CheckpointError or ConfigurationError."""
    latest = storage.latest_valid(
        after=after, transfers=transfers, trusted=trusted, without=without
    )
    if latest.manifest is not None or restore_from is None:
        return latest, storage
    foreign, manifest = open_folder(restore_from, validate=True, transfers=transfers)
    ids = tuple(sorted({*latest.ids, manifest.checkpoint_id}))
    return Latest(manifest, latest.rejected, ids), foreign


def shared_files(
    storage: CheckpointStorage,
) -> tuple[dict[CheckpointId, frozenset[str]], list[CheckpointId], tuple[str, ...]]:
    """What `SharedFiles.found` asks for. Raises CheckpointError."""
    users, unreadable = {}, []
    for n in storage.list():
        try:
            users[n] = storage.load(n).shared
        except MissingCheckpointError:
            continue  # it never completed
        except (CorruptCheckpointError, CheckpointFormatError):
            unreadable.append(n)
    return users, unreadable, storage.list_shared()


def is_hopeless(error: BaseException) -> bool:
    """Whether loading again would end the same way."""
    return isinstance(error, (CheckpointFormatError, ConfigurationError, CorruptCheckpointError))
