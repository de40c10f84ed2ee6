"""The columns of streams where the program alone tells them, and the types of aggregates' results.

Most operators learn the columns from their first record. One that may have to write a record's
columns without having seen any (an outer join, whose other side is empty) asks here when the
program is written. None means "not known before the job runs", never "wrong".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from ...core.batch import ColumnBatch
from ...core.constants import END, START
from ...core.keys import ColumnKey, ExpressionKey, KeySelector
from ...engine.graph.transformation import Input, Transformation
from ..aggregates import Aggregate

if TYPE_CHECKING:
    import polars as pl

WINDOW_BOUNDS = (pa.field(START, pa.int64()), pa.field(END, pa.int64()))
"""What windows append to their records: ms since the epoch."""


def result_type(aggregate: Aggregate, kind: pa.DataType | None) -> pa.DataType | None:
    """The type of the result over values of type `kind` (of `expression`, dictionaries decoded);
    None where it depends on `kind` and that is not known."""
    match aggregate.kind:
        case "count" | "count_distinct" | "approx_count_distinct":
            return pa.int64()
        case "mean" | "variance" | "stddev":
            return pa.float64()
        case _ if kind is None:
            return None
        case "sum":
            return pa.float64() if pa.types.is_floating(kind) else pa.int64()
        case "collect" | "largest" | "smallest":
            return pa.list_(kind)
        case _:
            return kind


def result_fields(
    records: pa.Schema, aggregates: Iterable[tuple[str, Aggregate]]
) -> list[pa.Field] | None:
    """The columns of aggregates (by name) over records of these columns; None where one does not
    fit them, which fails when the job runs."""
    fields = []
    for name, aggregate in aggregates:
        kind = input_type(records, aggregate.expression)
        found = result_type(aggregate, kind)
        if found is None or (kind is None and aggregate.expression is not None):
            return None
        fields.append(pa.field(name, found))
    return fields


def input_type(records: pa.Schema, expression: str | pl.Expr | None) -> pa.DataType | None:
    """Of a column or expression, dictionaries decoded; None if there is none or it does not fit."""
    if expression is None:
        return None
    if isinstance(expression, str):
        found = records.field(expression).type if expression in records.names else None
    else:
        found = _computed_type(records, expression)
    if found is None or not pa.types.is_dictionary(found):
        return found
    return found.value_type


def _computed_type(records: pa.Schema, expression: pl.Expr) -> pa.DataType | None:
    import polars as pl

    try:
        frame = pl.DataFrame(records.empty_table()).select(expression)
    except (pl.exceptions.PolarsError, pa.ArrowException):
        return None
    return frame.to_series().to_arrow().type if frame.width == 1 else None


def schema_of_inputs(inputs: Iterable[Input]) -> pa.Schema | None:
    """The columns that every batch of these inputs will have; None where that is not known (Python
    objects, functions without a declared type), or where inputs differ."""
    return _common(map(_input_schema, inputs))


def known_keys(schema: pa.Schema | None, key: KeySelector) -> pa.Schema | None:
    """The key columns of a stream of these columns; None if `schema` is, or for keys that are no
    columns, or for expressions that do not fit the columns (which fails when the job runs)."""
    if schema is None:
        return None
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    if isinstance(key, ExpressionKey):
        import polars as pl

        try:
            return key.key_columns(ColumnBatch(empty)).schema
        except pl.exceptions.PolarsError:
            return None
    if isinstance(key, ColumnKey) and not set(key.names) <= set(schema.names):
        return None
    keys = key.key_columns(ColumnBatch(empty))
    return None if keys is None else keys.schema


def bare_fields(schema: pa.Schema) -> list[pa.Field]:
    """Names and types alone, as operators with state keep them."""
    return [pa.field(field.name, field.type) for field in schema]


def _input_schema(one: Input) -> pa.Schema | None:
    return None if one.tag is not None else _result_schema(one.source)


def _common(schemas: Iterable[pa.Schema | None]) -> pa.Schema | None:
    found = list(schemas)
    first = found[0] if found else None
    if first is None or not all(one is not None and one.equals(first) for one in found):
        return None
    return first


def _result_schema(operator: Transformation) -> pa.Schema | None:
    left, right = (
        _common(_input_schema(one) for one in operator.inputs if one.port == port)
        for port in (0, 1)
    )
    known: pa.Schema | None = operator.spec.result_schema(left, right)
    return known


def expression_schema(
    before: pa.Schema, kind: str, expressions: tuple[pl.Expr, ...]
) -> pa.Schema | None:
    """Of polars expressions, as `operators.batches.expressions` makes them: what is only named
    keeps its type, the rest has the one that polars gives it."""
    import polars as pl

    fields = {field.name: field for field in before} if kind == "with_columns" else {}
    try:
        empty = pl.DataFrame(before.empty_table())
        for expression in expressions:
            named = _only_names(expression, before) if kind == "select" else None
            fields.update(named or _computed(empty, expression))
    except (pl.exceptions.PolarsError, pa.ArrowException):
        return None
    return pa.schema(list(fields.values()))


def _only_names(expression: pl.Expr, before: pa.Schema) -> dict[str, pa.Field] | None:
    """The fields of an expression that computes nothing, None for others."""
    import polars as pl

    if expression.meta.eq(pl.all()):
        return {field.name: field for field in before}
    if expression.meta.has_multiple_outputs():
        return None
    plain = expression.meta.undo_aliases()
    if not plain.meta.is_column() or plain.meta.output_name() not in before.names:
        return None
    name = expression.meta.output_name()
    return {name: before.field(plain.meta.output_name()).with_name(name)}


def _computed(empty: pl.DataFrame, expression: pl.Expr) -> dict[str, pa.Field]:
    series = empty.select(expression)
    return {one.name: pa.field(one.name, one.to_arrow().type) for one in series}
