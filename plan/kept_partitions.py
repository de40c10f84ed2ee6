"""Streams that are partitioned by the right key already are not partitioned again.

    a.join(b) on auction ==HASH(auction)==> top_n      becomes      a.join(b) --FORWARD--> top_n

An operator keyed by columns that come out of it unchanged gives each key's records in the subtask
that owns the key. A keyed operator behind it with the same key, parallelism and number of key
groups finds them there: it needs no exchange, and may even run in the same task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..api.specs.columns import NamedColumn
from ..api.specs.joins import IntervalJoinSpec, RegularJoinSpec, TemporalJoinSpec, WindowJoinSpec
from ..api.specs.records import ExpressionSpec, FilterSpec, RollingSpec, WatermarkSpec
from ..api.specs.tables import (
    DeduplicateSpec,
    EventTimeSpec,
    GroupAggregateSpec,
    OverSpec,
    TopNSpec,
)
from ..api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec
from ..core.keys import ColumnKey, KeySelector
from ..engine.graph.model import Forward, KeyGroups, StreamEdge, StreamGraph, StreamNode

Names = tuple[str, ...]

LEFT_IS_THERE = ("inner", "left", "semi", "anti")
"""Joins whose records all have a left side, and so its key."""


def keep_partitions(graph: StreamGraph) -> StreamGraph:
    """The graph with Forward edges where records are in the right subtask anyway."""
    nodes = {node.id: node for node in graph.nodes}
    inputs: dict[int, list[StreamEdge]] = defaultdict(list)
    keys: dict[int, Names | None] = {}
    edges: list[StreamEdge] = []
    for node in graph.nodes:
        for edge in (e for e in graph.edges if e.target == node.id):
            kept = _kept(edge, nodes[edge.source], node, keys[edge.source])
            inputs[node.id].append(kept)
        keys[node.id] = _output_key(node, inputs[node.id], keys)
    for edge in graph.edges:
        edges.append(inputs[edge.target].pop(0))
    return replace(graph, edges=tuple(edges))


def _kept(
    edge: StreamEdge, source: StreamNode, target: StreamNode, key: Names | None
) -> StreamEdge:
    """The edge, Forward if the source's output is partitioned as the edge would."""
    partitioner = edge.partitioner
    if not isinstance(partitioner, KeyGroups) or edge.tag is not None or key is None:
        return edge
    wanted = partitioner.key
    same = isinstance(wanted, ColumnKey) and wanted.names == key and _alike(source, target)
    return replace(edge, partitioner=Forward()) if same else edge


def _alike(source: StreamNode, target: StreamNode) -> bool:
    return (
        source.parallelism == target.parallelism
        and source.max_parallelism == target.max_parallelism
    )


def _output_key(
    node: StreamNode, inputs: Sequence[StreamEdge], keys: dict[int, Names | None]
) -> Names | None:
    """The columns by whose key groups the operator's main output is partitioned."""
    own = _own_key(node.spec)
    if own is not None:
        return own
    if len(inputs) != 1 or not isinstance(inputs[0].partitioner, Forward) or inputs[0].tag:
        return None
    key = keys[inputs[0].source]
    return key if key is not None and _passes(node.spec, key) else None


def _own_key(spec: Any) -> Names | None:
    """The key of a keyed operator whose records come out with their key columns."""
    match spec:
        case WindowSpec(
            key=key,
            function=BuiltinWindow() | ExtremeWindow() | TopNWindow(),
            keyed=True,
        ):
            return _columns(key)
        case RollingSpec(key=key, kind=kind, field=field):
            names = _columns(key)
            rewritten = not kind.endswith("_by") and (names is None or field in names)
            return None if rewritten or isinstance(field, int) else names
        case (
            GroupAggregateSpec(key=key)
            | TopNSpec(key=key)
            | DeduplicateSpec(key=key)
            | OverSpec(key=key)
        ):
            return _columns(key)
        case WindowJoinSpec(sides=sides) | IntervalJoinSpec(sides=sides):
            return _columns(sides.left_key) if sides.how in LEFT_IS_THERE else None
        case RegularJoinSpec(key=key, how=how):
            return _columns(key) if how in LEFT_IS_THERE else None
        case TemporalJoinSpec(key=key):
            return _columns(key)
    return None


def _columns(key: KeySelector) -> Names | None:
    return key.names if isinstance(key, ColumnKey) else None


def _passes(spec: Any, key: Names) -> bool:
    """Whether every record leaves the operator with these columns as they came."""
    match spec:
        case FilterSpec() | WatermarkSpec() | EventTimeSpec():
            return True
        case ExpressionSpec(kind="filter"):
            return True
        case ExpressionSpec(kind=kind, expressions=expressions):
            outputs = [_output(one) for one in expressions]
            if None in outputs:
                return False
            found = dict(pair for pair in outputs if pair is not None)
            default = {name: name for name in key} if kind == "with_columns" else {}
            return all({**default, **found}.get(name) == name for name in key)
    return False


def _output(expression: Any) -> tuple[str, str | None] | None:
    """Output column, and the input column it is if it only names one. None: several columns, or
    one that is known by its place only."""
    if isinstance(expression, NamedColumn):
        return expression.name, expression.source
    from polars.exceptions import ComputeError

    if expression.meta.has_multiple_outputs():
        return None
    plain = expression.meta.undo_aliases()
    try:
        source = plain.meta.output_name() if plain.meta.is_column() else None
        return expression.meta.output_name(), source
    except ComputeError:  # pl.first(), pl.nth(1)
        return None
