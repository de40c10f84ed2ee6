"""Map, flat-map and filter with row functions: tight loops over one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.records import FilterSpec, FlatMapSpec, MapSpec
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import TypeMismatchError
from ..base import Operator, Steps
from .collector import check_iterable
from .pace import Pace
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
        call = self._function.call
        self._emit(ObjectBatch([call(row) for row in batch.rows()], batch.timestamps))


class FlatMapOperator(_RowOperator):
    """Any number of results per record, each with the record's timestamp."""

    def __init__(self, spec: FlatMapSpec) -> None:
        super().__init__(spec.function, "flat_map", spec.schema)

    def open(self) -> None:
        super().open()
        self._pace = Pace(self.ctx.config.batch_size, self.ctx.clock)

    def process(self, batch: Batch, port: int = 0) -> Steps:
        """A batch goes out whenever there are results enough, with a pause after it, also within
        the results of one record: they may be without end. No checkpoint is taken then."""
        rows, stamps = batch.rows(), batch.timestamps
        done, rest = 0, None
        while True:
            values, counts, rest = self._some(rows, done, rest)
            some = stamps if stamps is None else stamps[done : done + len(counts)]
            self._emit(ObjectBatch(values, some if some is None else np.repeat(some, counts)))
            done += len(counts) - (rest is not None)
            if done == len(rows):
                return
            yield None

    def _some(
        self, rows: list[Any], start: int, rest: Iterator[Any] | None
    ) -> tuple[list[Any], list[int], Iterator[Any] | None]:
        """Results of the records from `start` on until they make a batch, how many of each, and
        what the last one may still give. `rest`: what is left of the first one's."""
        call, full = self._function.call, self._pace.begin()
        values: list[Any] = []
        counts: list[int] = []
        result: Any = ()
        size = 0
        try:
            for index in range(start, len(rows)):
                if rest is None:
                    result = call(rows[index])
                    if type(result) is list and len(result) <= full - size:
                        values.extend(result)
                    else:
                        rest = iter(result)
                if rest is not None:
                    values.extend(islice(rest, full - size))
                counts.append(len(values) - size)
                size = len(values)
                if size >= full:
                    self._pace.full()
                    return values, counts, rest
                rest = None
        except TypeError as error:
            check_iterable(result, "the flat_map function", error)
            raise
        return values, counts, None


class FilterOperator(_RowOperator):
    """The records for which the function is true. Columns stay columns."""

    def __init__(self, spec: FilterSpec) -> None:
        super().__init__(spec.function, "filter", None)

    def process(self, batch: Batch, port: int = 0) -> None:
        call = self._function.call
        mask = _truth([call(row) for row in batch.rows()])
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
        return np.fromiter([bool(result) for result in results], np.bool_, len(results))
    except Exception as error:
        bad = next((result for result in results if _has_no_truth(result)), None)
        raise TypeMismatchError(
            f"the filter function returned {bad!r} ({type(bad).__name__}), which is neither true "
            f"nor false: {type(error).__name__}: {error}"
        ) from error


def _has_no_truth(result: Any) -> bool:
    try:
        bool(result)
    except Exception:
        return True
    return False
