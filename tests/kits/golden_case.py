"""What all cases of golden checkpoints are written with, and what they are read from."""

from __future__ import annotations

from dataclasses import dataclass

from strom.testing.operator_harness import OperatorSnapshotTables

MAX_PARALLELISM = 16
WRITTEN_BY = 2
"""Subtasks that a set's operators had."""

KEYS = 6
NOW_MS = 1_000


@dataclass(frozen=True)
class Restored:
    """One subtask's share of an operator's state, as read from a checkpoint."""

    subtask: int
    parallelism: int
    tables: OperatorSnapshotTables
