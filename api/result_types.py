"""The Arrow types of aggregates' results, before or while a job runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from .aggregates import Aggregate

if TYPE_CHECKING:
    import polars as pl


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


__all__ = ["input_type", "result_fields", "result_type"]
