"""`CheckpointConfig` with PyFlink's setters and getters, over the plain data that a job is given.

Durations go in as timedeltas or milliseconds and come out as milliseconds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from ...core import config as core
from ...core.checks import check_count, check_kind
from ...core.errors import ConfigurationError
from ..types.durations import Interval, to_ms, to_timedelta
from .modes import CheckpointingMode, ExternalizedCheckpointRetention
from .storage import CheckpointStorage, FileSystemCheckpointStorage, JobManagerCheckpointStorage

_MILLISECOND: Final = timedelta(milliseconds=1)

NO_LIMIT: Final = 2**31 - 1
"""Failures of checkpoints that a job tolerates if it tolerates all."""


class CheckpointConfig(core.CheckpointConfig):
    """When and where checkpoints are taken: `CheckpointConfig(interval=..., storage=...)` for a
    `JobConfig`, and what `env.get_checkpoint_config()` gives, to change by setters.

    A job, and a `JobConfig`, takes what it holds at that time (`frozen()`).
    """

    _forced: bool
    """Changes nothing here; it is given back."""

    _in_memory: bool
    _folder: str | None
    """What `storage` is made of: a folder counts while checkpoints do not stay in memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._become(_forced=False)
        self._become(_in_memory=False, _folder=self.storage)

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def of(config: core.CheckpointConfig) -> CheckpointConfig:
        """A copy that can be changed."""
        return CheckpointConfig(**vars(config.frozen()))

    def frozen(self) -> core.CheckpointConfig:
        return core.CheckpointConfig(**{name: getattr(self, name) for name in _FIELDS})

    # --- when --------------------------------------------------------------------------------

    def is_checkpointing_enabled(self) -> bool:
        return self.interval is not None

    def get_checkpoint_interval(self) -> int:
        """Milliseconds, -1 while checkpointing is not enabled."""
        return -1 if self.interval is None else to_ms(self.interval)

    def set_checkpoint_interval(self, checkpoint_interval: Interval) -> CheckpointConfig:
        interval = to_timedelta(checkpoint_interval, "checkpoint_interval", minimum=_MILLISECOND)
        return self._set(interval=interval)

    def disable_checkpointing(self) -> CheckpointConfig:
        """Only the terminal commit of sinks is left."""
        return self._set(interval=None)

    def get_checkpoint_timeout(self) -> int:
        return to_ms(self.timeout)

    def set_checkpoint_timeout(self, checkpoint_timeout: Interval) -> CheckpointConfig:
        timeout = to_timedelta(checkpoint_timeout, "checkpoint_timeout", minimum=_MILLISECOND)
        return self._set(timeout=timeout)

    def get_min_pause_between_checkpoints(self) -> int:
        return to_ms(self.min_pause)

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: Interval
    ) -> CheckpointConfig:
        pause = to_timedelta(min_pause_between_checkpoints, "min_pause_between_checkpoints")
        return self._set(min_pause=pause)

    def get_max_concurrent_checkpoints(self) -> int:
        """What was set."""
        return self.max_concurrent

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> CheckpointConfig:
        """So many checkpoints may be on their way at once; savepoints do not count. Unaligned ones,
        and those with a minimum pause between them, are taken one at a time all the same."""
        check_count("max_concurrent_checkpoints", max_concurrent_checkpoints, 1)
        return self._set(max_concurrent=max_concurrent_checkpoints)

    # --- failures ----------------------------------------------------------------------------

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self.tolerable_failures

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        """So many checkpoints in a row may fail before the job does."""
        check_count("tolerable_checkpoint_failure_number", tolerable_checkpoint_failure_number, 0)
        return self._set(tolerable_failures=tolerable_checkpoint_failure_number)

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Whether the first checkpoint that fails fails the job."""
        return self.tolerable_failures == 0

    def set_fail_on_checkpointing_errors(
        self, fail_on_checkpointing_errors: bool
    ) -> CheckpointConfig:
        """True: no failure of a checkpoint is tolerated; False: any number is."""
        check_kind("fail_on_checkpointing_errors", fail_on_checkpointing_errors, bool)
        return self._set(tolerable_failures=0 if fail_on_checkpointing_errors else NO_LIMIT)

    # --- what for ----------------------------------------------------------------------------

    def get_checkpointing_mode(self) -> CheckpointingMode:
        return self.mode

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> CheckpointConfig:
        """With AT_LEAST_ONCE no channel waits for others at a checkpoint, so that after a failure
        some records come twice."""
        check_kind("checkpointing_mode", checkpointing_mode, CheckpointingMode)
        return self._set(mode=checkpointing_mode)

    get_checkpointing_consistency_mode = get_checkpointing_mode
    set_checkpointing_consistency_mode = set_checkpointing_mode

    # --- where -------------------------------------------------------------------------------

    def get_checkpoint_storage(self) -> CheckpointStorage:
        if self.storage is None:
            return JobManagerCheckpointStorage()
        return FileSystemCheckpointStorage(self.storage)

    def set_checkpoint_storage(self, storage: CheckpointStorage | str | None) -> CheckpointConfig:
        """A `FileSystemCheckpointStorage`, or its URL or path; a `JobManagerCheckpointStorage` or
        None: in the memory of the coordinator."""
        match storage:
            case None | JobManagerCheckpointStorage():
                return self.choose_storage(in_memory=True)
            case FileSystemCheckpointStorage():
                return self.choose_storage(in_memory=False, folder=storage.checkpoint_path)
            case str() if storage:
                return self.choose_storage(in_memory=False, folder=storage)
        raise ConfigurationError(
            "set_checkpoint_storage: expected a URL or path, a FileSystemCheckpointStorage or a "
            f"JobManagerCheckpointStorage, got {storage!r}"
        )

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> CheckpointConfig:
        return self.set_checkpoint_storage(FileSystemCheckpointStorage(checkpoint_path))

    def choose_storage(
        self, *, in_memory: bool | None = None, folder: str | None = None
    ) -> CheckpointConfig:
        """Change one half of where checkpoints go, as an option does; None: it stays."""
        in_memory = self._in_memory if in_memory is None else in_memory
        folder = self._folder if folder is None else folder
        self._become(_in_memory=in_memory, _folder=folder)
        return self._set(storage=None if in_memory else folder)

    @property
    def stays_in_memory(self) -> bool:
        """Whether checkpoints do, even if there is a folder."""
        return self._in_memory

    @property
    def folder(self) -> str | None:
        """What was said last, also if checkpoints stay in memory."""
        return self._folder

    def get_num_retained_checkpoints(self) -> int:
        return self.retained

    def set_num_retained_checkpoints(self, retained: int) -> CheckpointConfig:
        if not isinstance(retained, int) or retained < 1:
            raise ConfigurationError(f"at least 1 checkpoint is retained, not {retained}")
        return self._set(retained=retained)

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Whether they may outlive the job: those in a storage do, unless the retention is
        NO_EXTERNALIZED_CHECKPOINTS."""
        never = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return self.storage is not None and self.retention is not never

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        return self.retention

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> CheckpointConfig:
        """Which checkpoints are removed when the job ends: none (RETAIN_ON_CANCELLATION, the
        default), those of a job that finished or was cancelled, but not of one that failed
        (DELETE_ON_CANCELLATION), or all (NO_EXTERNALIZED_CHECKPOINTS)."""
        check_kind("retention_mode", retention_mode, ExternalizedCheckpointRetention)
        return self._set(retention=retention_mode)

    # --- what a checkpoint holds -------------------------------------------------------------

    def is_incremental_checkpoints_enabled(self) -> bool:
        return self.incremental

    def enable_incremental_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Whether a checkpoint leaves out what did not change since the one before, where it can
        (the default). Not in PyFlink, which has the option alone."""
        check_kind("enabled", enabled, bool)
        return self._set(incremental=enabled)

    def get_full_checkpoint_every(self) -> int | None:
        return self.full_every

    def set_full_checkpoint_every(self, checkpoints: int | None) -> CheckpointConfig:
        """With incremental checkpoints, every so many of them one leaves out nothing and writes all
        files anew, so that none is as old as the job; None: never for that reason. Not in
        PyFlink."""
        if checkpoints is not None:
            check_count("full_checkpoint_every", checkpoints, 1)
        return self._set(full_every=checkpoints)

    # --- copies on the machines of tasks -------------------------------------------------------

    def is_local_recovery_enabled(self) -> bool:
        """Whether tasks that restart read copies on their machine, where there are any."""
        return self.local_recovery

    def enable_local_recovery(self, enabled: bool = True) -> CheckpointConfig:
        """Whether tasks keep copies of the files of their checkpoints on their machine (unless
        `set_local_backup` says that they do not), and restart from them. Off by default. Not in
        PyFlink, which has the options alone."""
        check_kind("enabled", enabled, bool)
        return self._set(local_recovery=enabled)

    def set_local_backup(self, enabled: bool) -> CheckpointConfig:
        """Whether tasks keep copies, whether they are read or not. Not in PyFlink."""
        check_kind("enabled", enabled, bool)
        return self._set(local_backup=enabled)

    def set_local_backup_dirs(self, *folders: str) -> CheckpointConfig:
        """Folders for the copies, on every machine; none: the system's temporary folder. Not in
        PyFlink."""
        for folder in folders:
            check_kind("folder of local backups", folder, str)
        return self._set(local_dirs=folders)

    # --- alignment ---------------------------------------------------------------------------

    def is_unaligned_checkpoints_enabled(self) -> bool:
        return self.unaligned

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> CheckpointConfig:
        """Whether a checkpoint's barriers overtake the records that wait before them, which become
        part of it. No effect with AT_LEAST_ONCE."""
        check_kind("enabled", enabled, bool)
        return self._set(unaligned=enabled)

    def disable_unaligned_checkpoints(self) -> CheckpointConfig:
        return self._set(unaligned=False)

    def is_force_unaligned_checkpoints(self) -> bool:
        """What was set. Nothing has to be forced here."""
        return self._forced

    def set_force_unaligned_checkpoints(
        self, force_unaligned_checkpoints: bool = True
    ) -> CheckpointConfig:
        """For programs that Flink would refuse unaligned checkpoints. No effect: none is refused
        here."""
        check_kind("force_unaligned_checkpoints", force_unaligned_checkpoints, bool)
        return self._become(_forced=force_unaligned_checkpoints)

    def get_aligned_checkpoint_timeout(self) -> timedelta:
        return self.alignment_timeout

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Interval) -> CheckpointConfig:
        """So long after its trigger an unaligned checkpoint is aligned; what has not passed a task
        by then overtakes. 0: at once."""
        timeout = to_timedelta(alignment_timeout, "alignment_timeout")
        return self._set(alignment_timeout=timeout)

    get_alignment_timeout = get_aligned_checkpoint_timeout
    set_alignment_timeout = set_aligned_checkpoint_timeout

    # --- inside ------------------------------------------------------------------------------

    def _set(self, **changes: Any) -> CheckpointConfig:
        return self._become(**vars(replace(self.frozen(), **changes)))

    def _become(self, **fields: Any) -> CheckpointConfig:
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        return self


_FIELDS: Final = tuple(core.CheckpointConfig.__dataclass_fields__)
