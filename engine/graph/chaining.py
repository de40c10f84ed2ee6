"""StreamGraph -> JobGraph: operators that can run in one task are fused into one vertex.

Within a chain a batch is handed on by a function call; between chains it travels on a channel.
An operator joins the chain of its input when it has exactly one input edge, that edge is Forward,
both sides have the same parallelism, max parallelism and slot sharing group, and neither side's
chaining strategy nor the job forbids it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ...core.ids import VertexId
from .model import (
    ChainedOperator,
    Forward,
    InnerEdge,
    JobEdge,
    JobGraph,
    JobVertex,
    StreamEdge,
    StreamGraph,
    StreamNode,
)


def chainable(source: StreamNode, target: StreamNode, edge: StreamEdge, inputs: int) -> bool:
    """Whether `target`, which has `inputs` input edges, may run in the chain of `source`."""
    return (
        inputs == 1
        and isinstance(edge.partitioner, Forward)
        and not target.is_source
        and source.chaining != "never"
        and target.chaining == "always"
        and source.parallelism == target.parallelism
        and source.max_parallelism == target.max_parallelism
        and source.slot_sharing_group == target.slot_sharing_group
    )


def build_job_graph(graph: StreamGraph) -> JobGraph:
    """Vertices in topological order; job edges numbered in the order of the stream edges."""
    heads = _chain_heads(graph)
    chains: dict[int, list[StreamNode]] = defaultdict(list)
    for node in graph.nodes:
        chains[heads[node.id]].append(node)
    inner, outer, edges = _split_edges(graph, heads, chains)
    vertices = tuple(
        _vertex(members, inner, outer) for _, members in sorted(chains.items(), key=_by_head)
    )
    return JobGraph(graph.name, vertices, tuple(edges), graph.config)


def _by_head(item: tuple[int, list[StreamNode]]) -> int:
    return item[0]


def _chain_heads(graph: StreamGraph) -> dict[int, int]:
    """Node id -> id of the first node of its chain. A head's inputs all have smaller ids, so the
    order of head ids is a topological order of the chains."""
    inputs: dict[int, list[StreamEdge]] = defaultdict(list)
    for edge in graph.edges:
        inputs[edge.target].append(edge)
    nodes = {node.id: node for node in graph.nodes}
    heads: dict[int, int] = {}
    for node in graph.nodes:
        heads[node.id] = node.id
        for edge in inputs[node.id]:
            source = nodes[edge.source]
            if graph.config.chaining and chainable(source, node, edge, len(inputs[node.id])):
                heads[node.id] = heads[source.id]
    return heads


def _split_edges(
    graph: StreamGraph, heads: Mapping[int, int], chains: Mapping[int, Sequence[StreamNode]]
) -> tuple[dict[int, list[InnerEdge]], dict[int, list[int]], list[JobEdge]]:
    """Edges within chains and job-edge ids, both by the node they leave, and the job edges."""
    position = {node.id: i for members in chains.values() for i, node in enumerate(members)}
    vertex_ids = {head: VertexId(members[0].operator_id) for head, members in chains.items()}
    inner: dict[int, list[InnerEdge]] = defaultdict(list)
    outer: dict[int, list[int]] = defaultdict(list)
    timeouts = {node.id: node.buffer_timeout for node in graph.nodes}
    edges: list[JobEdge] = []
    for edge in graph.edges:
        source_head, target_head = heads[edge.source], heads[edge.target]
        if source_head == target_head:
            key = edge.partitioner.key if isinstance(edge.partitioner, Forward) else None
            inner[edge.source].append(InnerEdge(position[edge.target], edge.tag, edge.port, key))
            continue
        outer[edge.source].append(len(edges))
        edges.append(
            JobEdge(
                len(edges),
                vertex_ids[source_head],
                vertex_ids[target_head],
                edge.partitioner,
                edge.tag,
                edge.port,
                timeouts[edge.source],
            )
        )
    return inner, outer, edges


def _vertex(
    members: Sequence[StreamNode],
    inner: Mapping[int, Sequence[InnerEdge]],
    outer: Mapping[int, Sequence[int]],
) -> JobVertex:
    operators = tuple(
        ChainedOperator(
            operator_id=node.operator_id,
            name=node.name,
            spec=node.spec,
            inner=tuple(inner.get(node.id, ())),
            outer=tuple(outer.get(node.id, ())),
            is_source=node.is_source,
            is_sink=node.is_sink,
            description=node.description,
            implementation=node.implementation,
            uid=node.uid,
            named=node.uid is not None,
            migrations=node.migrations,
            state_backend=node.state_backend,
        )
        for node in members
    )
    head = members[0]
    return JobVertex(
        id=VertexId(head.operator_id),
        name=chain_name(operators),
        operators=operators,
        parallelism=head.parallelism,
        max_parallelism=head.max_parallelism,
        slot_sharing_group=head.slot_sharing_group,
    )


def chain_name(operators: Sequence[ChainedOperator], index: int = 0) -> str:
    """`a -> b -> c`; where the chain branches `a -> (b -> c, d)`."""
    operator = operators[index]
    rest = [chain_name(operators, edge.target) for edge in operator.inner]
    match rest:
        case []:
            return operator.name
        case [only]:
            return f"{operator.name} -> {only}"
        case _:
            return f"{operator.name} -> ({', '.join(rest)})"
