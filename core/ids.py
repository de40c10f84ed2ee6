"""Small types for the things that must not be swapped for one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

OperatorId = NewType("OperatorId", str)
"""Stable id of one operator: derived from the user's uid, else from the topology."""

VertexId = NewType("VertexId", str)
"""Id of one job vertex (a chain): the operator id of the chain's head."""

CheckpointId = NewType("CheckpointId", int)
"""1, 2, 3, ... within one job; never reused, also not after a restart."""

NO_CHECKPOINT = CheckpointId(0)

Attempt = NewType("Attempt", int)
"""How many times the job has been (re)deployed: 0, 1, 2, ... Fences stale messages."""

ChannelId = NewType("ChannelId", int)
"""Index of a channel in the execution graph; unique within one job."""


Deal = tuple[int, ...]
"""Which key groups each subtask of a vertex has: the first of each, ascending from 0."""

EVEN: Final[Deal] = ()
"""As many for each as for the others (`state.key_groups.range_for`)."""


@dataclass(frozen=True, order=True, slots=True)
class TaskId:
    """One parallel subtask of one vertex."""

    vertex: VertexId
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex}[{self.subtask}]"


@dataclass(frozen=True, order=True, slots=True)
class KeyGroupRange:
    """Key groups `first..last`, both inclusive. Empty when `last < first`."""

    first: int
    last: int

    def __contains__(self, group: int) -> bool:
        return self.first <= group <= self.last

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)
