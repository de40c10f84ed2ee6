"""Which checkpoint an attempt starts from: the job's own newest, else the one it was told to."""

from __future__ import annotations

from dataclasses import dataclass

from ...checkpoint.storage import CheckpointStorage, Latest, open_storage
from ...core.errors import ConfigurationError
from ...core.ids import CheckpointId


@dataclass(frozen=True)
class RestorePoint:
    """The storage that holds the files of the manifest restored from."""

    storage: CheckpointStorage


def load_latest(
    storage: CheckpointStorage, restore_from: str | None, after: int
) -> tuple[Latest, RestorePoint]:
    """The job's own newest valid checkpoint; without one, the checkpoint folder `restore_from`
    (of another job), verified. Raises CheckpointError, CorruptCheckpointError or
    ConfigurationError."""
    latest = storage.latest_valid(after=after)
    if latest.manifest is not None or restore_from is None:
        return latest, RestorePoint(storage)
    foreign, checkpoint_id = open_folder(restore_from)
    manifest = foreign.load(checkpoint_id)
    foreign.verify(manifest)
    ids = tuple(sorted({*latest.ids, checkpoint_id}))
    return Latest(manifest, latest.rejected, ids), RestorePoint(foreign)


def open_folder(path: str) -> tuple[CheckpointStorage, CheckpointId]:
    """`<root>/<job>/chk-<n>` as the storage of that job and the checkpoint's id."""
    parts = path.rstrip("/").rsplit("/", 2)
    if len(parts) != 3 or not parts[2].startswith("chk-") or not parts[2][4:].isdigit():
        raise ConfigurationError(
            f"restore_from must be a checkpoint folder <root>/<job>/chk-<n>, is '{path}'"
        )
    return open_storage(parts[0], parts[1]), CheckpointId(int(parts[2][4:]))
