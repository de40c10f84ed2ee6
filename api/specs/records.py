"""`OperatorSpec`, and the specs of sources, sinks and what sees record by record or batch by batch.

A spec holds the user's functions as they were given; it is pickled (cloudpickle) into the job
graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from ...core.errors import StromError
from ...core.keys import KeySelector
from ...state.ttl import Lifetime
from ..dead_letters import MALFORMED, DeadLetters
from ..functions.checkpointed import CheckpointedFunction, checkpointed
from ..types.declared import Declared, Scalars
from .columns import NamedColumn, polars_expressions
from .schemas import expression_schema

if TYPE_CHECKING:
    import polars as pl

    from ..connectors.base import Sink, Source
    from ..watermarks import WatermarkStrategy


_CALLS_NOTHING = (
    "it does not call a function of the program for each record, or cannot tell which record made "
    "one raise; map, flat_map, filter, process, reduce, map_batches, requests in flight and "
    "assign_timestamps_and_watermarks can: do there what may raise"
)


@dataclass(frozen=True)
class OperatorSpec:
    """Base. `key` is set for keyed operators; their input edge is partitioned by it. `schema`, of
    those that run users' functions: what results are declared as, None if they stay what they are.

    side_types: what side outputs are declared as, by tag, where the program reads them."""

    keeps_records: ClassVar[bool] = False
    """Whether results are records of the first input, as they came."""

    side_types: tuple[tuple[str, Declared], ...] = field(default=(), kw_only=True)

    on_error: DeadLetters | None = field(default=None, kw_only=True)
    """Where records go for which a function raises; None: the job fails."""

    writes_letters: ClassVar[bool] = False
    """Whether the operator can put records aside for which a function raises."""

    @property
    def no_letters(self) -> str | None:
        """Why the operator cannot put records aside; None: it can."""
        return None if self.writes_letters else _CALLS_NOTHING

    @property
    def keeps_keyed_state(self) -> bool:
        """Of operators whose inputs are partitioned by keys: of one stream, or of a join's."""
        keyed = getattr(self, "keyed", False)
        return bool(keyed) or hasattr(self, "key") or hasattr(self, "sides")

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        """The columns of the results, None where the program does not tell them. Called while the
        program is written. `left`, `right`: the columns of the records at port 0 and 1, None where
        they are not known or there is no such port."""
        declared = getattr(self, "schema", None)
        return declared if isinstance(declared, pa.Schema) else None

    def result_scalars(self, left: Scalars | None) -> Scalars | None:
        """What the results are declared as if they are one value each; else None. `left`: that of
        the records at port 0."""
        if self.keeps_records:
            return left
        declared = getattr(self, "schema", None)
        return declared if isinstance(declared, Scalars) else None


_ELSEWHERE = (FileNotFoundError, ConnectionError, TimeoutError, ImportError)
"""What it raises to look for something that only the machines of the job have."""


def is_elsewhere(error: BaseException | None) -> bool:
    """Whether an error, or one that it was raised from, says that something is not here."""
    while error is not None:
        if isinstance(error, _ELSEWHERE):
            return True
        error = error.__cause__
    return False


@dataclass(frozen=True)
class SourceSpec(OperatorSpec):
    """`scalars`: what its records have to be; None: what they are is known, or nobody says."""

    source: Source
    watermarks: WatermarkStrategy | None
    scalars: Scalars | None = None

    @property
    def no_letters(self) -> str | None:
        if self.source.malformed_to(MALFORMED) is not None:
            return None
        return (
            f"{type(self.source).__name__} does not put aside what it cannot read, or has said "
            "already what becomes of it. A FileSource does of Avro, and of CSV and JSON Lines "
            'with a declared schema; else read the lines (format "text") and parse them in a map '
            "with on_error"
        )

    def result_scalars(self, left: Scalars | None) -> Scalars | None:
        return self.scalars or self.source.scalars

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        """None also for a source that reads its columns from what is not there, or cannot be
        reached, where the program is written: the job may run elsewhere."""
        try:
            return self.source.schema
        except (StromError, OSError, ImportError) as error:
            if is_elsewhere(error):
                return None
            raise


