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
from ...core.row_kind import ROW_KIND
from ...core.union_type import spread_unions
from ...core.value_types import empty_batch
from ...engine.graph.transformation import Input, Transformation
from ..aggregate_kinds import kind_of
from ..aggregates import Aggregate
from ..types.declared import Declared, Scalars
from .columns import tells_kinds

if TYPE_CHECKING:
    import polars as pl

WINDOW_BOUNDS = (pa.field(START, pa.int64()), pa.field(END, pa.int64()))
"""What windows append to their records: ms since the epoch."""


def result_type(aggregate: Aggregate, kind: pa.DataType | None) -> pa.DataType | None:
    """The type of the result over values of type `kind` (of `expression`, dictionaries decoded);
    None where it depends on `kind` and that is not known."""
    return kind_of(aggregate.kind).result(kind)


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
    """polars is shown only the columns that are needed: there are types that it cannot read."""
    import polars as pl

    roots = set(expression.meta.root_names()) & set(records.names)
    if roots and not expression.meta.has_multiple_outputs():
        records = pa.schema([field for field in records if field.name in roots])
    try:
        frame = pl.DataFrame(spread_unions(empty_batch(records))).select(expression)
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
    empty = empty_batch(schema)
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


def scalars_of_inputs(inputs: Iterable[Input]) -> Scalars | None:
    """What every record of these inputs is declared as, if that is one value; else None."""
    found = {_input_scalars(one) for one in inputs}
    return found.pop() if len(found) == 1 else None


def _input_scalars(one: Input) -> Scalars | None:
    if one.tag is not None:
        declared = _side(one)
        return declared if isinstance(declared, Scalars) else None
    spec = one.source.spec
    firsts = [before for before in one.source.inputs if before.port == 0]
    left = scalars_of_inputs(firsts) if firsts else None
    known: Scalars | None = spec.result_scalars(left)
    return known


def _side(one: Input) -> Declared | None:
    return dict(one.source.spec.side_types).get(one.tag)


def _input_schema(one: Input) -> pa.Schema | None:
    if one.tag is None:
        return _result_schema(one.source)
    declared = _side(one)
    return declared if isinstance(declared, pa.Schema) else None


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
        empty = pl.DataFrame(spread_unions(empty_batch(before)))
        for expression in expressions:
            named = _only_names(expression, before) if kind == "select" else None
            fields.update(named or _computed(empty, expression))
        if kind == "select" and ROW_KIND in before.names and not tells_kinds(expressions):
            fields[ROW_KIND] = before.field(ROW_KIND)
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
