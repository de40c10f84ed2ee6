"""What a program records while it is written: one `Transformation` per operator.

Partitioning, union and side-output selection create no transformation of their own: they are
folded into the `Input`s of the operator that reads the stream, where they will become edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ...core.config import SlotResources
from .model import ChainingStrategy, Partitioner


@dataclass(frozen=True)
class Input:
    """One stream an operator reads.

    `tag`: None for the main output of `source`, else a side output. `partitioner` None: Forward
    between equal parallelisms, else Rebalance; decided when the graph is built, because the
    parallelism of either side may still be set.
    """

    source: Transformation
    tag: str | None = None
    partitioner: Partitioner | None = None
    port: int = 0


@dataclass(eq=False)
class Transformation:
    """One operator while the program is being written; settings change until the graph is built.

    id: creation order within one environment, so every input's id is smaller than its reader's.
    max_parallelism, slot_sharing_group: None means the job's default and, for the group, the group
    all inputs have in common.
    uid_hash: the operator's id as it is, whatever its uid.
    slot_resources: of the slots of its group; buffer_timeout: of what it sends; state_backend: of
    its keyed state; None: the job's.
    fixed_parallelism: the operator only works with the parallelism it has.
    """

    id: int
    spec: Any
    name: str
    inputs: tuple[Input, ...]
    parallelism: int
    max_parallelism: int | None = None
    uid: str | None = None
    uid_hash: str | None = None
    chaining: ChainingStrategy = "always"
    slot_sharing_group: str | None = None
    slot_resources: SlotResources | None = None
    buffer_timeout: timedelta | None = None
    description: str = ""
    is_source: bool = False
    is_sink: bool = False
    fixed_parallelism: bool = False
    migrations: dict[str | None, Any] = field(default_factory=dict)
    """What has become of its states (`state.column_migration.Migrations`)."""
    state_backend: str | None = None

    def __repr__(self) -> str:
        return f"Transformation({self.id}, {self.name!r}, x{self.parallelism})"
