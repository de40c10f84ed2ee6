"""`dispose`: removes a savepoint, and nothing that a job still owns."""

from __future__ import annotations

from ..checkpoint.folder_storage import folder_at
from ..core.errors import ConfigurationError, MissingCheckpointError


def dispose(path: str) -> None:
    """Remove the savepoint in the folder at an fsspec URL or path, wherever it was moved to.

    ConfigurationError if there is none, or a checkpoint, which belongs to its job; what was altered
    raises CheckpointErrors and stays. A job that started from it and has not completed a checkpoint
    yet cannot restart without it.
    """
    folder = folder_at(path, "path")
    try:
        manifest = folder.manifest()
    except MissingCheckpointError as error:
        raise ConfigurationError(f"there is no savepoint in '{path}' ({error})") from error
    if not manifest.savepoint:
        raise ConfigurationError(
            f"'{path}' is checkpoint {manifest.checkpoint_id} of job '{manifest.job_id}', which "
            "removes it as its retention says: only savepoints are disposed of"
        )
    folder.delete(manifest.checkpoint_id)
