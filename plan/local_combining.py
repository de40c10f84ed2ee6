"""Local combining: windows aggregate on both sides of the exchange.

    source -> filter ==HASH(k)==> window          becomes
    source -> filter -> LocalCombine ==HASH(k)==> window

The program is rewritten when it is turned into a graph, so that parallelism, uids and the like are
final. `LocalCombine` runs in the chain of the operator before it, has no state, and sends fewer
records: per key and slice of time one partial aggregate, or the records that may hold an extreme.
Results are those of the program as written. Operators keep their ids, so that a checkpoint of
either form restores into the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..api.specs.records import OperatorSpec
from ..api.specs.windows import BuiltinWindow, ExtremeWindow, WindowSpec
from ..api.windows.base import WindowAssigner
from ..api.windows.time_windows import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from ..api.windows.triggers import EventTimeTrigger
from ..core.keys import ExpressionKey, FunctionKey
from ..core.partials import PartialKey
from ..engine.graph.chaining import chainable
from ..engine.graph.model import Forward, KeyGroups, StreamEdge, StreamGraph, StreamNode
from ..engine.graph.operator_ids import derived_operator_id

COMBINABLE = ("count", "sum", "min", "max", "mean", "variance", "stddev")
"""Aggregates that are a few numbers whatever they have seen, and that do not depend on the order in
which records arrive at the window operator."""


@dataclass(frozen=True)
class LocalCombineSpec(OperatorSpec):
    """Aggregates, ahead of the exchange, for the window operator of `window`."""

    window: WindowSpec


def combine_locally(graph: StreamGraph) -> StreamGraph:
    """The graph with an operator before the exchange of each window that allows it; the same graph
    if there is none or the job's configuration says no."""
    config = graph.config
    if not (config.local_combining and config.chaining):
        return graph
    nodes = {node.id: node for node in graph.nodes}
    found = [edge for edge in graph.edges if _allows(nodes[edge.source], nodes[edge.target], edge)]
    return _with_operators(graph, nodes, found) if found else graph


def combinable(spec: object) -> bool:
    """Whether an operator of this spec takes partials, and what it emits cannot tell."""
    if not isinstance(spec, WindowSpec) or isinstance(spec.key, FunctionKey):
        return False
    if spec.allowed_lateness_ms or spec.late_tag is not None:
        return False
    if spec.trigger is not None and not isinstance(spec.trigger, EventTimeTrigger):
        return False
    return _sliced(spec.assigner) and _foldable(spec.function)


def _sliced(assigner: WindowAssigner) -> bool:
    """Whether the windows are unions of slices without gaps between them."""
    match assigner:
        case TumblingEventTimeWindows() | CumulateEventTimeWindows():
            return True
        case SlidingEventTimeWindows():
            return assigner.size >= assigner.slide
    return False


def _foldable(function: object) -> bool:
    match function:
        case BuiltinWindow(aggregates):
            return all(aggregate.kind in COMBINABLE for _, aggregate in aggregates)
        case ExtremeWindow():
            return True
    return False


def _allows(source: StreamNode, target: StreamNode, edge: StreamEdge) -> bool:
    alone = target.parallelism == 1 and not isinstance(edge.partitioner, Forward)
    if not (alone or isinstance(edge.partitioner, KeyGroups)):
        return False
    if edge.port or not combinable(target.spec):
        return False
    return chainable(source, _local(source, target, 0), _to_local(edge, 0), 1)


def _with_operators(
    graph: StreamGraph, nodes: Mapping[int, StreamNode], found: list[StreamEdge]
) -> StreamGraph:
    """Nodes are numbered anew, each local operator right before the window it works for."""
    made: list[StreamNode] = []
    new: dict[int, int] = {}
    local: dict[int, int] = {}
    """Position in `found` -> id of the local operator."""
    for node in graph.nodes:
        for number, edge in enumerate(found):
            if edge.target == node.id:
                local[number] = len(made)
                made.append(replace(_local(nodes[edge.source], node, number), id=len(made)))
        new[node.id] = len(made)
        made.append(replace(node, id=len(made)))
    edges: list[StreamEdge] = []
    for edge in graph.edges:
        moved = replace(edge, source=new[edge.source], target=new[edge.target])
        at = next((local[i] for i, one in enumerate(found) if one is edge), None)
        edges += [moved] if at is None else [_to_local(moved, at), _from_local(moved, at)]
    return replace(graph, nodes=tuple(made), edges=tuple(edges))


def _local(source: StreamNode, target: StreamNode, number: int) -> StreamNode:
    """The operator in the chain of `source` that works for `target`; `number`: among several."""
    return StreamNode(
        id=-1,
        operator_id=derived_operator_id("local combine", target.operator_id, number),
        name=f"LocalCombine({target.name})",
        spec=LocalCombineSpec(target.spec),
        parallelism=source.parallelism,
        max_parallelism=source.max_parallelism,
        slot_sharing_group=source.slot_sharing_group,
    )


def _to_local(edge: StreamEdge, local: int) -> StreamEdge:
    return StreamEdge(edge.source, local, Forward(), edge.tag)


def _from_local(edge: StreamEdge, local: int) -> StreamEdge:
    partitioner = edge.partitioner
    if isinstance(partitioner, KeyGroups) and isinstance(partitioner.key, ExpressionKey):
        partitioner = KeyGroups(PartialKey(partitioner.key))
    return StreamEdge(local, edge.target, partitioner)
