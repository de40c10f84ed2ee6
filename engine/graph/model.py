"""The three graphs as plain data.

    StreamGraph      one node per operator of the program     (what the user wrote)
    JobGraph         one vertex per chain of operators         (what is deployed)
    ExecutionGraph   one subtask per vertex and index, and the channels between subtasks

All are immutable after construction and pickle (user functions by cloudpickle).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final, Literal

from ...core.config import JobConfig
from ...core.errors import SerializationError
from ...core.failure_text import described
from ...core.ids import EVEN, ChannelId, Deal, OperatorId, TaskId, VertexId
from ...core.keys import KeySelector
from ...core.shown import shows
from .implementation import Implementation

SAVED: Final = f"strom graph 1 {sys.version_info[0]}.{sys.version_info[1]}\n".encode()
"""What a saved graph begins with: pickles of one version say nothing to another."""


@dataclass(frozen=True)
class Forward:
    """Subtask i to subtask i; both sides have one parallelism. `key`: by the key groups of which
    the records are in their subtasks already, if that is known: who restores what was on its way
    asks for it."""

    key: KeySelector | None = None


@dataclass(frozen=True)
class Rebalance:
    """Round-robin over all downstream subtasks, batch by batch."""


@dataclass(frozen=True)
class Rescale:
    """Round-robin over this subtask's share of the downstream subtasks."""


@dataclass(frozen=True)
class Shuffle:
    """Each record to a random downstream subtask."""


@dataclass(frozen=True)
class Broadcast:
    """Every record to every downstream subtask."""


@dataclass(frozen=True)
class Global:
    """Everything to subtask 0."""


@dataclass(frozen=True)
class KeyGroups:
    """By the key's key group."""

    key: KeySelector


@dataclass(frozen=True)
class Custom:
    """`partition(key, num_partitions)` of the user, on keys from `key`."""

    partition: Callable[[Any, int], int]
    key: KeySelector


Partitioner = Forward | Rebalance | Rescale | Shuffle | Broadcast | Global | KeyGroups | Custom

ChainingStrategy = Literal["always", "head", "never"]
"""always: may be chained to its input; head: may only start a chain; never: alone."""


@dataclass(frozen=True)
class StreamEdge:
    """`tag`: None for the main output of `source`, else a side output. `port`: input of
    `target`."""

    source: int
    target: int
    partitioner: Partitioner
    tag: str | None = None
    port: int = 0


@dataclass(frozen=True)
class StreamNode:
    """One operator of the program. `spec` is opaque to the graph (an `api.specs.OperatorSpec`).
    `implementation`: None until it is planned."""

    id: int
    operator_id: OperatorId
    name: str
    spec: Any
    parallelism: int
    max_parallelism: int
    uid: str | None = None
    chaining: ChainingStrategy = "always"
    slot_sharing_group: str = "default"
    is_source: bool = False
    is_sink: bool = False
    description: str = ""
    implementation: Implementation | None = None
    buffer_timeout: timedelta | None = None
    """Of what it sends to other tasks; None: the job's."""
    migrations: Mapping[str | None, Any] = field(default_factory=dict, hash=False)
    """Of its states; opaque to the graph, too."""
    state_backend: str | None = None
    """Of its keyed state; None: the job's."""


@dataclass(frozen=True)
class StreamGraph:
    """Nodes in topological order (by id) and the edges between them."""

    name: str
    nodes: tuple[StreamNode, ...]
    edges: tuple[StreamEdge, ...]
    config: JobConfig

    def _repr_html_(self) -> str:
        return shows().graph_html(self)


@dataclass(frozen=True)
class InnerEdge:
    """From this chained operator to operator `target` (index within the chain). `key`: as of
    Forward."""

    target: int
    tag: str | None = None
    port: int = 0
    key: KeySelector | None = None


@dataclass(frozen=True)
class ChainedOperator:
    """An operator within a chain; index 0 is the head. `inner`: chained consumers, `outer`: ids of
    the job edges it feeds."""

    operator_id: OperatorId
    name: str
    spec: Any
    inner: tuple[InnerEdge, ...] = ()
    outer: tuple[int, ...] = ()
    is_source: bool = False
    is_sink: bool = False
    description: str = ""
    implementation: Implementation | None = None
    uid: str | None = None
    """That the program gave it, or its uid hash."""
    named: bool = True
    """Whether a program gave it its id (a uid), which then outlives changes around it."""
    migrations: Mapping[str | None, Any] = field(default_factory=dict, hash=False)
    state_backend: str | None = None


@dataclass(frozen=True)
class JobEdge:
    """Data exchange between two chains; its target is always the head of the target chain."""

    id: int
    source: VertexId
    target: VertexId
    partitioner: Partitioner
    tag: str | None = None
    port: int = 0
    buffer_timeout: timedelta | None = None
    """How long records may wait for their buffer to fill; None: as the job says."""


@dataclass(frozen=True)
class JobVertex:
    """A chain of operators, run as `parallelism` subtasks. Operators are in topological order."""

    id: VertexId
    name: str
    operators: tuple[ChainedOperator, ...]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str = "default"
    deal: Deal = EVEN
    """Of its key groups to its subtasks; with forward edges go equal ones."""

    @property
    def is_source(self) -> bool:
        return self.operators[0].is_source

    def label(self, subtask: int) -> str:
        """What one of its tasks is called, as in `Map (1/2)`."""
        return label_of(self.name, subtask, self.parallelism)


def label_of(vertex: str, subtask: int, parallelism: int) -> str:
    """What a task of a vertex of this name is called.

    >>> label_of("Map", 0, 2)
    'Map (1/2)'
    """
    return f"{vertex} ({subtask + 1}/{parallelism})"


@dataclass(frozen=True)
class JobGraph:
    """Vertices in topological order."""

    name: str
    vertices: tuple[JobVertex, ...]
    edges: tuple[JobEdge, ...]
    config: JobConfig

    def vertex(self, vertex_id: VertexId) -> JobVertex:
        return next(v for v in self.vertices if v.id == vertex_id)

    def edge(self, edge_id: int) -> JobEdge:
        return next(e for e in self.edges if e.id == edge_id)

    def _repr_html_(self) -> str:
        return shows().graph_html(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Into a file that `strom run --graph` runs: a pickle, which runs code of whoever made it
        where it is opened. It is for the same version of strom and Python; files that come with
        the job stay where they are, and are read when it is submitted. SerializationError."""
        from ...core import code_pickles

        try:
            data = code_pickles.dumps(self)
        except Exception as error:
            raise SerializationError(
                f"job '{self.name}' cannot be saved: it does not pickle ({described(error)})"
            ) from error
        Path(path).write_bytes(SAVED + data)


@dataclass(frozen=True)
class Channel:
    """One subtask-to-subtask stream of one job edge.

    `source_index`: position among this edge's channels at the sender; `target_index`: position
    among all input channels of the receiver.
    """

    id: ChannelId
    edge: int
    source: TaskId
    target: TaskId
    source_index: int
    target_index: int
    port: int = 0
    buffer_timeout: timedelta | None = None


@dataclass(frozen=True)
class ExecutionGraph:
    """Subtasks in topological order, and channels by id."""

    job: JobGraph
    tasks: tuple[TaskId, ...]
    channels: tuple[Channel, ...]
    inputs: dict[TaskId, tuple[Channel, ...]] = field(default_factory=dict)
    outputs: dict[TaskId, tuple[Channel, ...]] = field(default_factory=dict)
