"""select, with_columns and filter with polars expressions.

Expressions work on single records: `pl.col("price") * 0.9`. One that folds records together
(`pl.col("price").sum()`, `pl.len()`) would give an aggregate per batch, which means nothing in a
stream, and is an error; it is found on an empty frame, once per schema. (Expressions that look at
neighbours, such as `shift` or `x - x.mean()`, see their batch only and cannot be told apart.)

Types are stable from batch to batch, so that the exchange need not send schemas again: columns
that are not computed keep their Arrow arrays and types; polars gives computed text back as
`large_string`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.columns import NamedColumn, tells_kinds
from ...api.specs.records import ExpressionSpec
from ...core.batch import Batch, ColumnBatch, to_columns
from ...core.errors import OperatorError
from ...core.row_kind import ROW_KIND
from ...core.union_type import UnionType, are_within, spread_unions
from ...core.value_types import empty_batch, is_value_type, type_text
from ..base import Operator

if TYPE_CHECKING:
    import polars as pl


class ExpressionOperator(Operator):
    """Row functions' objects are turned into columns first."""

    def __init__(self, spec: ExpressionSpec) -> None:
        self._spec = spec
        self._schema: pa.Schema | None = None
        """The input schema that `_inputs` and `_computed` were found for."""

    def open(self) -> None:
        self._text = ", ".join(str(e) for e in self._spec.expressions)
        self._expressions: list[pl.Expr] = []
        """What polars computes; a task that only names columns does not load it."""
        self._named = [e for e in self._spec.expressions if isinstance(e, NamedColumn)]
        if len(self._named) == len(self._spec.expressions):
            return
        import polars as pl

        self._polars = pl
        self._expressions, self._named = list(self._spec.polars_expressions()), []
        if self._spec.kind == "filter" and len(self._expressions) > 1:
            self._expressions = [pl.all_horizontal(*self._expressions)]

    def process(self, batch: Batch, port: int = 0) -> None:
        columns = to_columns(batch)
        if self._schema is None or not columns.data.schema.equals(self._schema):
            self._prepare(columns.data.schema)
        match self._spec.kind:
            case "filter":
                result = columns.filter(self._mask(columns.data))
            case "select":
                result = ColumnBatch(self._select(columns.data), columns.timestamps)
            case "with_columns":
                result = ColumnBatch(self._with_columns(columns.data), columns.timestamps)
        if len(result):
            self.out.emit(result)

    def _mask(self, data: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Where all predicates hold; null is no."""
        holds = self._frame(data).to_series()
        if holds.null_count() or holds.dtype != self._polars.Boolean:  # it costs as much again
            holds = holds.fill_null(False)
        if len(holds) != data.num_rows and not self._constant:
            raise self._error(f"gives {len(holds)} values for {data.num_rows} records")
        mask: npt.NDArray[np.bool_] = holds.to_numpy()
        return np.broadcast_to(mask, data.num_rows) if self._constant else mask

    def _compute(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that the expressions give, one value per record."""
        frame = self._frame(data)
        if frame.height != data.num_rows:
            if not self._constant:
                raise self._error(f"gives {frame.height} rows for {data.num_rows} records")
            frame = frame.select(self._polars.all().repeat_by(data.num_rows).explode())
        arrays = [series.to_arrow() for series in frame]
        return pa.RecordBatch.from_arrays(arrays, names=frame.columns)

    def _select(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Columns that are only named pass as they are; polars sees what must be computed."""
        arrays: dict[str, pa.Array] = {}
        if self._expressions:
            computed = self._compute(data)
            arrays.update(zip(computed.schema.names, computed.columns, strict=True))
        for name, source in self._kept.items():
            arrays[name] = data.column(source)
        return pa.RecordBatch.from_arrays(
            [arrays[name] for name in self._order], names=list(self._order)
        )

    def _with_columns(self, data: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(data.schema.names, data.columns, strict=True))
        columns.update((one.name, data.column(one.source)) for one in self._named)
        if self._expressions:
            computed = self._compute(data)
            columns.update(zip(computed.schema.names, computed.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _frame(self, data: pa.RecordBatch) -> pl.DataFrame:
        try:
            known = spread_unions(data.select(self._inputs))
            return self._polars.DataFrame(known).select(*self._expressions)
        except self._polars.exceptions.PolarsError as error:
            raise self._error(f"{type(error).__name__}: {error}") from error

    def _prepare(self, schema: pa.Schema) -> None:
        """Check the expressions against this schema and find out which columns they need."""
        for one in self._spec.expressions:
            if isinstance(one, NamedColumn) and one.source not in schema.names:
                raise self._error(f"ColumnNotFoundError: no '{one.source}' in {schema.names}")
        if self._spec.kind == "select":
            self._split(schema)
        self._schema = schema
        if not self._expressions:
            return
        self._inputs = self._needed(schema.names)
        self._check_readable(schema)
        empty = self._polars.DataFrame(spread_unions(empty_batch(schema).select(self._inputs)))
        constants = 0
        for expression in self._expressions:
            try:
                height = empty.select(expression).height
                if height and not self._is_constant(empty, expression):
                    raise self._error(
                        f"{expression} folds the records of a batch into one value; expressions "
                        "work on single records, aggregates belong into windows"
                    )
            except self._polars.exceptions.PolarsError as error:
                raise self._error(f"{type(error).__name__}: {error}") from error
            constants += height != 0
        if self._spec.kind == "filter":
            for predicate in self._spec.polars_expressions():
                kind = empty.select(predicate).to_series().dtype
                if kind not in (self._polars.Boolean, self._polars.Null):
                    raise self._error(f"{predicate} gives {kind}; a filter must give Booleans")
        self._constant = constants == len(self._expressions)

    def _check_readable(self, schema: pa.Schema) -> None:
        """Expressions would compare what values are stored as, for which 1.5 is not 1.50."""
        named = {name for one in self._expressions for name in one.meta.root_names()}
        for field in schema:
            if field.name in named and _is_opaque(field.type):
                raise self._error(
                    f"the column '{field.name}' has type {type_text(field.type)}, which only "
                    "Python can read: use a function, as in map(lambda row: ...)"
                )

    def _split(self, schema: pa.Schema) -> None:
        """Tell apart what a select computes and which columns it only names."""
        self._order: list[str] = []
        """The output columns."""
        self._kept: dict[str, str] = {}
        """Output column to the input column it is."""
        self._expressions = []
        for expression in self._spec.expressions:
            named = _named_columns(expression, schema.names)
            if named is None:
                assert not isinstance(expression, NamedColumn)
                self._expressions.append(expression)
                empty = self._polars.DataFrame(spread_unions(empty_batch(schema)))
                self._order += self._names_of(empty, expression)
            else:
                self._kept.update(named)
                self._order += named
        if ROW_KIND in schema.names and not tells_kinds(self._spec.expressions):
            self._kept[ROW_KIND] = ROW_KIND
            self._order.append(ROW_KIND)
        twice = sorted({name for name in self._order if self._order.count(name) > 1})
        if twice:
            raise self._error(f"gives several columns of the name {', '.join(twice)}")

    def _names_of(self, empty: pl.DataFrame, expression: pl.Expr) -> list[str]:
        try:
            return list(empty.select(expression).columns)
        except self._polars.exceptions.PolarsError as error:
            raise self._error(f"{type(error).__name__}: {error}") from error

    def _needed(self, names: list[str]) -> list[str]:
        """The input columns that the expressions name; all if that cannot be told, or if none."""
        roots: set[str] = set()
        for expression in self._expressions:
            used = expression.meta.root_names()
            if not used or expression.meta.has_multiple_outputs() or not set(used) <= set(names):
                return names
            roots.update(used)
        return [name for name in names if name in roots]

    def _is_constant(self, empty: pl.DataFrame, expression: pl.Expr) -> bool:
        """Whether one value for an empty frame stands for every record: no column is used, and two
        records give the same one value."""
        if expression.meta.root_names():
            return False
        nothing = empty.select(expression)
        two = empty.clear(2).select(expression)
        return two.height == 1 and bool(two.equals(nothing))

    def _error(self, what: Any) -> OperatorError:
        return OperatorError(
            self.ctx.name, self.ctx.subtask, f"{self._spec.kind}({self._text}): {what}"
        )


def _named_columns(expression: pl.Expr | NamedColumn, names: list[str]) -> dict[str, str] | None:
    """Output to input column, where the expression only names columns: a NamedColumn, `pl.col("a")`
    with an alias or not, and `pl.all()`. None for anything else, also for columns that do not
    exist."""
    if isinstance(expression, NamedColumn):
        return {expression.name: expression.source}
    import polars as pl

    if expression.meta.eq(pl.all()):
        return {name: name for name in names}
    if expression.meta.has_multiple_outputs():
        return None
    plain = expression.meta.undo_aliases()
    if not plain.meta.is_column():
        return None
    source = plain.meta.output_name()
    return {expression.meta.output_name(): source} if source in names else None


def _is_opaque(kind: pa.DataType) -> bool:
    """Whether expressions cannot read such a column: of several kinds only whole columns are spread
    for them."""
    return are_within(kind) or (is_value_type(kind) and not isinstance(kind, UnionType))
