"""The program's graph, planned."""

from __future__ import annotations

from dataclasses import replace

from ..engine.graph.model import StreamGraph
from .choices import choose
from .kept_partitions import keep_partitions
from .local_combining import combine_locally


def plan(graph: StreamGraph) -> StreamGraph:
    """The graph that runs: same results, same operator ids, and each operator with what it runs
    as. Asks nothing of sources."""
    compiles = graph.config.compile_functions
    nodes = (replace(node, implementation=choose(node.spec, compiles)) for node in graph.nodes)
    return combine_locally(keep_partitions(replace(graph, nodes=tuple(nodes))))
