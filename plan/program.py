"""The program's graph, planned."""

from __future__ import annotations

from dataclasses import replace

from ..engine.graph.model import StreamGraph
from .choices import choose
from .column_reads import leave_out_columns
from .kept_partitions import keep_partitions
from .local_combining import combine_locally


def plan(graph: StreamGraph) -> StreamGraph:
    """The graph that runs: same results, same operator ids, and each operator with what it runs
    as. Asks nothing of sources."""
    compiles = graph.config.compile_functions
    nodes = (replace(node, implementation=choose(node.spec, compiles)) for node in graph.nodes)
    chosen = leave_out_columns(replace(graph, nodes=tuple(nodes)))
    return combine_locally(keep_partitions(chosen))
