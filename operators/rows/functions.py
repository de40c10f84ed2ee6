"""Map, flat-map and filter with row functions: tight loops over one batch at a time."""

from __future__ import annotations

from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.records import FilterSpec, FlatMapSpec, MapSpec
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import TypeMismatchError
from ..base import Operator
from .collector import check_iterable
from .runtime_context import OperatorRuntimeContext
from .user_function import UserFunction


class _RowOperator(Operator):
    """One function, without keyed state."""

    def __init__(self, function: Any, method: str, schema: pa.Schema | None) -> None:
        self._function = UserFunction(function, method)
        self._schema = schema

    def open(self) -> None:
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=False))

    def close(self) -> None:
        self._function.close(self.ctx.name)

    def _emit(self, batch: ObjectBatch) -> None:
        if len(batch):
            self.out.emit(batch if self._schema is None else to_columns(batch, self._schema))


class MapOperator(_RowOperator):
    """One result per record, with the record's timestamp."""

    def __init__(self, spec: MapSpec) -> None:
        super().__init__(spec.function, "map", spec.schema)

    def process(self, batch: Batch, port: int = 0) -> None:
        self._emit(ObjectBatch(list(map(self._function.call, batch.rows())), batch.timestamps))


class FlatMapOperator(_RowOperator):
    """Any number of results per record, each with the record's timestamp."""

    def __init__(self, spec: FlatMapSpec) -> None:
        super().__init__(spec.function, "flat_map", spec.schema)

    def open(self) -> None:
        super().open()
        self._chunk = max(1, self.ctx.config.batch_size)

    def process(self, batch: Batch, port: int = 0) -> None:
        """Sends a batch whenever `batch_size` results are there, so a function that yields a lot
        does not pile up its results in memory."""
        rows = batch.rows()
        done = 0
        while done < len(rows):
            values, counts = self._some(rows, done)
            stamps = batch.timestamps
            if stamps is not None:
                stamps = np.repeat(stamps[done : done + len(counts)], counts)
            self._emit(ObjectBatch(values, stamps))
            done += len(counts)

    def _some(self, rows: list[Any], start: int) -> tuple[list[Any], list[int]]:
        """Results of the records from `start` on until there are enough, and how many of each."""
        call, chunk = self._function.call, self._chunk
        values: list[Any] = []
        counts: list[int] = []
        result: Any = ()
        size = 0
        try:
            for index in range(start, len(rows)):
                result = call(rows[index])
                values.extend(result)
                counts.append(len(values) - size)
                size = len(values)
                if size >= chunk:
                    break
        except TypeError as error:
            check_iterable(result, "the flat_map function", error)
            raise
        return values, counts


class FilterOperator(_RowOperator):
    """The records for which the function is true. Columns stay columns."""

    def __init__(self, spec: FilterSpec) -> None:
        super().__init__(spec.function, "filter", None)

    def process(self, batch: Batch, port: int = 0) -> None:
        results = list(map(self._function.call, batch.rows()))
        mask = _truth(results)
        if mask.all():
            self.out.emit(batch)
        elif isinstance(batch, ColumnBatch):
            kept = batch.filter(mask)
            if len(kept):
                self.out.emit(kept)
        else:
            stamps = None if batch.timestamps is None else batch.timestamps[mask]
            self._emit(ObjectBatch(list(compress(batch.values, mask)), stamps))


def _truth(results: list[Any]) -> npt.NDArray[np.bool_]:
    try:
        return np.fromiter(map(bool, results), dtype=np.bool_, count=len(results))
    except Exception as error:
        bad = next(result for result in results if _has_no_truth(result))
        raise TypeMismatchError(
            f"the filter function returned {bad!r} ({type(bad).__name__}), which is neither true "
            f"nor false: {error}"
        ) from error


def _has_no_truth(result: Any) -> bool:
    try:
        bool(result)
    except Exception:
        return True
    return False
