"""What each operator runs as, chosen from its spec alone.

A new kind of operator that can run in several ways has its choice here, a reason for the slower
one, and a function in `operators/` that maps the form to a class. Others are one line of a table.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..api.dead_letters import DeadLetters
from ..api.functions.validation import is_expression
from ..api.specs.async_io import AsyncMapBatchesSpec, AsyncSpec, AsyncWaitSpec
from ..api.specs.columns import NamedColumn
from ..api.specs.connected import (
    BroadcastProcessSpec,
    CoMapBatchesSpec,
    CoProcessSpec,
    KeyedBroadcastProcessSpec,
    KeyedCoProcessSpec,
    OneOrderSpec,
)
from ..api.specs.joins import (
    BroadcastJoinSpec,
    IntervalJoinSpec,
    LookupJoinSpec,
    RegularJoinSpec,
    TemporalJoinSpec,
    WindowJoinSpec,
)
from ..api.specs.kinds import KindSpec
from ..api.specs.project import ProjectSpec
from ..api.specs.records import (
    ExpressionSpec,
    FilterSpec,
    FlatMapSpec,
    KeyedProcessSpec,
    MapBatchesSpec,
    MapSpec,
    PassSpec,
    ProcessSpec,
    ReduceSpec,
    RollingSpec,
    SinkSpec,
    SourceSpec,
    WatermarkSpec,
)
from ..api.specs.tables import (
    DeduplicateSpec,
    EventTimeSpec,
    GroupAggregateSpec,
    OverSpec,
    TopNSpec,
)
from ..api.specs.windows import WindowSpec
from ..api.watermarks import CustomWatermarks, WatermarkStrategy
from ..engine.graph.implementation import Implementation, Kind
from .compiled import CALLED, compiled
from .rolling import rolling
from .windows import window

_ALONE: dict[type, Implementation] = {
    FlatMapSpec: Implementation(
        "rows", CALLED, "the function is Python: map_batches() runs on columns"
    ),
    ProcessSpec: Implementation(
        "rows", CALLED, "the ProcessFunction is Python: map_batches() runs on columns"
    ),
    KeyedProcessSpec: Implementation(
        "rows",
        "a Python function of each record, with the state of its key",
        "the KeyedProcessFunction is Python: windows, aggregate(), top_n(), deduplicate() and "
        "joins have kernels",
    ),
    ReduceSpec: Implementation(
        "rows",
        "rolling reduce row by row",
        "the reduce function is Python: sum, min, max, min_by, max_by and aggregate() have kernels",
    ),
    CoProcessSpec: Implementation(
        "rows",
        "a Python function of each record of two inputs",
        "the function is Python: connect(...).map_batches() runs on columns",
    ),
    KeyedCoProcessSpec: Implementation(
        "rows",
        "a Python function of each record of two inputs, with the state of its key",
        "the function is Python: connect(...).map_batches() runs on columns, and joins have "
        "kernels",
    ),
    BroadcastProcessSpec: Implementation(
        "rows",
        "a Python function of each record, with broadcast state",
        "the function is Python: broadcast_join() and lookup_join() have kernels",
    ),
    KeyedBroadcastProcessSpec: Implementation(
        "rows",
        "a Python function of each record, with broadcast state and the state of its key",
        "the function is Python: broadcast_join() and lookup_join() have kernels",
    ),
    PassSpec: Implementation("batches", "passing records on"),
    KindSpec: Implementation("batches", "the rows of one kind"),
    ProjectSpec: Implementation("batches", "fields by position"),
    EventTimeSpec: Implementation("batches", "event times from a column"),
    GroupAggregateSpec: Implementation("kernel", "running aggregates"),
    TopNSpec: Implementation("kernel", "top-n table"),
    DeduplicateSpec: Implementation("kernel", "deduplication"),
    OverSpec: Implementation("kernel", "aggregates over rows before"),
    WindowJoinSpec: Implementation("kernel", "window join"),
    IntervalJoinSpec: Implementation("kernel", "interval join"),
    RegularJoinSpec: Implementation("kernel", "regular join"),
    TemporalJoinSpec: Implementation("kernel", "temporal join"),
    BroadcastJoinSpec: Implementation("kernel", "broadcast join"),
    LookupJoinSpec: Implementation("kernel", "lookup join"),
}
"""Specs that run in one way only."""


_SILENT = ("its input has no watermarks and no end: it holds back nobody's event time",)


def choose(spec: Any, compiles: bool = True) -> Implementation | None:
    """What the operator of this spec runs as; None for specs that are no operators of programs.
    compiles: whether the job wants functions on columns."""
    match spec:
        case MapSpec() | FilterSpec():
            made: Implementation | None = compiled(spec, compiles)
        case _:
            made = _choose(spec)
    if made is None or spec.on_error is None:
        return made
    return replace(made, remarks=(*made.remarks, _letters(spec.on_error)))


def _letters(policy: DeadLetters) -> str:
    text = "records for which it raises become dead letters"
    return text if policy.limit is None else f"{text}; beyond {policy.limit} of them the job fails"


def _choose(spec: Any) -> Implementation | None:
    match spec:
        case WindowSpec():
            return window(spec)
        case RollingSpec():
            return rolling(spec)
        case ExpressionSpec():
            return _expressions(spec)
        case AsyncWaitSpec():
            return Implementation(
                "rows",
                f"a coroutine for each record, {_in_flight(spec)}",
                "the function is Python: async_map_batches() asks for a batch at once",
            )
        case AsyncMapBatchesSpec(batch_format=shown):
            what = f"a coroutine for each batch, as {shown}, {_in_flight(spec)}"
            return Implementation("batches", what)
        case MapBatchesSpec(batch_format=shown):
            return Implementation("batches", f"a Python function of each batch, as {shown}")
        case CoMapBatchesSpec(batch_format=shown):
            how = f"a Python function of each batch of two inputs, as {shown}"
            return Implementation("batches", how)
        case OneOrderSpec(timeless=timeless):
            return Implementation("batches", "one order for all", remarks=_SILENT * timeless)
        case SourceSpec():
            by_record = _timing(spec.watermarks)
            remarks = () if by_record is None else (by_record,)
            return Implementation("batches", "source", remarks=remarks)
        case SinkSpec(sink=sink):
            remarks = () if sink.remark is None else (sink.remark,)
            return Implementation("batches", "sink", remarks=remarks)
        case WatermarkSpec():
            return _watermarks(spec)
    return _ALONE.get(type(spec))


def _in_flight(spec: AsyncSpec) -> str:
    order = "in their order" if spec.ordered else "as they come"
    return f"{spec.capacity} in flight, results {order}"


def _expressions(spec: ExpressionSpec) -> Implementation:
    named = all(isinstance(one, NamedColumn) for one in spec.expressions)
    return Implementation("batches", "columns by name" if named else "polars expressions")


def _watermarks(spec: WatermarkSpec) -> Implementation:
    why_not = _timing(spec.strategy)
    kind: Kind = "batches" if why_not is None else "rows"
    return Implementation(kind, "event times and watermarks", why_not)


def _timing(strategy: WatermarkStrategy | None) -> str | None:
    """Why event times or watermarks take Python for each record; None if they do not."""
    assigner = None if strategy is None else strategy.timestamp_assigner
    if not (assigner is None or isinstance(assigner, str) or is_expression(assigner)):
        return (
            "the timestamp assigner is a Python function of each record: name a column or an "
            "expression"
        )
    if strategy is not None and isinstance(strategy.generator, CustomWatermarks):
        return "the watermark generator is Python, called for each record"
    return None
