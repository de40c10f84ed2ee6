"""From spec to running operator. Modules load on first use, so that a task pays only for what it
runs."""

from __future__ import annotations

from importlib import import_module

from ..api.specs.records import OperatorSpec
from ..core.errors import GraphError
from ..engine.graph.implementation import Implementation
from .base import Operator

_OPERATORS: dict[str, tuple[str, str]] = {
    "SourceSpec": ("io.source", "ReplayableSourceOperator"),
    "SinkSpec": ("io.sink", "SinkOperator"),
    "PassSpec": ("batches.passing", "PassOperator"),
    "KindSpec": ("batches.of_kind", "KindOperator"),
    "ProjectSpec": ("batches.project", "ProjectOperator"),
    "MapSpec": ("rows.functions", "MapOperator"),
    "FlatMapSpec": ("rows.functions", "FlatMapOperator"),
    "FilterSpec": ("rows.functions", "FilterOperator"),
    "ProcessSpec": ("rows.process", "ProcessOperator"),
    "KeyedProcessSpec": ("rows.keyed_process", "KeyedProcessOperator"),
    "ExpressionSpec": ("batches.expressions", "ExpressionOperator"),
    "MapBatchesSpec": ("batches.map_batches", "MapBatchesOperator"),
    "AsyncWaitSpec": ("async_io.rows", "AsyncWaitOperator"),
    "AsyncMapBatchesSpec": ("async_io.batches", "AsyncMapBatchesOperator"),
    "WatermarkSpec": ("time.watermarks", "WatermarkOperator"),
    "ReduceSpec": ("rows.reduce", "ReduceOperator"),
    "RollingSpec": ("rolling.choice", "make_rolling"),
    "LocalCombineSpec": ("combining.choice", "make_local_combine"),
    "CombineGroupsSpec": ("combining.groups", "LocalGroupsOperator"),
    "GroupAggregateSpec": ("tables.group_aggregate", "GroupAggregateOperator"),
    "TopNSpec": ("tables.top_n", "TopNOperator"),
    "DeduplicateSpec": ("tables.deduplicate", "DeduplicateOperator"),
    "OverSpec": ("tables.over", "OverOperator"),
    "EventTimeSpec": ("time.event_time_column", "EventTimeColumnOperator"),
    "WindowJoinSpec": ("joins.window", "WindowJoinOperator"),
    "IntervalJoinSpec": ("joins.interval", "IntervalJoinOperator"),
    "RegularJoinSpec": ("joins.regular", "RegularJoinOperator"),
    "TemporalJoinSpec": ("joins.temporal", "TemporalJoinOperator"),
    "BroadcastJoinSpec": ("joins.broadcast", "BroadcastJoinOperator"),
    "LookupJoinSpec": ("joins.lookup", "LookupJoinOperator"),
    "CoProcessSpec": ("connected.co_process", "CoProcessOperator"),
    "KeyedCoProcessSpec": ("connected.co_process", "KeyedCoProcessOperator"),
    "CoMapBatchesSpec": ("connected.map_batches", "CoMapBatchesOperator"),
    "BroadcastProcessSpec": ("connected.broadcast", "BroadcastProcessOperator"),
    "KeyedBroadcastProcessSpec": ("connected.broadcast", "KeyedBroadcastProcessOperator"),
    "OneOrderSpec": ("connected.one_order", "OneOrderOperator"),
    "WindowSpec": ("window_choice", "make_window_operator"),
}
"""Spec class name -> module of this package, and the class or factory taking the spec."""


_LENIENT: dict[str, tuple[str, str]] = {
    "MapSpec": ("rows.lenient", "LenientMapOperator"),
    "FlatMapSpec": ("rows.lenient", "LenientFlatMapOperator"),
    "FilterSpec": ("rows.lenient", "LenientFilterOperator"),
    "ReduceSpec": ("rows.lenient_reduce", "LenientReduceOperator"),
    "MapBatchesSpec": ("batches.lenient", "LenientMapBatchesOperator"),
    "WatermarkSpec": ("time.lenient", "LenientWatermarkOperator"),
    "WindowSpec": ("row_windows.lenient", "LenientRowWindowOperator"),
    "SourceSpec": ("io.lenient", "LenientSourceOperator"),
    "EventTimeSpec": ("time.lenient", "LenientEventTimeColumnOperator"),
}
"""Those that are other operators where they write dead letters."""


FORMED = frozenset({"LocalCombineSpec", "RollingSpec", "WindowSpec"})
"""Those whose factory is also given the form of the implementation that plan chose."""


def build_operator(spec: OperatorSpec, implementation: Implementation | None = None) -> Operator:
    """The operator that runs `spec` as it was planned, not yet set up. `implementation` None: as
    plan would say, for operators that stand in no graph."""
    name = type(spec).__name__
    lenient = spec.on_error is not None and name in _LENIENT
    try:
        module, factory = (_LENIENT if lenient else _OPERATORS)[name]
    except KeyError:
        raise GraphError(f"no operator runs a {name}") from None
    make = getattr(import_module(f".{module}", __package__), factory)
    operator: Operator
    if implementation is not None and name in FORMED and not lenient:
        operator = make(spec, implementation.form)
    else:
        operator = make(spec)
    if spec.side_types:
        operator.side_types = dict(spec.side_types)
    operator.on_error = spec.on_error
    return operator
