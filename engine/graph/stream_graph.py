"""Transformations -> StreamGraph: collect what the sinks and operators reach, resolve, validate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...core.config import JobConfig
from ...core.errors import GraphError
from ...core.ids import OperatorId
from .model import Forward, Partitioner, Rebalance, StreamEdge, StreamGraph, StreamNode
from .operator_ids import assign_operator_ids
from .transformation import Input, Transformation

DEFAULT_SLOT_SHARING_GROUP = "default"


def build_stream_graph(
    transformations: Iterable[Transformation],
    name: str,
    config: JobConfig,
    *,
    complete: bool = True,
) -> StreamGraph:
    """The graph of these transformations and everything they read.

    Nodes are numbered 0.. in the order of creation, which is topological. Raises GraphError naming
    the operators when the program describes no runnable graph; one that is not `complete` needs no
    sink to be looked at.
    """
    found = reached(transformations)
    _require_operators(found, name)
    if complete:
        _require_sink(found, name)
    ids = assign_operator_ids(found)
    groups = _slot_sharing_groups(found)
    index = {node.id: i for i, node in enumerate(found)}
    nodes = tuple(_node(t, index[t.id], ids[t.id], groups[t.id], config) for t in found)
    edges = tuple(
        StreamEdge(index[i.source.id], index[t.id], _partitioner(i, t), i.tag, i.port)
        for t in found
        for i in t.inputs
    )
    return StreamGraph(name, nodes, edges, _with_slot_resources(config, found))


def check_uids(graph: StreamGraph) -> None:
    """GraphError naming the operators without a uid, for programs that want one for each."""
    without = [node.name for node in graph.nodes if node.uid is None]
    if without:
        raise GraphError(
            f"job '{graph.name}': automatic uids are disabled, but {', '.join(map(repr, without))} "
            "have none: give each operator, source and sink a uid(...)"
        )


def reached(transformations: Iterable[Transformation]) -> list[Transformation]:
    """These and all that they read, in the order of creation."""
    found: dict[int, Transformation] = {}
    pending = list(transformations)
    while pending:
        node = pending.pop()
        known = found.setdefault(node.id, node)
        if known is not node:
            raise GraphError(
                f"operators '{known.name}' and '{node.name}' belong to different environments; "
                "a job is built in one environment"
            )
        for one in node.inputs:
            if one.source.id >= node.id:
                raise GraphError(
                    f"operator '{node.name}' reads '{one.source.name}', which was created after "
                    "it: a job graph has no cycles"
                )
            if found.get(one.source.id) is not one.source:
                pending.append(one.source)
    return [found[i] for i in sorted(found)]


def _require_operators(nodes: list[Transformation], name: str) -> None:
    if not nodes:
        raise GraphError(
            f"job '{name}' has no operators: create a stream with from_source(...) or "
            "from_collection(...) and end it with sink_to(...) or print()"
        )


def _require_sink(nodes: list[Transformation], name: str) -> None:
    if not any(node.is_sink for node in nodes):
        read = {i.source.id for node in nodes for i in node.inputs}
        ends = ", ".join(f"'{node.name}'" for node in nodes if node.id not in read)
        raise GraphError(
            f"job '{name}' has no sink, so its results would go nowhere: end {ends} with "
            "sink_to(...), print() or execute_and_collect()"
        )


def _slot_sharing_groups(nodes: list[Transformation]) -> dict[int, str]:
    """The group set by the user, else the one all inputs share, else the default."""
    groups: dict[int, str] = {}
    for node in nodes:
        inherited = {groups[i.source.id] for i in node.inputs}
        if node.slot_sharing_group is not None:
            groups[node.id] = node.slot_sharing_group
        else:
            groups[node.id] = inherited.pop() if len(inherited) == 1 else DEFAULT_SLOT_SHARING_GROUP
    return groups


def _with_slot_resources(config: JobConfig, nodes: list[Transformation]) -> JobConfig:
    """What operators say of the slots of their groups, too."""
    said: dict[str, Transformation] = {}
    for node in nodes:
        group = node.slot_sharing_group
        if group is None or node.slot_resources is None:
            continue
        other = said.setdefault(group, node)
        if other.slot_resources != node.slot_resources:
            raise GraphError(
                f"operators '{other.name}' and '{node.name}' are both in the slot sharing group "
                f"'{group}', but with {other.slot_resources} and {node.slot_resources}: a group "
                "has slots of one kind"
            )
    if not said:
        return config
    resources = {g: node.slot_resources for g, node in said.items() if node.slot_resources}
    return replace(config, slot_resources={**config.slot_resources, **resources})


def _node(
    node: Transformation, index: int, operator_id: OperatorId, group: str, config: JobConfig
) -> StreamNode:
    if not node.is_source and not node.inputs:
        raise GraphError(f"operator '{node.name}' has no input")
    maximum = config.max_parallelism if node.max_parallelism is None else node.max_parallelism
    if node.parallelism > maximum:
        raise GraphError(
            f"operator '{node.name}' has parallelism {node.parallelism} but max_parallelism "
            f"{maximum}: raise the latter with set_max_parallelism(...) or lower the former"
        )
    return StreamNode(
        id=index,
        operator_id=operator_id,
        name=node.name,
        spec=node.spec,
        parallelism=node.parallelism,
        max_parallelism=maximum,
        uid=node.uid or node.uid_hash,
        chaining=node.chaining,
        slot_sharing_group=group,
        is_source=node.is_source,
        is_sink=node.is_sink,
        description=node.description,
        buffer_timeout=node.buffer_timeout,
        migrations=dict(node.migrations),
        state_backend=node.state_backend,
    )


def _partitioner(one: Input, target: Transformation) -> Partitioner:
    source = one.source
    if one.partitioner is None:
        return Forward() if source.parallelism == target.parallelism else Rebalance()
    if isinstance(one.partitioner, Forward) and source.parallelism != target.parallelism:
        raise GraphError(
            f"forward() connects '{source.name}' (parallelism {source.parallelism}) to "
            f"'{target.name}' (parallelism {target.parallelism}): use one parallelism, or "
            "rescale() or rebalance() instead"
        )
    return one.partitioner
