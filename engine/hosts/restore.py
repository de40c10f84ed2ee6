"""Which checkpoint an attempt starts from: the job's own newest, else the one it was told to."""

from __future__ import annotations

from ...checkpoint.storage import CheckpointStorage, Latest, open_folder
from ...core.errors import (
    CheckpointFormatError,
    ConfigurationError,
    CorruptCheckpointError,
    MissingCheckpointError,
)


def load_latest(
    storage: CheckpointStorage, restore_from: str | None, after: int
) -> tuple[Latest, CheckpointStorage]:
    """The job's own newest valid checkpoint; without one, the checkpoint folder `restore_from`
    (of another job), verified. With it the storage that holds its files. Raises CheckpointError or
    ConfigurationError."""
    latest = storage.latest_valid(after=after)
    if latest.manifest is not None or restore_from is None:
        return latest, storage
    foreign, checkpoint_id = open_folder(restore_from)
    try:
        manifest = foreign.load(checkpoint_id)
    except MissingCheckpointError as error:
        raise ConfigurationError(
            f"restore_from='{restore_from}': there is no complete checkpoint ({error})"
        ) from error
    foreign.verify(manifest)
    ids = tuple(sorted({*latest.ids, checkpoint_id}))
    return Latest(manifest, latest.rejected, ids), foreign


def is_hopeless(error: BaseException) -> bool:
    """Whether loading again would end the same way."""
    return isinstance(error, (CheckpointFormatError, ConfigurationError, CorruptCheckpointError))
