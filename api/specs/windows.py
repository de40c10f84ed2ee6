"""Specs of windows: what is done with the records of each, and the operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ...core.keys import KeySelector
from ..types.declared import Declared
from ..windows.base import MergingWindowAssigner
from .records import OperatorSpec
from .schemas import WINDOW_BOUNDS, bare_fields, known_keys, result_fields

if TYPE_CHECKING:
    from ..aggregates import Aggregate
    from ..functions.user_functions import OutputTag
    from ..windows.base import Trigger, WindowAssigner
    from ..windows.evictors import Evictor
    from .columns import Order


@dataclass(frozen=True)
class ReduceWindow:
    """`window_function`: None, WindowFunction or ProcessWindowFunction fed with the one result.
    `records`: what is reduced, None if it is not known; reductions are such records."""

    function: Any
    window_function: Any = None
    records: Declared | None = None


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
    schema: Declared | None = None
    keyed: bool = True
    evictor: Evictor[Any, Any] | None = None
    """Not with built-in functions: these keep no records."""

    @property
    def no_letters(self) -> str | None:
        if isinstance(self.function, COLUMN_FUNCTIONS):
            return (
                "its function is built in and runs on columns: it has no function of the program "
                "that could raise"
            )
        if self.evictor is not None:
            return "it has an evictor, and what that raises is no matter of a record"
        merging = isinstance(self.assigner, MergingWindowAssigner)
        if merging and not isinstance(self.function, ProcessWindow):
            return (
                "its windows merge, and where two accumulators do there is no record that makes "
                "the function raise; use process(...) or apply(...), which are given all records"
            )
        return None

    def result_schema(self, left: pa.Schema | None, right: pa.Schema | None) -> pa.Schema | None:
        if not isinstance(self.function, COLUMN_FUNCTIONS):
            return super().result_schema(left, right)
        if left is None:
            return None
        match self.function:
            case BuiltinWindow(aggregates):
                keys = known_keys(left, self.key) if self.keyed else pa.schema([])
                results = result_fields(left, aggregates)
                if keys is None or results is None:
                    return None
                return pa.schema([*bare_fields(keys), *WINDOW_BOUNDS, *results])
            case TopNWindow(rank=str(rank)):
                return pa.schema([*bare_fields(left), *WINDOW_BOUNDS, pa.field(rank, pa.int64())])
        return pa.schema([*bare_fields(left), *WINDOW_BOUNDS])
