"""Streams that are partitioned by the right key already are not partitioned again.

    a.join(b) on auction ==HASH(auction)==> top_n      becomes      a.join(b) --FORWARD--> top_n

An operator keyed by columns that come out of it unchanged gives each key's records in the subtask
that owns the key. A keyed operator behind it with the same key, parallelism and number of key
groups finds them there: it needs no exchange, and may even run in the same task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from .remarks import remarked

Names = tuple[str, ...]

LEFT_IS_THERE = ("inner", "left", "semi", "anti")
"""Joins whose records all have a left side, and so its key."""


@dataclass(frozen=True)
class Held:
    """How a stream is partitioned: by the key groups of the columns `names`. None: by none, or none
    any more, and then `lost` says why."""

    names: Names | None = None
    lost: str | None = None


def keep_partitions(graph: StreamGraph) -> StreamGraph:
    """The graph with Forward edges where records are in the right subtask anyway. Operators are
    remarked that have been spared an exchange, and those that were not though their input was
    partitioned by some key before."""
    nodes = {node.id: node for node in graph.nodes}
    inputs: dict[int, list[StreamEdge]] = defaultdict(list)
    held: dict[int, Held] = {}
    for node in graph.nodes:
        mine = [edge for edge in graph.edges if edge.target == node.id]
        for edge in mine:
            source, before = nodes[edge.source], held[edge.source]
            anew = _why_anew(edge, source, node, before)
            inputs[node.id].append(_kept(edge, source, node, before, anew == ""))
            which = f"input {edge.port}: " if len(mine) > 1 else ""
            if anew == "":
                shown = f"{which}no exchange: partitioned by {_shown(before.names)} already"
                nodes[node.id] = remarked(nodes[node.id], shown)
            elif anew is not None:
                nodes[node.id] = remarked(nodes[node.id], f"{which}partitioned anew: {anew}")
        held[node.id] = _held_by(node, inputs[node.id], held, nodes)
    edges = [inputs[edge.target].pop(0) for edge in graph.edges]
    return replace(graph, nodes=tuple(nodes.values()), edges=tuple(edges))


def _kept(
    edge: StreamEdge, source: StreamNode, target: StreamNode, held: Held, spared: bool
) -> StreamEdge:
    """The edge, a Forward one if it is `spared` its exchange. Forward ones say by which key their
    records are in their place."""
    forward = spared or isinstance(edge.partitioner, Forward)
    if not forward or held.names is None or edge.tag is not None:
        return edge
    if source.max_parallelism != target.max_parallelism:
        return edge
    return replace(edge, partitioner=Forward(ColumnKey(held.names)))


def _why_anew(edge: StreamEdge, source: StreamNode, target: StreamNode, held: Held) -> str | None:
    """Why the records have to be exchanged; "" if they need not be, None if there is no question
    of it."""
    if not isinstance(edge.partitioner, KeyGroups) or edge.tag is not None:
        return None
    if held.names is None:
        return held.lost
    wanted = edge.partitioner.key
    if not (isinstance(wanted, ColumnKey) and wanted.names == held.names):
        return f"by {wanted.describe()}, and by {_shown(held.names)} before"
    if source.parallelism != target.parallelism:
        return f"'{source.name}' has parallelism {source.parallelism}"
    if source.max_parallelism != target.max_parallelism:
        return f"'{source.name}' has max_parallelism {source.max_parallelism}"
    return ""


def _shown(names: Names | None) -> str:
    return ", ".join(names or ())


def _held_by(
    node: StreamNode,
    inputs: Sequence[StreamEdge],
    held: dict[int, Held],
    nodes: Mapping[int, StreamNode],
) -> Held:
    """How the operator's main output is partitioned."""
    own = _own_key(node.spec)
    if own is not None:
        return Held(own)
    if any(isinstance(edge.partitioner, KeyGroups) for edge in inputs):
        return Held(None, f"the output of '{node.name}' need not have its key in the same columns")
    before = [held[edge.source] for edge in inputs]
    if len(inputs) == 1 and inputs[0].tag is None and isinstance(inputs[0].partitioner, Forward):
        (one,) = before
        groups = nodes[inputs[0].source].max_parallelism
        if one.names is not None and groups != node.max_parallelism:
            return Held(None, f"'{node.name}' has another max_parallelism than what is before it")
        if one.names is None or _passes(node.spec, one.names):
            return one
        return Held(None, f"'{node.name}' may change {_shown(one.names)}")
    if any(one.names is not None for one in before):
        return Held(None, f"the input of '{node.name}' is partitioned in another way")
    return Held(None, next((one.lost for one in before if one.lost), None))


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
