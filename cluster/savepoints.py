"""What a job of a session left behind to go on from."""

from __future__ import annotations

from dataclasses import dataclass

from ..checkpoint.folder_storage import open_folder
from ..core.errors import CheckpointError, ConfigurationError
from .records import JobRecord


def newest_state(record: JobRecord) -> str:
    """What to give `restore_from`: the newest of the job's savepoints, as far as they are where
    they were taken, and its checkpoints; of a job that was stopped with a savepoint, that.
    ConfigurationError if there is none."""
    places = [one.path for one in reversed(record.savepoints)]
    saved = next(filter(None, map(_found, places)), None)
    root = record.checkpoints
    kept = None if root is None else _found(f"{root.rstrip('/')}/{record.job_id}")
    if saved is not None and (kept is None or kept.stopped or kept.time_ms < saved.time_ms):
        return saved.location
    if kept is not None:
        return kept.location
    raise ConfigurationError(
        f"job '{record.name}' ({record.job_id}) has left nothing to start from: none of "
        f"{len(places)} savepoints is where it was taken, and there is no checkpoint in "
        f"{root or 'a storage'}"
    )


def state_of_stopped(record: JobRecord) -> str | None:
    """The savepoint that a job which is over was stopped with; None: it ended otherwise, or nobody
    can tell, as it kept no checkpoints in a storage."""
    root = record.checkpoints
    kept = None if root is None else _found(f"{root.rstrip('/')}/{record.job_id}")
    places = [one.path for one in reversed(record.savepoints)]
    if kept is None or not kept.stopped:
        return None
    saved = next(filter(None, map(_found, places)), None)
    return None if saved is None else saved.location


@dataclass(frozen=True)
class _State:
    """`stopped`: the checkpoint that a job ended with behind the savepoint that stopped it."""

    location: str
    time_ms: int
    stopped: bool


def _found(location: str) -> _State | None:
    try:
        _, manifest = open_folder(location)
    except (ConfigurationError, CheckpointError):
        return None
    return _State(location, manifest.timestamp_ms, manifest.stopped)
