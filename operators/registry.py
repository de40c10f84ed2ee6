"""From spec to running operator. Modules load on first use, so that a task pays only for what it
runs."""

from __future__ import annotations

from importlib import import_module

from ..api.specs import OperatorSpec
from ..core.errors import GraphError
from .base import Operator

_OPERATORS: dict[str, tuple[str, str]] = {
    "SourceSpec": ("source", "ReplayableSourceOperator"),
    "SinkSpec": ("sink", "SinkOperator"),
    "MapSpec": ("rows", "MapOperator"),
    "FlatMapSpec": ("rows", "FlatMapOperator"),
    "FilterSpec": ("rows", "FilterOperator"),
    "ProcessSpec": ("process", "ProcessOperator"),
    "KeyedProcessSpec": ("keyed_process", "KeyedProcessOperator"),
    "ExpressionSpec": ("expressions", "ExpressionOperator"),
    "MapBatchesSpec": ("map_batches", "MapBatchesOperator"),
    "WatermarkSpec": ("watermarks", "WatermarkOperator"),
    "ReduceSpec": ("reduce", "ReduceOperator"),
    "RollingSpec": ("rolling", "make_rolling"),
    "LocalCombineSpec": ("local_combining", "make_local_combine"),
    "GroupAggregateSpec": ("tables.group_aggregate", "GroupAggregateOperator"),
    "TopNSpec": ("tables.top_n", "TopNOperator"),
    "DeduplicateSpec": ("tables.deduplicate", "DeduplicateOperator"),
    "OverSpec": ("tables.over", "OverOperator"),
    "EventTimeSpec": ("event_time_column", "EventTimeColumnOperator"),
    "WindowJoinSpec": ("joins.window", "WindowJoinOperator"),
    "IntervalJoinSpec": ("joins.interval", "IntervalJoinOperator"),
    "RegularJoinSpec": ("joins.regular", "RegularJoinOperator"),
    "TemporalJoinSpec": ("joins.temporal", "TemporalJoinOperator"),
    "BroadcastJoinSpec": ("joins.broadcast", "BroadcastJoinOperator"),
    "LookupJoinSpec": ("joins.lookup", "LookupJoinOperator"),
    "WindowSpec": ("windows", "make_window_operator"),
}
"""Spec class name -> module of this package, and the class or factory taking the spec."""


def build_operator(spec: OperatorSpec) -> Operator:
    """The operator that runs `spec`, not yet set up."""
    try:
        module, factory = _OPERATORS[type(spec).__name__]
    except KeyError:
        raise GraphError(f"no operator runs a {type(spec).__name__}") from None
    operator: Operator = getattr(import_module(f".{module}", __package__), factory)(spec)
    return operator
