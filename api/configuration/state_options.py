"""Options of state backends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ...core.state_config import StateConfig
from .memory import MemorySize
from .registry import Apply, known
from .settings import Settings
from .values import BOOLEAN, FLOAT, LIST, MAP, MEMORY, STRING, folders_in


def _state(name: str) -> Apply:
    def apply(settings: Settings, value: Any) -> None:
        settings.change(state=replace(settings.base.state, **{name: value}))

    return apply


def _set_memory(settings: Settings, value: MemorySize) -> None:
    settings.change(state=replace(settings.base.state, memory=value.bytes_size))


def _set_folders(settings: Settings, value: str) -> None:
    settings.change(state=replace(settings.base.state, local_dirs=folders_in(value)))


def _set_compression(settings: Settings, value: list[str]) -> None:
    settings.change(state=replace(settings.base.state, compression=tuple(value)))


_DEFAULTS: Final = StateConfig()

STATE_OPTIONS: Final = (
    known(
        "state.backend.type",
        STRING,
        "hashmap",
        _state("backend"),
        "`hashmap` (or `memory`), or `rocksdb`",
        "state.backend",
    ),
    known(
        "strom.state.backend-by-uid",
        MAP,
        None,
        _state("by_uid"),
        "the same for single operators, by their uid: `strom.state.backend-by-uid.<uid>`",
    ),
    known(
        "state.backend.rocksdb.memory.fixed-per-tm",
        MEMORY,
        MemorySize(_DEFAULTS.memory),
        _set_memory,
        "of all tasks of a process together: caches, block cache and write buffers",
    ),
    known(
        "state.backend.rocksdb.memory.write-buffer-ratio",
        FLOAT,
        _DEFAULTS.write_buffer_share,
        _state("write_buffer_share"),
        "which part of RocksDB's memory is for write buffers",
    ),
    known(
        "strom.state.rocksdb-ratio",
        FLOAT,
        _DEFAULTS.rocksdb_share,
        _state("rocksdb_share"),
        "which part of the memory is RocksDB's; the rest is for caches of what is in use",
    ),
    known(
        "state.backend.rocksdb.localdir",
        STRING,
        None,
        _set_folders,
        "folders for local databases, separated by commas; else the system's temporary folder",
    ),
    known(
        "state.backend.rocksdb.compression.per.level",
        LIST,
        list(_DEFAULTS.compression),
        _set_compression,
        "of RocksDB's files, by level, the last for all further ones: `none`, `snappy`, `lz4`, "
        "`zstd`, or Flink's names of these",
    ),
    known(
        "strom.state.rocksdb-mmap",
        BOOLEAN,
        _DEFAULTS.mapped,
        _state("mapped"),
        "whether RocksDB's files are mapped into memory, beside that of the caches",
    ),
)
