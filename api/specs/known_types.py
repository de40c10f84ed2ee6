"""What a call asks of a column whose known type does not have it: an error in that line of the
program, as `known_columns` has it for columns that are not there.

Rolling aggregates by a Python key compare whatever Python compares, lists too: of them only what
Python does not compare either is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ...core.arrays import has_order, holds_event_times, storage
from ...core.errors import GraphError, TypeMismatchError
from ...core.keys import holds_structs
from ...core.row_kind import ROW_KIND
from ...core.value_types import BigDecimal, BigInteger
from ...engine.graph.transformation import Input
from ..aggregate_kinds import kind_of
from ..aggregates import DISTINCT, Aggregate, check_distinct, is_kept, not_kept
from ..types.declared import Declared
from ..types.type_classes import type_of_columns
from .columns import Order
from .records import OperatorSpec, RollingSpec, WatermarkSpec
from .schemas import input_type, scalars_of_inputs, schema_of_inputs
from .tables import DeduplicateSpec, EventTimeSpec, GroupAggregateSpec, OverSpec, TopNSpec
from .windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec

Aggregates = Iterable[tuple[str, Aggregate]]


def check_types(spec: OperatorSpec, inputs: tuple[Input, ...]) -> None:
    """GraphError if the operator compares, keeps or takes event times from a column that is known
    to be of a type for which it cannot; its columns are there."""
    if not isinstance(spec, _CHECKED):
        return
    schema = schema_of_inputs(inputs)
    if schema is None:
        return
    match spec:
        case WindowSpec():
            _check_window(schema, spec)
        case GroupAggregateSpec(aggregates=aggregates):
            _check_order_of(schema, aggregates)
            _check_hashes(schema, aggregates)
            _check_kept(schema, aggregates)
        case OverSpec(aggregates=aggregates, rows=rows, range_ms=range_ms):
            _check_order_of(schema, aggregates)
            if rows is None and range_ms is None:
                _check_numbers(schema, aggregates)
        case TopNSpec(n=n, order=order):
            _check_order(schema, order, f"top_n({n})")
        case DeduplicateSpec(order=order):
            _check_order(schema, order, "deduplicate")
        case RollingSpec(kind=kind, field=field) if kind != "sum":
            name = schema.names[field] if isinstance(field, int) else field
            _check_order_by(schema, name, f"{kind}({field!r})", lists=True)
        case EventTimeSpec(column=column):
            _check_time(schema, column, f"with_event_time({column!r})")
        case WatermarkSpec(strategy=strategy):
            assigner = strategy.timestamp_assigner
            if isinstance(assigner, str):
                _check_time(schema, assigner, f"with_timestamp_assigner({assigner!r})")


_CHECKED = (
    DeduplicateSpec,
    EventTimeSpec,
    GroupAggregateSpec,
    OverSpec,
    RollingSpec,
    TopNSpec,
    WatermarkSpec,
    WindowSpec,
)


def check_union(inputs: tuple[Input, ...]) -> None:
    """GraphError if the records of united streams are known to be of different types: a function
    would get now the ones, now the others. (Texts that columns store in different ways are one
    type, and a changelog's kinds no part of it.)"""
    found = [(schema_of_inputs((one,)), scalars_of_inputs((one,))) for one in inputs]
    known = [schema if schema is not None else scalars for schema, scalars in found]
    declared = [one for one in known if one is not None]
    for other in declared[1:]:
        first = declared[0]
        if isinstance(first, pa.Schema) and isinstance(other, pa.Schema):
            _check_order_of_columns(first.names, other.names)
        one, another = _type_text(first), _type_text(other)
        if one != another:
            raise GraphError(
                f"union: cannot union streams of different types: {one} and {another}; bring them "
                "to one type, with a map and its output_type, or with a select"
            )


def _check_order_of_columns(names: list[str], others: list[str]) -> None:
    if others != names and sorted(others) == sorted(names):
        raise GraphError(
            f"union: one stream has the columns {names}, another one {others}: bring them "
            f"into one order, with select({', '.join(map(repr, names))})"
        )


def _type_text(declared: Declared) -> str:
    """The type of the records, without what makes no difference in Python."""
    if not isinstance(declared, pa.Schema):
        return str(declared.info)
    fields = [field for field in declared if field.name != ROW_KIND]
    plain = [field.with_type(_plain(field.type)) for field in fields]
    return str(type_of_columns(pa.schema(plain, metadata=declared.metadata)))


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if kind in (pa.large_string(), pa.string_view()):
        return pa.string()
    return pa.binary() if kind in (pa.large_binary(), pa.binary_view()) else kind


def _check_window(schema: pa.Schema, spec: WindowSpec) -> None:
    match spec.function:
        case BuiltinWindow(aggregates):
            _check_order_of(schema, aggregates)
            _check_hashes(schema, aggregates)
            _check_kept(schema, aggregates)
        case TopNWindow(n=n, order=order):
            _check_order(schema, order, f"top_n({n})")
        case ExtremeWindow(field=field, kind=kind):
            _check_order_by(schema, field, f"{kind}_by({field!r})")


def _check_order(schema: pa.Schema, order: Order, call: str) -> None:
    for column in order:
        _check_order_by(schema, column.name, call)


def _check_order_by(schema: pa.Schema, name: str, call: str, lists: bool = False) -> None:
    if name in schema.names:
        _require_order(schema.field(name).type, name, call, lists)


def _check_order_of(schema: pa.Schema, aggregates: Aggregates) -> None:
    for name, aggregate in aggregates:
        column = aggregate.expression if aggregate.by is None else aggregate.by
        if kind_of(aggregate.kind).ordered and isinstance(column, str):
            kind = input_type(schema, column)
            if kind is not None:
                call = f"aggregate({name}={aggregate.describe()})"
                _require_order(kind, column, call)


def _require_order(kind: pa.DataType, column: str, call: str, lists: bool = False) -> None:
    """`lists`: whether what Python compares can be compared: also lists, rows and nulls alone."""
    listed = pa.types.is_null(kind) or (pa.types.is_nested(kind) and not pa.types.is_map(kind))
    listed = listed or isinstance(kind, (BigDecimal, BigInteger))
    if not has_order(kind) and not (lists and listed):
        raise GraphError(
            f"{call}: the column {column!r} holds values of type {kind}, which have no order: take "
            "one of numbers, times, text or bytes"
        )


def _check_numbers(schema: pa.Schema, aggregates: Aggregates) -> None:
    """An aggregate over all records so far keeps a value as a number; what cannot be added at all
    is refused as such."""
    for name, aggregate in aggregates:
        if not kind_of(aggregate.kind).values:
            continue
        for column in (aggregate.expression, aggregate.by):
            kind = input_type(schema, column) if isinstance(column, str) else None
            if kind is not None and storage(kind) is None and not pa.types.is_null(kind):
                raise GraphError(
                    f"aggregate({name}={aggregate.describe()}): the column {column!r} holds values "
                    f"of type {kind}, and only numbers and times can be kept over all records so "
                    "far: use over with rows or a range, or a window"
                )


def _check_kept(schema: pa.Schema, aggregates: Aggregates) -> None:
    for name, aggregate in aggregates:
        column = aggregate.expression
        kind = input_type(schema, column) if isinstance(column, str) else None
        known = kind is not None and aggregate.by is None and not pa.types.is_null(kind)
        if known and not is_kept(aggregate, kind):
            raise GraphError(
                f"aggregate({name}={aggregate.describe()}): {not_kept(aggregate, kind)}"
            )


def _check_hashes(schema: pa.Schema, aggregates: Aggregates) -> None:
    for name, aggregate in aggregates:
        column = aggregate.expression
        if aggregate.kind not in DISTINCT or not isinstance(column, str):
            continue
        kind = input_type(schema, column)
        if kind is not None:
            try:
                check_distinct(aggregate, kind)
            except TypeMismatchError as error:
                raise GraphError(f"aggregate({name}=...): {error}") from error
        if aggregate.kind != "approx_count_distinct":
            continue
        if kind is not None and holds_structs(kind):
            raise GraphError(
                f"aggregate({name}={aggregate.describe()}): the column {column!r} holds values of "
                f"type {kind}, and structs have no stable hash: take count_distinct, or a field"
            )


def _check_time(schema: pa.Schema, column: str, call: str) -> None:
    if column not in schema.names:
        shown = ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"
        raise GraphError(f"{call}: the stream has no column {column!r}; it has {shown}")
    kind = schema.field(column).type
    if not holds_event_times(kind) and not pa.types.is_null(kind):
        raise GraphError(
            f"{call}: the column {column!r} holds values of type {kind}, which are no event times: "
            "these are integers (ms since the epoch), timestamps or dates"
        )
