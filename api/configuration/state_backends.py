"""RocksDB as PyFlink's object; and from such an object, or a name, to settings and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ...core.checks import check_kind
from ...core.errors import ConfigurationError
from ...core.state_config import MEMORY, ROCKSDB, backend_named
from .settings import Settings
from .storage import HashMapStateBackend, StateBackend


class PredefinedOptions(Enum):
    """Flink's sets of options of RocksDB."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


@dataclass(eq=True)
class EmbeddedRocksDBStateBackend(StateBackend):
    """In a local RocksDB of each task, and in its caches what is in use.

    enable_incremental_checkpointing: None leaves it as the checkpoint settings say."""

    enable_incremental_checkpointing: bool | None = None

    def __post_init__(self) -> None:
        incremental = self.enable_incremental_checkpointing
        check_kind("enable_incremental_checkpointing", incremental, bool, type(None))
        self._paths: tuple[str, ...] = ()
        self._threads = 4

    def set_db_storage_paths(self, *paths: str) -> None:
        """Folders for local databases, which tasks take turns in, in place of the system's folder
        for temporary files."""
        if not paths or not all(isinstance(path, str) and path for path in paths):
            raise ConfigurationError(
                f"set_db_storage_paths: needs one folder at least, as text, got {paths!r}"
            )
        self._paths = tuple(path.removeprefix("file://") for path in paths)

    def get_db_storage_paths(self) -> list[str]:
        """None were set: empty."""
        return list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        return self.enable_incremental_checkpointing is not False

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """DEFAULT only."""
        check_kind("options", options, PredefinedOptions)
        if options is not PredefinedOptions.DEFAULT:
            raise ConfigurationError(
                f"there is no set {options.name} of RocksDB's options: they are chosen for "
                "streams; its memory is state.backend.rocksdb.memory.fixed-per-tm"
            )

    def get_predefined_options(self) -> PredefinedOptions:
        return PredefinedOptions.DEFAULT

    def set_options(self, options_factory_class_name: str) -> None:
        """Always a ConfigurationError: it names a Java class."""
        raise ConfigurationError(
            f"set_options: '{options_factory_class_name}' names a Java class; RocksDB's options "
            "are chosen for streams, and its memory is state.backend.rocksdb.memory.fixed-per-tm"
        )

    def get_options(self) -> None:
        """There is no factory."""
        return None

    def get_number_of_transfer_threads(self) -> int:
        return self._threads

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Only given back."""
        if number_of_transfering_threads < 1:
            raise ConfigurationError(
                "the number of transfer threads must be at least 1, is "
                f"{number_of_transfering_threads}"
            )
        self._threads = number_of_transfering_threads


def backend_of(who: str, backend: StateBackend | str) -> str:
    """MEMORY or ROCKSDB. `who`: for errors."""
    match backend:
        case str():
            return backend_named(backend)
        case HashMapStateBackend():
            return MEMORY
        case EmbeddedRocksDBStateBackend():
            return ROCKSDB
    raise ConfigurationError(
        f"{who}: expected HashMapStateBackend(), EmbeddedRocksDBStateBackend(), or the name of "
        f"one ('hashmap', 'rocksdb'), got {backend!r}"
    )


def operators_backend(who: str, backend: StateBackend | str) -> str:
    """MEMORY or ROCKSDB, for one operator; ConfigurationError if the object says what concerns the
    whole job."""
    name = backend_of(who, backend)
    if isinstance(backend, EmbeddedRocksDBStateBackend) and (
        backend.get_db_storage_paths() or backend.enable_incremental_checkpointing is not None
    ):
        raise ConfigurationError(
            f"{who}: folders of databases and incremental checkpoints are the job's: set them with "
            "env.set_state_backend"
        )
    return name


def set_backend(settings: Settings, backend: StateBackend | str) -> None:
    """Of jobs to come."""
    changes: dict[str, Any] = {"backend": backend_of("set_state_backend", backend)}
    if isinstance(backend, EmbeddedRocksDBStateBackend):
        if backend.get_db_storage_paths():
            changes["local_dirs"] = tuple(backend.get_db_storage_paths())
        if backend.enable_incremental_checkpointing is not None:
            settings.checkpoint.enable_incremental_checkpoints(
                backend.enable_incremental_checkpointing
            )
    settings.change(state=replace(settings.base.state, **changes))


def current_backend(settings: Settings) -> StateBackend:
    """As an object; changing it changes nothing here."""
    state = settings.base.state
    if state.backend == MEMORY:
        return HashMapStateBackend()
    found = EmbeddedRocksDBStateBackend(settings.checkpoint.is_incremental_checkpoints_enabled())
    if state.local_dirs:
        found.set_db_storage_paths(*state.local_dirs)
    return found
