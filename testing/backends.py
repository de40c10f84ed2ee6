"""Which state backend a run has, drawn by its seed: state is in memory, or in RocksDB with caches
of a few bytes or kilobytes, so that what is not in use has left them.

A program does not show which one it runs on; what is checked on one is checked on both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..core.config import JobConfig
from ..core.state_config import StateConfig

IN_MEMORY: Final = StateConfig()

_ROCKSDB: Final = 8 << 20
"""Bytes of block cache and write buffers: with less RocksDB does little but write files."""

_SHARED_MEMORY: Final = Path("/dev/shm")
"""Where there is one, databases open there in a fraction of the time."""


def fast_dirs() -> tuple[str, ...]:
    """A folder in memory for local files, if there is one."""
    folder = str(_SHARED_MEMORY)
    there = _SHARED_MEMORY.is_dir() and os.access(folder, os.W_OK | os.X_OK)
    return (folder,) if there else ()


def spilling(kept: int) -> StateConfig:
    """RocksDB with so many bytes of caches for the whole process."""
    memory = _ROCKSDB + kept
    return StateConfig(
        "rocksdb",
        memory=memory,
        rocksdb_share=1 - (kept - 0.5) / memory,
        local_dirs=fast_dirs(),
    )


SPILLING: Final = tuple(map(spilling, (8, 4 << 10, 64 << 10)))


def state_of(seed: int, run: int = 0) -> StateConfig:
    """Of one run of a seed; a job that goes on from the state of run n is run n + 1, and of every
    four seeds one changes to RocksDB at run 2, one to memory, one stays there and one here."""
    drawn = SPILLING[seed // 4 % len(SPILLING)]
    in_memory = {0: (1,), 1: (0, 2), 2: (), 3: (0, 1, 2)}[seed % 4]
    return IN_MEMORY if run in in_memory else drawn


def job_of(seed: int) -> JobConfig:
    """A job whose state leaves memory with one of ten seeds, and stays there with the others: to
    open a database takes longer than all that a small case does."""
    return JobConfig(state=SPILLING[seed // 10 % len(SPILLING)] if seed % 10 == 3 else IN_MEMORY)


def state_of_step(seed: int, restores: int) -> StateConfig:
    """Of an operator that has been restored so often. Three of four seeds stay in memory: to open
    a database takes longer than all that a small case does."""
    if seed % 4 != 3:
        return IN_MEMORY
    return state_of(seed // 4, 1 + restores % 2)
