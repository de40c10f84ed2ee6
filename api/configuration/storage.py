"""Where checkpoints are kept, and what holds a job's state, as PyFlink's objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...core.errors import ConfigurationError


class CheckpointStorage:
    """Where checkpoints are kept: for `CheckpointConfig.set_checkpoint_storage`."""


@dataclass(frozen=True)
class FileSystemCheckpointStorage(CheckpointStorage):
    """In a folder that all tasks reach: an fsspec URL or path. The two sizes are PyFlink's, and are
    only given back: state is in files of its own, whatever its size."""

    checkpoint_path: str
    file_state_size_threshold: int | None = None
    write_buffer_size: int = -1

    MAX_FILE_STATE_THRESHOLD: ClassVar[int] = 1 << 20

    def __post_init__(self) -> None:
        if not isinstance(self.checkpoint_path, str) or not self.checkpoint_path:
            raise ConfigurationError(
                f"checkpoint_path must be a URL or path, is {self.checkpoint_path!r}"
            )

    def get_checkpoint_path(self) -> str:
        return self.checkpoint_path

    def get_savepoint_path(self) -> None:
        """There is none."""
        return None

    def get_min_file_size_threshold(self) -> int:
        return (
            20 << 10 if self.file_state_size_threshold is None else self.file_state_size_threshold
        )

    def get_write_buffer_size(self) -> int:
        return 4096 if self.write_buffer_size < 0 else self.write_buffer_size


@dataclass(frozen=True)
class JobManagerCheckpointStorage(CheckpointStorage):
    """In the memory of the job's coordinator: they survive the loss of tasks, not its own.
    `max_state_size` is only given back: there is no limit but that memory. A path would be another
    storage: ConfigurationError."""

    checkpoint_path: None = None
    max_state_size: int | None = None

    DEFAULT_MAX_STATE_SIZE: ClassVar[int] = 5 << 20

    def __post_init__(self) -> None:
        if self.checkpoint_path is not None:
            raise ConfigurationError(
                "JobManagerCheckpointStorage keeps checkpoints in memory only; for the folder "
                f"{self.checkpoint_path!r} use FileSystemCheckpointStorage"
            )

    def get_checkpoint_path(self) -> None:
        return None

    def get_savepoint_path(self) -> None:
        """There is none."""
        return None

    def get_max_state_size(self) -> int:
        return self.DEFAULT_MAX_STATE_SIZE if self.max_state_size is None else self.max_state_size


class StateBackend:
    """What holds a job's state while it runs: for `env.set_state_backend`."""


@dataclass(frozen=True)
class HashMapStateBackend(StateBackend):
    """In the memory of the tasks."""
