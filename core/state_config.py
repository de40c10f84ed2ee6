"""Where a job keeps its keyed state while it runs, and how much memory that may take."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field

from .checks import check_count, check_kind, check_number
from .errors import ConfigurationError

MEMORY, ROCKSDB = "memory", "rocksdb"

BACKENDS = {
    "memory": MEMORY,
    "hashmap": MEMORY,
    "filesystem": MEMORY,
    "jobmanager": MEMORY,
    "rocksdb": ROCKSDB,
}
"""Names of backends, and which they are: all but `memory` are Flink's."""


COMPRESSIONS = ("none", "snappy", "lz4", "zstd")
"""Of RocksDB's files."""


def compression_named(name: str) -> str:
    """One of COMPRESSIONS; Flink's names are taken, too: `NO_COMPRESSION`, `LZ4_COMPRESSION`.
    ConfigurationError if there is none of that name."""
    check_kind("compression", name, str)
    found = name.lower().removesuffix("_compression")
    found = "none" if found in ("no", "disable") else found
    if found not in COMPRESSIONS:
        raise ConfigurationError(
            f"RocksDB's files are not compressed by '{name}': there are {', '.join(COMPRESSIONS)}"
        )
    return found


def backend_named(name: str) -> str:
    """MEMORY or ROCKSDB. ConfigurationError if there is none of that name."""
    check_kind("state backend", name, str)
    found = BACKENDS.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), BACKENDS, 1, 0.0)
        raise ConfigurationError(
            f"there is no state backend '{name}': did you mean '{near[0]}'? There are "
            f"{', '.join(sorted(BACKENDS))}"
        )
    return found


@dataclass(frozen=True)
class StateConfig:
    """`backend`: `memory` (or `hashmap`), or `rocksdb`, of which all else is.

    `memory`: bytes for all tasks of one process together: their caches of what is in use, the block
    cache, and the write buffers. `rocksdb_share`: which part of it RocksDB has; the rest is for the
    caches. `write_buffer_share`: which part of RocksDB's is for write buffers.
    `local_dirs`: folders for databases; none: the system's folder for temporary files. `by_uid`:
    of operators that keep their state elsewhere than `backend` says, by their uid.
    `mapped`: whether RocksDB's files are mapped into memory, the page cache's and none of `memory`:
    what is not in the caches is read faster, and shows in the process's resident memory.
    `compression`: of RocksDB's files, one of COMPRESSIONS for each level; the last one is for all
    further levels.
    """

    backend: str = MEMORY
    memory: int = 256 << 20
    rocksdb_share: float = 0.5
    write_buffer_share: float = 0.5
    local_dirs: tuple[str, ...] = ()
    by_uid: dict[str, str] = field(default_factory=dict, hash=False)
    mapped: bool = False
    compression: tuple[str, ...] = ("lz4",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "backend", backend_named(self.backend))
        check_kind("by_uid", self.by_uid, dict)
        named = {uid: backend_named(name) for uid, name in self.by_uid.items()}
        object.__setattr__(self, "by_uid", named)
        check_count("memory of state", self.memory, 1)
        for name in ("rocksdb_share", "write_buffer_share"):
            check_number(name, getattr(self, name), 0.0)
            if not 0 < getattr(self, name) < 1:
                raise ConfigurationError(
                    f"{name} must be between 0 and 1, is {getattr(self, name)}"
                )
        check_kind("local_dirs", self.local_dirs, tuple)
        check_kind("mapped", self.mapped, bool)
        check_kind("compression", self.compression, tuple)
        named_levels = tuple(compression_named(name) for name in self.compression)
        if not named_levels:
            raise ConfigurationError("compression needs one name at least; `none` is one")
        object.__setattr__(self, "compression", named_levels)
