"""Operators as plain data: what the API records and what `operators/` builds running code from.

A spec holds the user's functions as they were given; it is pickled (cloudpickle) into the job
graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..core.keys import KeySelector

if TYPE_CHECKING:
    import polars as pl

    from .aggregates import Aggregate
    from .connectors import Sink, Source
    from .order import Order
    from .output_tag import OutputTag
    from .triggers import Trigger
    from .watermarks import WatermarkStrategy
    from .windows import WindowAssigner


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


@dataclass(frozen=True)
class ProcessSpec(OperatorSpec):
    """`function`: ProcessFunction."""

    function: Any
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class NamedColumn:
    """Column `source` under the name `name`: what needs no polars to compute."""

    name: str
    source: str

    def __str__(self) -> str:
        return f'col("{self.source}")' + ("" if self.name == self.source else f" as {self.name}")

    def expression(self) -> pl.Expr:
        """The same as an expression."""
        import polars as pl

        return pl.col(self.source).alias(self.name)


@dataclass(frozen=True)
class ExpressionSpec(OperatorSpec):
    """polars expressions over columns. filter: all must hold, none is a NamedColumn."""

    kind: Literal["select", "with_columns", "filter"]
    expressions: tuple[pl.Expr | NamedColumn, ...]

    def polars_expressions(self) -> tuple[pl.Expr, ...]:
        """All of them as polars expressions."""
        return tuple(e.expression() if isinstance(e, NamedColumn) else e for e in self.expressions)


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


@dataclass(frozen=True)
class ReduceWindow:
    """`window_function`: None, WindowFunction or ProcessWindowFunction fed with the one result."""

    function: Any
    window_function: Any = None


@dataclass(frozen=True)
class AggregateWindow:
    function: Any
    window_function: Any = None


@dataclass(frozen=True)
class ProcessWindow:
    """`function`: ProcessWindowFunction or WindowFunction (ProcessAll/All when the stream is not
    keyed)."""

    function: Any


@dataclass(frozen=True)
class BuiltinWindow:
    """Built-in aggregates by output column name, on kernels. Output columns: the key columns,
    `window_start`, `window_end` (int64 ms), then the aggregates; timestamp = window end - 1."""

    aggregates: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True)
class ExtremeWindow:
    """The input records holding the window's extreme of `field` per key, all of them if `ties`
    (else the first), each with `window_start` and `window_end` (int64 ms) appended."""

    field: str
    kind: Literal["min", "max"]
    ties: bool


@dataclass(frozen=True)
class TopNWindow:
    """The first `n` input records of each key and window in `order`, ties in order of arrival, each
    with `window_start` and `window_end` (int64 ms) appended, then, unless `rank` is None, an int64
    column of that name: the record's place, from 1."""

    n: int
    order: Order
    rank: str | None = None


WindowFunctionSpec = (
    ReduceWindow | AggregateWindow | ProcessWindow | BuiltinWindow | ExtremeWindow | TopNWindow
)
COLUMN_FUNCTIONS = (BuiltinWindow, ExtremeWindow, TopNWindow)
"""Those that give columns and may run on kernels."""


@dataclass(frozen=True)
class WindowSpec(OperatorSpec):
    """A keyed window operator; `window_all` uses `ConstantKey` at parallelism 1 and `keyed`
    False."""

    key: KeySelector
    assigner: WindowAssigner
    function: WindowFunctionSpec
    trigger: Trigger | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None
    schema: pa.Schema | None = None
    keyed: bool = True
