"""Local combining: windows and running groups aggregate on both sides of the exchange.

    source -> filter ==HASH(k)==> window          becomes
    source -> filter -> LocalCombine ==HASH(k)==> window

The program is rewritten when it is turned into a graph, so that parallelism, uids and the like are
final. `LocalCombine` runs in the chain of the operator before it, has no state, and sends fewer
records: per key and slice of time one partial aggregate, or the records that may hold an extreme;
of running groups (`combining_groups`) one partial aggregate per key and batch.
Results are those of the program as written. Operators keep their ids, so that a checkpoint of
either form restores into the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..api.aggregate_kinds import kind_of
from ..api.specs.records import OperatorSpec
from ..api.specs.tables import GroupAggregateSpec
from ..api.specs.windows import BuiltinWindow, TopNWindow, WindowSpec
from ..core.config import JobConfig
from ..core.keys import ExpressionKey, FunctionKey
from ..core.partials import PartialKey
from ..engine.graph.chaining import chainable
from ..engine.graph.model import Forward, KeyGroups, StreamEdge, StreamGraph, StreamNode
from ..engine.graph.operator_ids import derived_operator_id
from .combining_groups import CombineGroupsSpec, combining_groups, groups_need_records
from .combining_types import combining
from .remarks import remarked
from .window_forms import Sliced
from .windows import window


@dataclass(frozen=True)
class LocalCombineSpec(OperatorSpec):
    """Aggregates, ahead of the exchange, for the window operator of `window`."""

    window: WindowSpec


def combine_locally(graph: StreamGraph) -> StreamGraph:
    """The graph with an operator before the exchange of each window and running aggregate that
    allows it; those on kernels that do not allow it are remarked why."""
    nodes = {node.id: node for node in graph.nodes}
    found: list[StreamEdge] = []
    for edge in graph.edges:
        source, target = nodes[edge.source], nodes[edge.target]
        groups = isinstance(target.spec, GroupAggregateSpec)
        if not _is_exchange(edge, target) or not (groups or _on_kernels(target.spec)):
            continue
        why_not = _why_not(graph.config, source, target, edge)
        if why_not is None:
            found.append(edge)
        else:
            nodes[target.id] = remarked(target, f"not combined ahead of the exchange: {why_not}")
    graph = replace(graph, nodes=tuple(nodes.values()))
    return _with_operators(graph, nodes, found) if found else graph


def combinable(spec: object) -> bool:
    """Whether an operator of this spec takes partials, and what it emits cannot tell."""
    return _on_kernels(spec) and isinstance(spec, WindowSpec) and _needs_records(spec) is None


def _on_kernels(spec: object) -> bool:
    return isinstance(spec, WindowSpec) and window(spec).kind == "kernel"


def _is_exchange(edge: StreamEdge, target: StreamNode) -> bool:
    alone = target.parallelism == 1 and not isinstance(edge.partitioner, Forward)
    return alone or isinstance(edge.partitioner, KeyGroups)


def _why_not(
    config: JobConfig, source: StreamNode, target: StreamNode, edge: StreamEdge
) -> str | None:
    """Why records travel one by one to a window on kernels; None where they need not."""
    if not config.local_combining:
        return "local_combining is off in the job's configuration"
    if not config.chaining:
        return "operators are not chained"
    if isinstance(target.spec, GroupAggregateSpec):
        why_not = groups_need_records(target.spec)
    else:
        why_not = _needs_records(target.spec)
    if why_not is None and not chainable(source, _local(source, target, 0), _to_local(edge, 0), 1):
        return f"nothing may be chained to '{source.name}'"
    return why_not


def _needs_records(spec: WindowSpec) -> str | None:
    """Why the window operator needs each record; None if partials will do."""
    if isinstance(spec.key, FunctionKey):
        return "the key is a Python function: name a column or an expression"
    if spec.allowed_lateness_ms:
        return "with allowed lateness, late records make windows fire again"
    if spec.late_tag is not None:
        return "late records go to a side output"
    form = window(spec).form
    if not (isinstance(form, Sliced) and spec.assigner.is_event_time()):
        return "it takes windows that slices of event time make up, and that fire at their end"
    if form.slicing.size < form.slicing.slide:
        return "there are gaps between the windows"
    match spec.function:
        case BuiltinWindow(aggregates):
            others = {one.kind for _, one in aggregates if not kind_of(one.kind).combines}
            if others:
                return f"{', '.join(sorted(others))} cannot be told from partial aggregates"
        case TopNWindow():
            return "top_n needs the records"
    return None


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
    spec: OperatorSpec
    if isinstance(target.spec, GroupAggregateSpec):
        spec = CombineGroupsSpec(target.spec)
        made = combining_groups(target.spec, source.parallelism)
    else:
        spec, made = LocalCombineSpec(target.spec), combining(target.spec, source.parallelism)
    return StreamNode(
        id=-1,
        operator_id=derived_operator_id("local combine", target.operator_id, number),
        name=f"LocalCombine({target.name})",
        spec=spec,
        implementation=made,
        parallelism=source.parallelism,
        max_parallelism=source.max_parallelism,
        slot_sharing_group=source.slot_sharing_group,
        buffer_timeout=source.buffer_timeout,
    )


def _to_local(edge: StreamEdge, local: int) -> StreamEdge:
    return StreamEdge(edge.source, local, Forward(), edge.tag)


def _from_local(edge: StreamEdge, local: int) -> StreamEdge:
    partitioner = edge.partitioner
    if isinstance(partitioner, KeyGroups) and isinstance(partitioner.key, ExpressionKey):
        partitioner = KeyGroups(PartialKey(partitioner.key))
    return StreamEdge(local, edge.target, partitioner)