@dataclass(frozen=True)
class SinkSpec(OperatorSpec):
    sink: Sink


@dataclass(frozen=True)
class PassSpec(OperatorSpec):
    """Records pass as they are; `schema`: what they are, if it is known."""

    schema: Declared | None = None


@dataclass(frozen=True)
class MapSpec(OperatorSpec):
    """`function`: callable or MapFunction."""

    writes_letters = True

    function: Any
    schema: Declared | None = None


@dataclass(frozen=True)
class FlatMapSpec(OperatorSpec):
    writes_letters = True

    function: Any
    schema: Declared | None = None


@dataclass(frozen=True)
class FilterSpec(OperatorSpec):
    writes_letters = True
    keeps_records = True

    function: Any

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left


@dataclass(frozen=True)
class ProcessSpec(OperatorSpec):
    """`function`: ProcessFunction."""

    writes_letters = True

    function: Any
    schema: Declared | None = None


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
        named = [one for one in self.expressions if isinstance(one, NamedColumn)]
        if self.kind == "with_columns" and len(named) == len(self.expressions):
            return _with_named(left, named)
        return expression_schema(left, self.kind, self.polars_expressions())


def _with_named(left: pa.Schema, named: Sequence[NamedColumn]) -> pa.Schema | None:
    """With columns under other names, which stay as they are."""
    if not {one.source for one in named} <= set(left.names):
        return None
    fields = {field.name: field for field in left}
    fields.update((one.name, left.field(one.source).with_name(one.name)) for one in named)
    return pa.schema(list(fields.values()))


@dataclass(frozen=True)
class MapBatchesSpec(OperatorSpec):
    """`function` maps one batch in `batch_format` to one batch of any format and length.

    `function` may be a class: one instance per subtask, called per batch. The result's rows keep
    the input's timestamps if their number is unchanged, else take the input's greatest one."""

    writes_letters = True

    function: Any
    batch_format: Literal["arrow", "polars", "pandas", "numpy"] = "arrow"
    schema: Declared | None = None

    @property
    def no_letters(self) -> str | None:
        given = self.function
        kind = given if isinstance(given, type) else type(checkpointed(given))
        if not issubclass(kind, CheckpointedFunction):
            return None
        return (
            "its function keeps state, and a batch that raises is given to it again in halves: "
            "what it had stored of the batch would be stored twice"
        )


@dataclass(frozen=True)
class WatermarkSpec(OperatorSpec):
    writes_letters = True
    keeps_records = True

    strategy: WatermarkStrategy

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left


@dataclass(frozen=True)
class KeyedProcessSpec(OperatorSpec):
    """`function`: KeyedProcessFunction."""

    writes_letters = True

    key: KeySelector
    function: Any
    schema: Declared | None = None


@dataclass(frozen=True)
class ReduceSpec(OperatorSpec):
    """Rolling reduce: one output per input, the reduction so far of its key. `schema` None: of the
    records' columns. `ttl`: a key without records for so long is forgotten."""

    writes_letters = True

    key: KeySelector
    function: Any
    schema: Declared | None = None
    ttl: Lifetime | None = None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        return left if self.schema is None else super().result_schema(left, right)


@dataclass(frozen=True)
class RollingSpec(OperatorSpec):
    """Rolling sum, min or max of one field (name or position): each input record comes out with
    that field replaced by the aggregate so far of its key. `min_by`/`max_by` emit the whole record
    that holds the extreme (the first, on ties). `ttl`: as of `ReduceSpec`. `of_first`: sum, min
    and max emit the key's first record with that field replaced, row by row, as Flink does.
    `scalars`: what the records, and so the results, are declared as, if that is one value each."""

    key: KeySelector
    kind: Literal["sum", "min", "max", "min_by", "max_by"]
    field: str | int
    ttl: Lifetime | None = None
    of_first: bool = False
    scalars: Scalars | None = None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        if left is None or self.kind != "sum":
            return left
        at = self.field if isinstance(self.field, int) else left.get_field_index(self.field)
        if not 0 <= at < len(left):
            return None
        kind = left.field(at).type
        return left if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None

    def result_scalars(self, left: Scalars | None) -> Scalars | None:
        return self.scalars
