"""A job as the autoscaler sees it: vertices that may have other parallelisms, and what flows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal

from ..core.errors import ConfigurationError
from ..core.ids import VertexId

Ship = Literal["forward", "spread", "broadcast"]
"""How records of an edge reach the subtasks of its target. forward: subtask i to subtask i, so both
sides have one parallelism; spread: each record to one subtask; broadcast: each record to all."""


@dataclass(frozen=True)
class Vertex:
    """`key_groups`: no more subtasks than that (max_parallelism). `keyed`: subtasks own ranges of
    key groups. `partitions`: of a source, how many there are to read; None: not known. `fixed`: why
    its parallelism stays as it is; None: it may change. `labels`: what a configuration may call it
    by, besides its id and name."""

    id: VertexId
    name: str
    key_groups: int = 128
    keyed: bool = False
    partitions: int | None = None
    fixed: str | None = None
    labels: tuple[str, ...] = ()

    @property
    def portions(self) -> int | None:
        """Of so many equal portions each subtask gets some whole ones; None: any part."""
        return self.key_groups if self.keyed else self.partitions

    @property
    def most(self) -> int:
        """No more subtasks have anything to do."""
        return min(self.key_groups, self.partitions or self.key_groups)


@dataclass(frozen=True)
class Edge:
    """`id`: that of the job graph's edge."""

    id: int
    source: VertexId
    target: VertexId
    ship: Ship = "spread"


@dataclass(frozen=True)
class Shape:
    """Vertices in topological order."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        place = {vertex.id: at for at, vertex in enumerate(self.vertices)}
        for edge in self.edges:
            if edge.source not in place or edge.target not in place:
                raise ConfigurationError(f"edge {edge.id} is between vertices that are not there")
            if place[edge.source] >= place[edge.target]:
                raise ConfigurationError(
                    f"vertices must be in topological order: '{edge.source}' feeds '{edge.target}'"
                )

    @cached_property
    def inputs(self) -> Mapping[VertexId, tuple[Edge, ...]]:
        """By vertex; none: a source."""
        return {v.id: tuple(e for e in self.edges if e.target == v.id) for v in self.vertices}

    @cached_property
    def by_id(self) -> Mapping[VertexId, Vertex]:
        return {vertex.id: vertex for vertex in self.vertices}

    @cached_property
    def together(self) -> tuple[tuple[Vertex, ...], ...]:
        """Vertices that have one parallelism, as forward edges are between them; each is in one."""
        return self._joined(edge for edge in self.edges if edge.ship == "forward")

    @cached_property
    def pipelines(self) -> tuple[tuple[Vertex, ...], ...]:
        """Vertices that hold up each other, as there are edges between them; each is in one."""
        return self._joined(self.edges)

    def _joined(self, edges: Iterable[Edge]) -> tuple[tuple[Vertex, ...], ...]:
        leader = {vertex.id: vertex.id for vertex in self.vertices}
        for edge in edges:
            kept, gone = leader[edge.source], leader[edge.target]
            leader = {v: kept if one == gone else one for v, one in leader.items()}
        return tuple(
            tuple(v for v in self.vertices if leader[v.id] == first)
            for first in dict.fromkeys(leader.values())
        )


def chain_of(vertices: Iterable[Vertex]) -> Shape:
    """One behind the other, with records spread between them."""
    known = tuple(vertices)
    edges = (Edge(n, a.id, b.id) for n, (a, b) in enumerate(pairwise(known)))
    return Shape(known, tuple(edges))
