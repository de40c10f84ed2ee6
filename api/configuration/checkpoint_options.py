"""Options of checkpoints: when they are taken, and where they go."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from ...core.errors import ConfigurationError
from .modes import CheckpointingMode, ExternalizedCheckpointRetention
from .registry import known, millis
from .settings import Settings
from .values import BOOLEAN, DURATION, INTEGER, STRING, choice, enum_type, folders_in

_FOLDER: Final = "execution.checkpointing.dir"

_STORAGES: Final = choice("String", {"jobmanager": "jobmanager", "filesystem": "filesystem"})


def _set_storage(settings: Settings, value: str) -> None:
    """Called when a folder that is given with it is there already."""
    settings.checkpoint.choose_storage(in_memory=value == "jobmanager")
    if value == "filesystem" and settings.checkpoint.storage is None:
        raise ConfigurationError(f"it needs a folder: set '{_FOLDER}'")


CHECKPOINT_OPTIONS: Final = (
    known(
        "execution.checkpointing.interval",
        DURATION,
        None,
        lambda settings, value: settings.checkpoint.set_checkpoint_interval(value),
        "between two checkpoints. Not set: only the terminal commit of sinks",
    ),
    known(
        "execution.checkpointing.timeout",
        DURATION,
        timedelta(minutes=10),
        lambda settings, value: settings.checkpoint.set_checkpoint_timeout(value),
        "after which a checkpoint is given up",
    ),
    known(
        "execution.checkpointing.min-pause",
        DURATION,
        millis(0),
        lambda settings, value: settings.checkpoint.set_min_pause_between_checkpoints(value),
        "from the end of one to the begin of the next",
    ),
    known(
        "execution.checkpointing.max-concurrent-checkpoints",
        INTEGER,
        1,
        lambda settings, value: settings.checkpoint.set_max_concurrent_checkpoints(value),
        "so many may be on their way at once; one, if they are unaligned or have a `min-pause`",
    ),
    known(
        "execution.checkpointing.mode",
        enum_type(CheckpointingMode),
        CheckpointingMode.EXACTLY_ONCE,
        lambda settings, value: settings.checkpoint.set_checkpointing_mode(value),
        "with `AT_LEAST_ONCE` no channel waits for others, and after a failure records come twice",
    ),
    known(
        "execution.checkpointing.tolerable-failed-checkpoints",
        INTEGER,
        0,
        lambda settings, value: settings.checkpoint.set_tolerable_checkpoint_failure_number(value),
        "in a row, before the job fails",
    ),
    known(
        "execution.checkpointing.num-retained",
        INTEGER,
        1,
        lambda settings, value: settings.checkpoint.set_num_retained_checkpoints(value),
        "complete checkpoints kept",
        "state.checkpoints.num-retained",
    ),
    known(
        "execution.checkpointing.externalized-checkpoint-retention",
        enum_type(ExternalizedCheckpointRetention),
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION,
        lambda settings, value: settings.checkpoint.set_externalized_checkpoint_retention(value),
        "when a job's checkpoints are removed. `RETAIN_ON_CANCELLATION`: never; "
        "`DELETE_ON_CANCELLATION`: when it finished or was cancelled; "
        "`NO_EXTERNALIZED_CHECKPOINTS`: when it ended",
    ),
    known(
        "execution.checkpointing.incremental",
        BOOLEAN,
        True,
        lambda settings, value: settings.checkpoint.enable_incremental_checkpoints(value),
        "what did not change since the checkpoint before is not written again",
        "state.backend.incremental",
    ),
    known(
        "execution.checkpointing.incremental.full-every",
        INTEGER,
        None,
        lambda settings, value: settings.checkpoint.set_full_checkpoint_every(value),
        "of so many checkpoints one leaves out nothing, and writes all files anew",
    ),
    known(
        "execution.state-recovery.from-local",
        BOOLEAN,
        False,
        lambda settings, value: settings.checkpoint.enable_local_recovery(value),
        "tasks that restart read copies of the checkpoint's files on their own machine",
        "state.backend.local-recovery",
    ),
    known(
        "execution.checkpointing.local-backup.enabled",
        BOOLEAN,
        None,
        lambda settings, value: settings.checkpoint.set_local_backup(value),
        "tasks keep such copies. Not set: if they are read",
    ),
    known(
        "execution.checkpointing.local-backup.dirs",
        STRING,
        None,
        lambda settings, value: settings.checkpoint.set_local_backup_dirs(*folders_in(value)),
        "folders for them on each machine, separated by commas; else the system's temporary folder",
        "taskmanager.state.local.root-dirs",
    ),
    known(
        "execution.checkpointing.unaligned.enabled",
        BOOLEAN,
        False,
        lambda settings, value: settings.checkpoint.enable_unaligned_checkpoints(value),
        "barriers overtake the records that wait before them, which become part of the checkpoint",
        "execution.checkpointing.unaligned",
    ),
    known(
        "execution.checkpointing.unaligned.forced",
        BOOLEAN,
        False,
        lambda settings, value: settings.checkpoint.set_force_unaligned_checkpoints(value),
        "no effect: they are refused to no program",
    ),
    known(
        "execution.checkpointing.aligned-checkpoint-timeout",
        DURATION,
        millis(0),
        lambda settings, value: settings.checkpoint.set_aligned_checkpoint_timeout(value),
        "so long an unaligned checkpoint is aligned, from its trigger on",
    ),
    known(
        "execution.checkpointing.snapshot-compression",
        BOOLEAN,
        False,
        lambda settings, value: setattr(settings.ignored, "snapshot_compression", value),
        "no effect",
    ),
    known(
        _FOLDER,
        STRING,
        None,
        lambda settings, value: settings.checkpoint.choose_storage(folder=value),
        "folder of the checkpoints: an fsspec URL or path that all tasks reach",
        "state.checkpoints.dir",
    ),
    known(
        "execution.checkpointing.savepoint-dir",
        STRING,
        None,
        lambda settings, value: settings.change(savepoint_directory=value),
        "folder of savepoints, if the one who asks for them does not say",
        "state.savepoints.dir",
    ),
    known(
        "execution.checkpointing.storage",
        _STORAGES,
        None,
        _set_storage,
        "`jobmanager`: in the coordinator's memory; `filesystem`: in `execution.checkpointing.dir`"
        ". Not set: the latter if there is a folder",
        "state.checkpoint-storage",
    ),
)
