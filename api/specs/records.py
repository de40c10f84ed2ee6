"""`OperatorSpec`, and the specs of sources, sinks and what sees record by record or batch by batch.

A spec holds the user's functions as they were given; it is pickled (cloudpickle) into the job
graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ...core.keys import KeySelector
from .columns import NamedColumn, polars_expressions
from .schemas import expression_schema

if TYPE_CHECKING:
    import polars as pl

    from ..connectors.base import Sink, Source
    from ..watermarks import WatermarkStrategy


@dataclass(frozen=True)
class OperatorSpec:
    """Base. `key` is set for keyed operators; their input edge is partitioned by it."""

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        """The columns of the results, None where the program does not tell them. Called while the
        program is written. `left`, `right`: the columns of the records at port 0 and 1, None where
        they are not known or there is no such port."""
        declared = getattr(self, "schema", None)
        return declared if isinstance(declared, pa.Schema) else None


@dataclass(frozen=True)
class SourceSpec(OperatorSpec):
    source: Source
    watermarks: WatermarkStrategy | None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return self.source.schema


@dataclass(frozen=True)
class SinkSpec(OperatorSpec):
    sink: Sink


@dataclass(frozen=True)
class MapSpec(OperatorSpec):
    """`function`: callable or MapFunction. `schema`: results become columns of it."""

    function: Any
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class FlatMapSpec(OperatorSpec):
    function: Any
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class FilterSpec(OperatorSpec):
    function: Any

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left


@dataclass(frozen=True)
class ProcessSpec(OperatorSpec):
    """`function`: ProcessFunction."""

    function: Any
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class ExpressionSpec(OperatorSpec):
    """polars expressions over columns. filter: all must hold, none is a NamedColumn."""

    kind: Literal["select", "with_columns", "filter"]
    expressions: tuple[pl.Expr | NamedColumn, ...]

    def polars_expressions(self) -> tuple[pl.Expr, ...]:
        """All of them as polars expressions."""
        return polars_expressions(self.expressions)

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        if left is None or self.kind == "filter":
            return left
        return expression_schema(left, self.kind, self.polars_expressions())


@dataclass(frozen=True)
class MapBatchesSpec(OperatorSpec):
    """`function` maps one batch in `batch_format` to one batch of any format and length.

    `function` may be a class: one instance per subtask, called per batch. The result's rows keep
    the input's timestamps if their number is unchanged, else take the input's greatest one."""

    function: Any
    batch_format: Literal["arrow", "polars", "pandas", "numpy"] = "arrow"
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class WatermarkSpec(OperatorSpec):
    strategy: WatermarkStrategy

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left


@dataclass(frozen=True)
class KeyedProcessSpec(OperatorSpec):
    """`function`: KeyedProcessFunction."""

    key: KeySelector
    function: Any
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class ReduceSpec(OperatorSpec):
    """Rolling reduce: one output per input, the reduction so far of its key."""

    key: KeySelector
    function: Any
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class RollingSpec(OperatorSpec):
    """Rolling sum, min or max of one field (name or position): each input record comes out with
    that field replaced by the aggregate so far of its key. `min_by`/`max_by` emit the whole record
    that holds the extreme (the first, on ties)."""

    key: KeySelector
    kind: Literal["sum", "min", "max", "min_by", "max_by"]
    field: str | int
