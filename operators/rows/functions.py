"""Map, flat-map and filter with row functions: tight loops over one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ...api.specs.records import FilterSpec, FlatMapSpec, MapSpec
from ...api.types.declared import Declared, as_declared
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.errors import TypeMismatchError
from ...core.failure_text import described, shown
from ...state.copies import ALL_FIXED, FIXED, all_fixed
from ..base import Operator, Steps
from .by_columns import ByColumns
from .collector import check_iterable
from .emitted import keeper, list_keeper
from .forgetful import keeps_nothing
from .pace import Pace
from .runtime_context import OperatorRuntimeContext
from .user_function import UserFunction


class RowOperator(Operator):
    """One function, without keyed state."""

    def __init__(self, function: Any, method: str, declared: Declared | None) -> None:
        self._function = UserFunction(function, method)
        self._declared = declared
        self.by_columns: ByColumns | None = None
        """Of operators that may run on columns."""

    def open(self) -> None:
        self._keep = keeper(self.ctx.config)
        self._function.open(OperatorRuntimeContext(self.ctx, keyed=False))

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._function.snapshot(checkpoint_id)

    def close(self) -> None:
        self._function.close(self.ctx.name)

    def _open_columns(self, *, truths: bool = False) -> None:
        """In `open`: have batches go by columns, if the job wants that. truths: the function is a
        predicate."""
        if self.ctx.config.compile_functions:
            self.by_columns = ByColumns(self._function.call, self._declared, truths=truths)

    def _emit(self, batch: ObjectBatch) -> None:
        if len(batch):
            self.out.emit(batch if self._declared is None else as_declared(batch, self._declared))


class MapOperator(RowOperator):
    """One result per record, with the record's timestamp."""

    def __init__(self, spec: MapSpec) -> None:
        super().__init__(spec.function, "map", spec.schema)
        self._forgets = keeps_nothing(spec.function)

    def open(self) -> None:
        super().open()
        self._open_columns()

    def process(self, batch: Batch, port: int = 0) -> None:
        made = None if self.by_columns is None else self.by_columns.results(batch)
        if made is not None:
            self.out.emit(made)
            return
        call, keep, fixed, of_fixed = self._function.call, self._keep, FIXED, ALL_FIXED
        if self._forgets and (isinstance(batch, ColumnBatch) or all_fixed(batch.values)):
            self._emit(ObjectBatch([call(row) for row in batch.rows()], batch.timestamps))
            return
        values: list[Any] = []
        append = values.append
        for row in batch.rows():
            value = call(row)
            kind = type(value)
            if kind in fixed or (kind is tuple and of_fixed(map(type, value))):
                append(value)
            else:
                append(keep(value))
        self._emit(ObjectBatch(values, batch.timestamps))


class FlatMapOperator(RowOperator):
    """Any number of results per record, each with the record's timestamp."""

    def __init__(self, spec: FlatMapSpec) -> None:
        super().__init__(spec.function, "flat_map", spec.schema)

    def open(self) -> None:
        super().open()
        self._keep_all = list_keeper(self.ctx.config)
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
        keep, keep_all = self._keep, self._keep_all
        values: list[Any] = []
        counts: list[int] = []
        result: Any = ()
        size = 0
        try:
            for index in range(start, len(rows)):
                if rest is None:
                    result = call(rows[index])
                    if type(result) is list and len(result) <= full - size:
                        values.extend(keep_all(result))
                    else:
                        rest = iter(result)
                if rest is not None:
                    for value in islice(rest, full - size):
                        values.append(value if type(value) in FIXED else keep(value))
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


class FilterOperator(RowOperator):
    """The records for which the function is true. Columns stay columns."""

    def __init__(self, spec: FilterSpec) -> None:
        super().__init__(spec.function, "filter", None)

    def open(self) -> None:
        super().open()
        self._open_columns(truths=True)

    def process(self, batch: Batch, port: int = 0) -> None:
        call = self._function.call
        if isinstance(batch, ObjectBatch) and not all_fixed(batch.values):
            self._filter_kept(batch)
            return
        mask = None if self.by_columns is None else self.by_columns.mask(batch)
        if mask is None:
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

    def _filter_kept(self, batch: ObjectBatch) -> None:
        """Of records that can change: the function may have kept some, and change them later."""
        call, keep = self._function.call, self._keep
        results, values = [], []
        for row in batch.values:
            results.append(call(row))
            values.append(keep(row))
        mask = _truth(results)
        stamps = None if batch.timestamps is None else batch.timestamps[mask]
        self._emit(ObjectBatch(list(compress(values, mask)), stamps))


def _truth(results: list[Any]) -> npt.NDArray[np.bool_]:
    try:
        return np.fromiter([bool(result) for result in results], np.bool_, len(results))
    except Exception as error:
        bad = next((result for result in results if _has_no_truth(result)), None)
        raise TypeMismatchError(
            f"the filter function returned {shown(bad)} ({type(bad).__name__}), which is neither "
            f"true nor false: {described(error)}"
        ) from error


def _has_no_truth(result: Any) -> bool:
    try:
        bool(result)
    except Exception:
        return True
    return False
