"""Batch functions: one call per batch, in the format the function asks for, any format out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.functions.user_functions import Function
from ...api.specs.records import MapBatchesSpec
from ...core.batch import Batch, ColumnBatch, ObjectBatch, Timestamps, to_columns
from ...core.errors import TypeMismatchError
from ..base import Operator
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

    def __init__(self, spec: MapBatchesSpec) -> None:
        self._spec = spec
        self._convert = _CONVERT[spec.batch_format]
        self._lifecycle: UserFunction | None = None

    def open(self) -> None:
        function = self._spec.function
        instance = function() if isinstance(function, type) else function
        if not callable(instance):
            raise TypeMismatchError(
                f"map_batches of operator '{self.ctx.name}': {instance!r} is not callable; give a "
                "function, or a class with __call__"
            )
        self._function: Callable[[Any], Any] = instance
        if isinstance(function, type) or isinstance(instance, Function):
            self._lifecycle = UserFunction(_Lifecycle(instance), "call")
            self._lifecycle.open(OperatorRuntimeContext(self.ctx, keyed=False))

    def process(self, batch: Batch, port: int = 0) -> None:
        columns = to_columns(batch)
        result = self._batch(self._function(self._convert(columns.data)))
        if self._spec.schema is not None:
            result = to_columns(result, self._spec.schema)
        if len(result):
            stamps = _timestamps(columns.timestamps, len(result))
            self.out.emit(result.with_timestamps(stamps))

    def close(self) -> None:
        if self._lifecycle is not None:
            self._lifecycle.close(self.ctx.name)

    def _batch(self, result: Any) -> Batch:
        """What the function returned, as a batch."""
        if isinstance(result, list):
            return ObjectBatch(result)
        data = to_record_batch(result)
        if data is None:
            raise TypeMismatchError(
                f"map_batches of operator '{self.ctx.name}', subtask {self.ctx.subtask}: the "
                f"function returned a {type(result).__module__}.{type(result).__qualname__}; "
                "return a RecordBatch, Table, DataFrame, dict of arrays or list of values"
            )
        return ColumnBatch(data)


class _Lifecycle(Function):
    """Gives an instance's optional `open` and `close` the lifecycle of a `Function`."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def call(self, batch: Any) -> Any:
        return self._instance(batch)

    def open(self, runtime_context: Any) -> None:
        method = getattr(self._instance, "open", None)
        if callable(method):
            method(runtime_context)

    def close(self) -> None:
        method = getattr(self._instance, "close", None)
        if callable(method):
            method()


def to_record_batch(result: Any) -> pa.RecordBatch | None:
    """Columnar data of any known kind as one record batch; None if it is of no known kind."""
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        return _one_batch(result)
    if isinstance(result, dict):
        return pa.RecordBatch.from_pydict({name: _array(values) for name, values in result.items()})
    polars, pandas = sys.modules.get("polars"), sys.modules.get("pandas")
    if polars is not None and isinstance(result, polars.DataFrame):
        return _one_batch(result.to_arrow())
    if pandas is not None and isinstance(result, pandas.DataFrame):
        return pa.RecordBatch.from_pandas(result, preserve_index=False).replace_schema_metadata()
    return None


def _array(values: Any) -> pa.Array:
    """A one-dimensional column; arrays of more dimensions become lists per row."""
    if isinstance(values, np.ndarray) and values.ndim > 1:
        return pa.array(values.tolist())
    return values if isinstance(values, pa.Array) else pa.array(values)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _timestamps(stamps: Timestamps | None, rows: int) -> Timestamps | None:
    """The input's timestamps if the number of rows is unchanged, else its greatest one for all."""
    if stamps is None or len(stamps) == rows:
        return stamps
    return np.full(rows, stamps.max(), dtype=np.int64)


def _to_polars(data: pa.RecordBatch) -> Any:
    import polars as pl

    return pl.DataFrame(data)


def _to_numpy(data: pa.RecordBatch) -> dict[str, Any]:
    return {
        name: column.to_numpy(zero_copy_only=False)
        for name, column in zip(data.schema.names, data.columns, strict=True)
    }


_CONVERT: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "arrow": lambda data: data,
    "polars": _to_polars,
    "pandas": lambda data: data.to_pandas(),
    "numpy": _to_numpy,
}
