"""What a call names and the stream is known not to have: an error in that line of the program.

Only what is certain is refused: the columns are known (`schema_of_inputs`), and the name is given
as a name, or as a root of a polars expression. All else is told when the job runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ...core.errors import GraphError
from ...core.keys import ColumnKey, ExpressionKey, KeySelector, check_key_types
from ...engine.graph.transformation import Input
from ..aggregate_kinds import kind_of
from ..aggregates import Aggregate
from ..functions.validation import is_expression
from .columns import Order, direction_hint
from .records import OperatorSpec, RollingSpec
from .schemas import input_type, schema_of_inputs
from .tables import DeduplicateSpec, GroupAggregateSpec, OverSpec, TopNSpec
from .windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowSpec

Inputs = tuple[Input, ...]
"""What an operator reads; their columns may be known."""


def check_key_columns(method: str, inputs: Inputs, key: KeySelector) -> None:
    """GraphError if the key needs a column that the stream is known not to have, TypeMismatchError
    if it is known to be of a type that cannot be a key."""
    match key:
        case ColumnKey(names):
            needed: Iterable[Any] = names
        case ExpressionKey(expressions):
            needed = expressions
        case _:
            return
    schema = schema_of_inputs(inputs)
    call = f"{method}({key.describe()})"
    for column in needed if schema is not None else ():
        assert schema is not None
        _require(schema, column, call)
        kind = input_type(schema, column)
        if kind is not None:
            name = column.meta.output_name() if is_expression(column) else column
            check_key_types(pa.schema([pa.field(name, kind)]), call)


def check_columns(spec: OperatorSpec, inputs: Inputs) -> None:
    """GraphError if the operator aggregates or orders by a column that the stream is known not to
    have, or adds up one that is known to hold no numbers."""
    match spec:
        case RollingSpec(kind=kind, field=field):
            schema = schema_of_inputs(inputs)
            if schema is not None:
                _check_rolling(schema, kind, field)
        case WindowSpec(function=BuiltinWindow(aggregates)):
            _check_aggregates(inputs, aggregates)
        case GroupAggregateSpec(aggregates=aggregates) | OverSpec(aggregates=aggregates):
            _check_aggregates(inputs, aggregates)
        case WindowSpec(function=ExtremeWindow(field=field, kind=kind)):
            _check_names(inputs, [field], f"{kind}_by({field!r})")
        case WindowSpec(function=TopNWindow(n=n, order=order)):
            _check_order(inputs, order, f"top_n({n})")
        case TopNSpec(n=n, order=order):
            _check_order(inputs, order, f"top_n({n})")
        case DeduplicateSpec(order=order) if order:
            _check_order(inputs, order, "deduplicate")


def _check_names(inputs: Inputs, names: list[str], call: str) -> None:
    schema = schema_of_inputs(inputs)
    if schema is not None:
        for name in names:
            _require(schema, name, call)


def _check_order(inputs: Inputs, order: Order, call: str) -> None:
    schema = schema_of_inputs(inputs)
    if schema is not None:
        for column in order:
            _require(schema, column.name, call, direction_hint([column.name]))


def _check_rolling(schema: pa.Schema, kind: str, field: str | int) -> None:
    call = f"{kind}({field!r})"
    if isinstance(field, int):
        if field >= len(schema):
            raise GraphError(
                f"{call}: the stream has only {len(schema)} columns, {_shown(schema)}, and "
                "positions count from 0"
            )
        field = schema.names[field]
    _require(schema, field, call)
    if kind == "sum":
        _require_number(schema.field(field), schema, call)


def _check_aggregates(inputs: Inputs, aggregates: tuple[tuple[str, Aggregate], ...]) -> None:
    schema = schema_of_inputs(inputs)
    for name, aggregate in aggregates if schema is not None else ():
        assert schema is not None
        call = f"aggregate({name}={aggregate.describe()})"
        for column in (aggregate.expression, aggregate.by, aggregate.condition):
            if column is not None:
                _require(schema, column, call)
        if kind_of(aggregate.kind).adds and isinstance(aggregate.expression, str):
            _require_number(schema.field(aggregate.expression), schema, call)


def _require(schema: pa.Schema, column: Any, call: str, hint: str = "") -> None:
    names = column.meta.root_names() if is_expression(column) else [column]
    plain = [name for name in names if name and name != "*" and not name.startswith("^")]
    missing = [name for name in plain if name not in schema.names]
    if missing:
        raise GraphError(
            f"{call}: the stream has no column {', '.join(map(repr, missing))}; it has "
            f"{_shown(schema)}{hint}"
        )


def _require_number(field: pa.Field, schema: pa.Schema, call: str) -> None:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not number and not pa.types.is_null(kind):
        raise GraphError(
            f"{call}: the column {field.name!r} holds values of type {kind}, which cannot be added "
            f"up; the stream has {_shown(schema)}: cast the column to int64 or float64, or take "
            "another one"
        )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"
