"""The columns of a stream, where the program alone tells them.

Most operators learn the columns from their first record. One that may have to write a record's
columns without having seen any (an outer join, whose other side is empty) asks here when the
program is written. None means "not known before the job runs", never "wrong".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from ..core.batch import ColumnBatch
from ..core.keys import ColumnKey, ExpressionKey, KeySelector
from ..engine.graph.transformation import Input, Transformation
from . import specs
from .result_types import result_fields

if TYPE_CHECKING:
    import polars as pl

    from .data_stream import DataStream

WINDOW_BOUNDS = (pa.field("window_start", pa.int64()), pa.field("window_end", pa.int64()))
"""What windows append to their records: ms since the epoch."""


def known_schema(stream: DataStream) -> pa.Schema | None:
    """The columns that every batch of the stream will have; None where that is not known (Python
    objects, functions without a declared type), or where united streams differ."""
    return _common(_input_schema(one) for one in stream._inputs)


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
    spec = operator.spec
    match spec:
        case specs.SourceSpec(source):
            return source.schema
        case specs.FilterSpec() | specs.WatermarkSpec():
            return _common(map(_input_schema, operator.inputs))
        case specs.ExpressionSpec(kind):
            before = _common(map(_input_schema, operator.inputs))
            if before is None or kind == "filter":
                return before
            return _expression_schema(before, kind, spec.polars_expressions())
        case specs.WindowSpec(function=function) if isinstance(function, specs.COLUMN_FUNCTIONS):
            before = _common(map(_input_schema, operator.inputs))
            return None if before is None else _window_schema(before, spec)
    left, right = (
        _common(_input_schema(one) for one in operator.inputs if one.port == port)
        for port in (0, 1)
    )
    return spec.result_schema(left, right)


def _window_schema(before: pa.Schema, spec: specs.WindowSpec) -> pa.Schema | None:
    """Of windows that give columns; see the functions' specs."""
    match spec.function:
        case specs.BuiltinWindow(aggregates):
            keys = known_keys(before, spec.key) if spec.keyed else pa.schema([])
            results = result_fields(before, aggregates)
            if keys is None or results is None:
                return None
            return pa.schema([*bare_fields(keys), *WINDOW_BOUNDS, *results])
        case specs.TopNWindow(rank=str(rank)):
            return pa.schema([*bare_fields(before), *WINDOW_BOUNDS, pa.field(rank, pa.int64())])
    return pa.schema([*bare_fields(before), *WINDOW_BOUNDS])


def _expression_schema(
    before: pa.Schema, kind: str, expressions: tuple[pl.Expr, ...]
) -> pa.Schema | None:
    """As `operators.batches.expressions` makes them: what is only named keeps its type, the rest
    has the one that polars gives it."""
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


__all__ = ["WINDOW_BOUNDS", "bare_fields", "known_keys", "known_schema"]
