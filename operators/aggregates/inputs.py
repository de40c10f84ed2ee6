"""The columns that aggregates fold: one polars `select` per batch for all of them, conditions too.

One array per aggregate that takes input (`Aggregate.takes_input`), in their order:

  the expression's column; for `count().where(c)` the column of c; null where c is not true
  arg_min, arg_max: a struct of `value` and `by`, `by` being null where c is not true
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...api.aggregates import DISTINCT, Aggregate, check_distinct
from ...core.batch import ColumnBatch, take_column
from ...core.errors import TypeMismatchError
from ..columns import evaluate

if TYPE_CHECKING:
    import polars as pl


class AggregateInputs:
    """Made once per operator; equal expressions and conditions are computed once per batch."""

    def __init__(self, aggregates: Sequence[Aggregate]) -> None:
        self._expressions: list[str | pl.Expr] = []
        self._plans = [self._plan(a) for a in aggregates if a.takes_input]

    def of(self, batch: ColumnBatch) -> list[pa.Array]:
        """The inputs of the aggregates that take one, one value per record each."""
        columns = evaluate(batch, self._expressions)
        for aggregate, value, _, _ in self._plans:
            if value is not None and aggregate.kind in DISTINCT:
                check_distinct(aggregate, columns[value].type)
        masks: dict[int, pa.Array] = {}
        for aggregate, _, _, condition in self._plans:
            if condition is not None and condition not in masks:
                masks[condition] = _mask(columns[condition], aggregate)
        masked: dict[tuple[int, int], pa.Array] = {}
        return [self._input(plan, columns, masks, masked) for plan in self._plans]

    def _plan(self, aggregate: Aggregate) -> tuple[Aggregate, int | None, int | None, int | None]:
        value = self._index(aggregate.expression)
        return aggregate, value, self._index(aggregate.by), self._index(aggregate.condition)

    def _index(self, expression: str | pl.Expr | None) -> int | None:
        if expression is None:
            return None
        for index, other in enumerate(self._expressions):
            if same_expression(expression, other):
                return index
        self._expressions.append(expression)
        return len(self._expressions) - 1

    def _input(
        self,
        plan: tuple[Aggregate, int | None, int | None, int | None],
        columns: list[pa.Array],
        masks: dict[int, pa.Array],
        masked: dict[tuple[int, int], pa.Array],
    ) -> pa.Array:
        _, value, by, condition = plan

        def filtered(index: int) -> pa.Array:
            if condition is None:
                return columns[index]
            if (index, condition) not in masked:
                masked[index, condition] = null_unless(masks[condition], columns[index])
            return masked[index, condition]

        if value is None:
            assert condition is not None
            return filtered(condition)
        if by is None:
            return filtered(value)
        return pa.StructArray.from_arrays([columns[value], filtered(by)], names=["value", "by"])


def null_unless(mask: pa.Array, column: pa.Array) -> pa.Array:
    """The column, null where the mask (booleans without nulls) is false. For every type."""
    try:
        return pc.if_else(mask, column, pa.scalar(None, column.type))
    except pa.ArrowNotImplementedError:
        rows = pa.array(range(len(column)), pa.int64())
        return take_column(column, pc.if_else(mask, rows, pa.scalar(None, pa.int64())))


def _mask(column: pa.Array, aggregate: Aggregate) -> pa.Array:
    if not pa.types.is_boolean(column.type):
        raise TypeMismatchError(
            f"{aggregate.describe()}: the condition gives values of type {column.type}, must give "
            "booleans"
        )
    return column.fill_null(False) if column.null_count else column


def same_expression(left: str | pl.Expr, right: str | pl.Expr) -> bool:
    """Whether two inputs are the same column or expression."""
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str) and left == right
    return bool(left.meta.eq(right))
