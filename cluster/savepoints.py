"""What a job of a session left behind to go on from."""

from __future__ import annotations

from ..checkpoint.folder_storage import open_folder
from ..core.errors import CheckpointError, ConfigurationError
from .records import JobRecord


def newest_state(record: JobRecord) -> str:
    """What to give `restore_from`: the newest of the job's savepoints, as far as they are where
    they were taken, and its checkpoints. ConfigurationError if there is none."""
    places = [one.path for one in reversed(record.savepoints)]
    found = next(filter(None, map(_found, places)), None)
    if record.checkpoints is not None:
        kept = _found(f"{record.checkpoints.rstrip('/')}/{record.job_id}")
        found = max((one for one in (found, kept) if one is not None), default=None)
    if found is None:
        raise ConfigurationError(
            f"job '{record.name}' ({record.job_id}) has left nothing to start from: none of "
            f"{len(places)} savepoints is where it was taken, and there is no checkpoint in "
            f"{record.checkpoints or 'a storage'}"
        )
    return found[1]


def _found(location: str) -> tuple[int, str] | None:
    """With the time (ms) that it is of."""
    try:
        _, manifest = open_folder(location)
    except (ConfigurationError, CheckpointError):
        return None
    return manifest.timestamp_ms, location
