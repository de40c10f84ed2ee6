"""Which checkpoint an attempt starts from: the job's own newest, else the one it was told to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...checkpoint.folder_storage import FolderStorage, open_folder
from ...checkpoint.manifest import Manifest
from ...checkpoint.storage import CheckpointStorage, Latest
from ...checkpoint.transfers import INLINE, Transfers
from ...core.errors import (
    CheckpointFormatError,
    ConfigurationError,
    CorruptCheckpointError,
    FencedError,
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
    upto: int | None = None,
) -> tuple[Latest, CheckpointStorage]:
    """The job's own newest valid checkpoint but for those of `without`, and those behind `upto`, of
    which the files are read, unless it is `trusted`; without one, the checkpoint or savepoint at
    `restore_from` (of another job), verified. With it the storage that holds its files. Raises
    CheckpointError or ConfigurationError."""
    latest = storage.latest_valid(
        after=after, transfers=transfers, trusted=trusted, without=without, upto=upto
    )
    if latest.manifest is not None or restore_from is None:
        return latest, storage
    return load_foreign(restore_from, latest, transfers)


def load_foreign(
    restore_from: str, own: Latest, transfers: Transfers = INLINE
) -> tuple[Latest, CheckpointStorage]:
    """The checkpoint or savepoint there, verified, where the job's own storage holds what `own`
    says, and nothing to start from."""
    foreign, manifest = open_folder(restore_from, validate=True, transfers=transfers)
    if not isinstance(foreign, FolderStorage):
        foreign.check_counts(manifest)
    ids = tuple(sorted({*own.ids, manifest.checkpoint_id}))
    return Latest(manifest, own.rejected, ids), foreign


def find_origin(storage: CheckpointStorage, manifest: Manifest) -> CheckpointStorage | None:
    """The storage of the job that a checkpoint belongs to, if it is where that job put it; None for
    a savepoint, which belongs to nobody, and for a copy."""
    own = storage.job_id == manifest.job_id and not isinstance(storage, FolderStorage)
    return storage if own and not manifest.savepoint else None


@dataclass(frozen=True)
class Stored:
    """What a storage holds: `users`, `unreadable` and `present` as `SharedFiles.found` asks for
    them. `epochs`: those in which complete checkpoints were published, as far as they can be
    read."""

    users: Mapping[CheckpointId, frozenset[str]]
    unreadable: Sequence[CheckpointId]
    present: Sequence[str]
    epochs: frozenset[int]


def stored_in(storage: CheckpointStorage) -> Stored:
    """Raises CheckpointError."""
    users: dict[CheckpointId, frozenset[str]] = {}
    unreadable, epochs = [], set()
    for n in storage.list():
        try:
            manifest = storage.load(n)
        except MissingCheckpointError:
            continue  # it never completed
        except (CorruptCheckpointError, CheckpointFormatError):
            unreadable.append(n)
        else:
            users[n] = manifest.shared
            epochs.add(manifest.epoch)
    return Stored(users, unreadable, storage.list_shared(), frozenset(epochs))


def is_hopeless(error: BaseException) -> bool:
    """Whether loading again would end the same way."""
    final = (CheckpointFormatError, ConfigurationError, CorruptCheckpointError, FencedError)
    return isinstance(error, final)
