"""The program's graph, planned."""

from __future__ import annotations

from ..engine.graph.model import StreamGraph
from .kept_partitions import keep_partitions
from .local_combining import combine_locally


def plan(graph: StreamGraph) -> StreamGraph:
    """The graph that runs: same results, same operator ids."""
    return combine_locally(keep_partitions(graph))
