"""Sources make only the columns that somebody reads.

    NexmarkSource: auction, bidder, price, url, ...   ──▶ select("auction", "price")
    becomes
    NexmarkSource: auction, price                     ──▶ select("auction", "price")

From the sinks upwards, each operator is asked which columns of its input it reads, given those of
its output that are read. What calls a function of the program with records, or passes them to a
sink, reads all; so does an operator of a kind that is not known here. A source that can
(`Source.reading`) then leaves out the others. That changes no result: it is done only where it is
certain that nobody reads a column. Streams that are united keep all of theirs: their records go on
having the same ones. So do all where checkpoints are unaligned, for these hold records: a program
that goes on from one may read more of them than this one does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..api.connectors.reads import ColumnReads
from ..api.specs.columns import NamedColumn
from ..api.specs.kinds import KindSpec
from ..api.specs.records import ExpressionSpec, PassSpec, SourceSpec, WatermarkSpec
from ..api.specs.tables import EventTimeSpec
from ..api.specs.windows import BuiltinWindow, WindowSpec
from ..api.watermarks import CustomWatermarks, WatermarkStrategy
from ..api.windows.session_windows import EventTimeSessionWindows
from ..api.windows.time_windows import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from ..core.keys import ColumnKey, ConstantKey, ExpressionKey, KeySelector
from ..core.row_kind import ROW_KIND
from ..engine.graph.model import Custom, KeyGroups, StreamEdge, StreamGraph, StreamNode
from .remarks import remarked

Reads = ColumnReads | None
"""None: all columns, or nobody knows."""

NOTHING = ColumnReads()

_OWN_WINDOWS = (
    CumulateEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
"""Windows that look at the times of records alone."""


def leave_out_columns(graph: StreamGraph) -> StreamGraph:
    """The graph with sources that leave out what nobody reads, and say so."""
    if not graph.config.column_pruning:
        return graph
    outgoing: dict[int, list[StreamEdge]] = defaultdict(list)
    united = Counter((edge.target, edge.port) for edge in graph.edges)
    for edge in graph.edges:
        outgoing[edge.source].append(edge)
    nodes = {node.id: node for node in graph.nodes}
    inputs: dict[int, Reads] = {}
    for node in reversed(graph.nodes):
        alone = all(united[edge.target, edge.port] == 1 for edge in outgoing[node.id])
        read = _read_of(outgoing[node.id], inputs) if alone else None
        inputs[node.id] = _input_reads(node, read)
        if isinstance(node.spec, SourceSpec):
            overtakes = graph.config.checkpoint.overtakes
            nodes[node.id] = _reading(node, node.spec, inputs[node.id], overtakes)
    return replace(graph, nodes=tuple(nodes.values()))


def _read_of(edges: Iterable[StreamEdge], inputs: Mapping[int, Reads]) -> Reads:
    """What is read of an operator's output, by all who are behind it."""
    read: Reads = None
    for edge in edges:
        mine = inputs[edge.target] if edge.tag is None and edge.port == 0 else None
        if mine is not None and isinstance(edge.partitioner, (KeyGroups, Custom)):
            mine = _with(mine, _of_key(edge.partitioner.key))
        if mine is None:
            return None
        read = mine if read is None else read | mine
    return read


def _reading(node: StreamNode, spec: SourceSpec, read: Reads, overtakes: bool) -> StreamNode:
    """`overtakes`: whether checkpoints may be unaligned."""
    if read is None or not read.columns:
        return node
    source = spec.source.reading(read)
    if source is None:
        return node
    if overtakes:
        return remarked(
            node,
            f"makes all columns, though only {read} are read: unaligned checkpoints hold records, "
            "of which a program that goes on may read others",
        )
    made = replace(node, spec=replace(spec, source=source))
    return remarked(made, f"leaves out what nobody reads: makes {read}")


def _input_reads(node: StreamNode, read: Reads) -> Reads:
    """What the operator reads of its input, if `read` is what is read of its output."""
    spec: Any = node.spec
    if spec.on_error is not None or spec.side_types:
        return None
    match spec:
        case PassSpec():
            return read
        case EventTimeSpec(column=column):
            return _with(read, NOTHING.also([column]))
        case WatermarkSpec(strategy=strategy):
            return _with(read, _of_times(strategy))
        case SourceSpec(watermarks=strategy):
            return read if strategy is None else _with(read, _of_times(strategy))
        case ExpressionSpec():
            return _of_expressions(spec, read)
        case KindSpec(kind=kind, column=str(column)):
            fields = None if read is None or not read.columns else read.columns
            return ColumnReads(kinds={(column, kind): fields})
        case WindowSpec():
            return _of_window(spec)
    return None


def _with(read: Reads, more: Reads) -> Reads:
    return None if read is None or more is None else read | more


def _of_times(strategy: WatermarkStrategy) -> Reads:
    """What timestamps and watermarks are made of."""
    assigner = strategy.timestamp_assigner
    if isinstance(strategy.generator, CustomWatermarks):
        return None
    if isinstance(assigner, str):
        return NOTHING.also([assigner])
    return NOTHING if assigner is None else None


def _of_expressions(spec: ExpressionSpec, read: Reads) -> Reads:
    if spec.kind == "select":
        return _with(NOTHING.also([ROW_KIND]), _of_columns(spec.expressions))
    return _with(read, _of_columns(spec.expressions))


def _of_columns(columns: Iterable[Any]) -> Reads:
    """What column names and expressions are made of."""
    read = NOTHING
    for one in columns:
        roots = _roots(one)
        if roots is None:
            return None
        read = read.also(roots)
    return read


def _roots(one: Any) -> Iterable[str] | None:
    """The columns by name; None if they cannot be told (patterns, places, all of them)."""
    if isinstance(one, NamedColumn):
        return [one.source]
    if isinstance(one, str):
        return [one]
    if one.meta.has_multiple_outputs():
        return None
    roots: list[str] = one.meta.root_names()
    return roots if roots or one.meta.is_literal() else None


def _of_key(key: KeySelector) -> Reads:
    match key:
        case ColumnKey(names):
            return NOTHING.also(names)
        case ExpressionKey(expressions):
            return _of_columns(expressions)
        case ConstantKey():
            return NOTHING
    return None


def _of_window(spec: WindowSpec) -> Reads:
    """Built-in aggregates over event time read keys and what they aggregate."""
    own = type(spec.assigner) in _OWN_WINDOWS
    if not (own and isinstance(spec.function, BuiltinWindow)):
        return None
    if spec.trigger is not None or spec.evictor is not None or spec.late_tag is not None:
        return None
    read = _with(NOTHING.also([ROW_KIND]), _of_key(spec.key))
    for _, aggregate in spec.function.aggregates:
        parts = (aggregate.expression, aggregate.by, aggregate.condition)
        read = _with(read, _of_columns([one for one in parts if one is not None]))
    return read
