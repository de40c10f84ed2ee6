"""Batch functions: one call per batch, in the format the function asks for, any format out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.functions.checkpointed import CheckpointedFunction, FunctionAdapter
from ...api.functions.user_functions import Function
from ...api.specs.connected import CoMapBatchesSpec
from ...api.specs.records import MapBatchesSpec
from ...api.types.declared import Declared, as_declared
from ...core.batch import Batch, ColumnBatch, ObjectBatch, Timestamps, to_columns
from ...core.constants import CHUNK_BATCHES
from ...core.errors import TypeMismatchError
from ...core.frames import frame_of
from ...core.union_type import UnionType, told_unions
from ...core.value_types import empty_batch, holds
from ..base import Operator, OperatorContext, Work, emit_slices
from ..rows.emitted import list_keeper
from ..rows.runtime_context import OperatorRuntimeContext
from ..rows.user_function import UserFunction


class MapBatchesOperator(Operator):
    """The function may be

    * a callable, called with each batch;
    * a class, of which one instance is made per subtask; instances are called (`__call__`), and
      their `open(runtime_context)` and `close()` are called if they have them.

    A batch in "numpy" format is a dict from column name to array. What comes back may be a
    RecordBatch, Table, polars or pandas DataFrame, a dict of arrays or lists, or a list of Python
    values; its number of rows is free.
    """

    def __init__(self, spec: MapBatchesSpec | CoMapBatchesSpec) -> None:
        self._spec = spec
        self._convert = CONVERT[spec.batch_format]
        self._lifecycle: UserFunction | None = None

    def open(self) -> None:
        function = self._spec.function
        instance = function() if isinstance(function, type) else function
        self._bind(instance)
        if isinstance(function, type) or self._is_opened(instance):
            self._lifecycle = UserFunction(_Lifecycle(instance), "call")
            self._lifecycle.open(self._runtime_context())

    def _is_opened(self, instance: Any) -> bool:
        """Whether `open` and `close` of an object that was given are meant for the operator."""
        return isinstance(instance, (Function, CheckpointedFunction))

    def _runtime_context(self) -> OperatorRuntimeContext:
        return OperatorRuntimeContext(self.ctx, keyed=False)

    def _bind(self, instance: Any) -> None:
        """Find what is called with each batch."""
        if not callable(instance):
            raise TypeMismatchError(
                f"map_batches of operator '{self.ctx.name}': {instance!r} is not callable; give a "
                "function, or a class with __call__"
            )
        self._function: Callable[[Any], Any] = instance

    def process(self, batch: Batch, port: int = 0) -> Work:
        result, size = self._mapped(batch)
        return emit_slices(self.out, result, size) if len(result) else None

    def _mapped(self, batch: Batch) -> tuple[Batch, int]:
        """What the function makes of a batch, and in slices of how many records it goes out."""
        columns = to_columns(batch)
        result = self._batch(self._function(self._convert(columns.data)))
        if self._spec.schema is not None:
            result = as_declared(result, self._spec.schema)
        if not len(result):
            return result, 1
        stamps = result_timestamps(columns.timestamps, len(result))
        size = max(len(columns), self.ctx.config.batch_size * CHUNK_BATCHES)
        return result.with_timestamps(stamps), size

    def _batch(self, result: Any) -> Batch:
        """What the function returned, as a batch."""
        return result_batch(result, self.ctx, "map_batches", self._spec.schema)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        if self._lifecycle is not None:
            self._lifecycle.snapshot(checkpoint_id)

    def close(self) -> None:
        if self._lifecycle is not None:
            self._lifecycle.close(self.ctx.name)


class _Lifecycle(FunctionAdapter):
    """Gives an instance's optional `open` and `close` the lifecycle of a `Function`."""

    def call(self, batch: Any) -> Any:
        return self.function(batch)

    def open(self, runtime_context: Any) -> None:
        method = getattr(self.function, "open", None)
        if callable(method):
            method(runtime_context)

    def close(self) -> None:
        method = getattr(self.function, "close", None)
        if callable(method):
            method()


