"""What a job of a session left behind to go on from."""

from __future__ import annotations

from dataclasses import dataclass

from ..checkpoint.folder_storage import is_left_to, open_folder
from ..core.errors import ConfigurationError, MissingCheckpointError
from .records import JobRecord


def newest_state(record: JobRecord) -> str:
    """What to give `restore_from`: the newest of the job's savepoints, as far as they are where
    they were taken, and its checkpoints; of a job that was stopped with a savepoint, that.
    ConfigurationError if there is none."""
    places = [one.path for one in reversed(record.savepoints)]
    root = record.checkpoints
    kept = None if root is None else _found(f"{root.rstrip('/')}/{record.job_id}")
    if kept is not None and kept.stopped:  # with the last one: those before are older than it
        places = places[:1]
    saved = next(filter(None, map(_found, places)), None)
    if saved is not None and (kept is None or saved.is_of(kept)):
        return saved.location
    if kept is not None:
        return kept.location
    raise ConfigurationError(
        f"job '{record.name}' ({record.job_id}) has left nothing to start from: none of "
        f"{len(places)} savepoints is where it was taken, and there is no checkpoint in "
        f"{root or 'a storage'}"
    )


def state_left_to(successor: str, record: JobRecord) -> str | None:
    """The savepoint that a job which is over was stopped with for this one; None: it ended
    otherwise, or was stopped by somebody else, whose savepoint it is, or nobody can tell, as it
    kept no checkpoints in a storage, or the savepoint is gone. CheckpointError if the storage does
    not answer."""
    root = record.checkpoints
    kept = None if root is None else _found(f"{root.rstrip('/')}/{record.job_id}")
    if kept is None or not kept.stopped or not record.savepoints:
        return None
    path = record.savepoints[-1].path
    saved = _found(path) if is_left_to(successor, path) else None
    return None if saved is None else saved.location


@dataclass(frozen=True)
class _State:
    """`stopped`: the checkpoint that a job ended with behind the savepoint that stopped it. `n`:
    counts the job's savepoints with its checkpoints."""

    location: str
    time_ms: int
    stopped: bool
    n: int

    def is_of(self, kept: _State) -> bool:
        """Whether this savepoint is to be taken, rather than the newest checkpoint: it is newer, or
        the one that the job was stopped with. Of that nobody has heard if the coordinator died
        behind it: then another is older than what the sinks have committed."""
        return self.n + 1 == kept.n if kept.stopped else kept.time_ms < self.time_ms


def _found(location: str) -> _State | None:
    try:
        _, manifest = open_folder(location)
    except (ConfigurationError, MissingCheckpointError):
        return None
    return _State(location, manifest.timestamp_ms, manifest.stopped, manifest.checkpoint_id)