def result_batch(
    result: Any, ctx: OperatorContext, method: str, declared: Declared | None = None
) -> Batch:
    """What a batch function returned, as a batch. TypeMismatchError, naming the `method` that was
    given the function, if it is none. `declared`: what it is to be, which it may be not."""
    if isinstance(result, list):
        return ObjectBatch(list_keeper(ctx.config)(result))  # in a list of its own
    data = to_record_batch(result, declared if isinstance(declared, pa.Schema) else None)
    if data is None:
        raise TypeMismatchError(
            f"{method} of operator '{ctx.name}', subtask {ctx.subtask}: the function returned a "
            f"{type(result).__module__}.{type(result).__qualname__}; return a RecordBatch, Table, "
            "DataFrame, dict of arrays or list of values"
        )
    return ColumnBatch(data)


def to_record_batch(result: Any, declared: pa.Schema | None = None) -> pa.RecordBatch | None:
    """Columnar data of any known kind as one record batch; None if it is of no known kind. What can
    be written to is copied, for a function may fill the same arrays again."""
    maps = {} if declared is None else _with_maps(declared)
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        return _one_batch(result)
    if isinstance(result, dict):
        made = {
            name: _told(name, values, maps[name]) if name in maps else _array(values)
            for name, values in result.items()
        }
        return pa.RecordBatch.from_pydict(made)
    polars, pandas = sys.modules.get("polars"), sys.modules.get("pandas")
    if polars is not None and isinstance(result, polars.DataFrame):
        return _one_batch(result.to_arrow())
    if pandas is not None and isinstance(result, pandas.DataFrame):
        told = [name for name in result.columns if name in maps]
        rest = pa.RecordBatch.from_pandas(
            result.drop(columns=told).copy(), preserve_index=False
        ).replace_schema_metadata()
        if not told:
            return rest
        columns = dict(zip(rest.schema.names, rest.columns, strict=True))
        columns |= {name: _told(name, result[name].tolist(), maps[name]) for name in told}
        names = [str(name) for name in result.columns]
        return pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
    return None


def _with_maps(declared: pa.Schema) -> dict[str, pa.DataType]:
    """The types of columns with maps, as Python values have them: lists of pairs, which Arrow takes
    for lists unless it is told."""
    plain = {
        field.name: field.type.spread_type if isinstance(field.type, UnionType) else field.type
        for field in declared
    }
    return {name: kind for name, kind in plain.items() if holds(kind, pa.types.is_map)}


def _told(name: str, values: Any, kind: pa.DataType) -> pa.Array:
    """The column as this type, which Python's values do not say."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _array(values)
    try:
        return pa.array(list(values), kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TypeMismatchError(
            f"column '{name}' does not fit its declared type {kind}: {error}"
        ) from error


def _array(values: Any) -> pa.Array:
    """A one-dimensional column; arrays of more dimensions become lists per row."""
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return pa.array(values.tolist())
    if isinstance(values, np.ndarray) and values.flags.writeable:
        values = values.copy()  # Arrow would take it as it is
    return values if isinstance(values, pa.Array) else pa.array(values)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else empty_batch(table.schema)


def result_timestamps(stamps: Timestamps | None, rows: int) -> Timestamps | None:
    """The input's timestamps if the number of rows is unchanged, else its greatest one for all."""
    if stamps is None or len(stamps) == rows:
        return stamps
    return np.full(rows, stamps.max(), dtype=np.int64)


def _to_polars(data: pa.RecordBatch) -> Any:
    return frame_of(data)


def _to_numpy(data: pa.RecordBatch) -> dict[str, Any]:
    return {
        name: column.to_numpy(zero_copy_only=False)
        for name, column in zip(data.schema.names, told_unions(data, "numpy").columns, strict=True)
    }


def _to_pandas(data: pa.RecordBatch) -> Any:
    return told_unions(data, "pandas").to_pandas()


CONVERT: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "arrow": lambda data: data,
    "polars": _to_polars,
    "pandas": _to_pandas,
    "numpy": _to_numpy,
}
