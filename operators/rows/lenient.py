"""Map, flat-map and filter where a record for which the function raises is put aside."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...api.specs.records import FilterSpec, FlatMapSpec, MapSpec
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ..base import Steps
from ..letters import open_letters
from .collector import iterator
from .functions import RowOperator
from .gathering import Gathering


class LenientFlatMapOperator(RowOperator):
    """Any number of results per record, all of them or none, each with the record's timestamp."""

    _method = "flat_map"

    def __init__(self, spec: FlatMapSpec | MapSpec) -> None:
        super().__init__(spec.function, self._method, spec.schema)

    def open(self) -> None:
        super().open()
        letters = open_letters(self)
        assert letters is not None
        self._gathering = Gathering(self, letters, self._declared, sides=False)

    def process(self, batch: Batch, port: int = 0) -> Steps:
        gathering, results, method = self._gathering, self._results, self._method
        rows, times = batch.rows(), batch.timestamps
        stamps = [None] * len(rows) if times is None else times.tolist()
        for row, stamp in zip(rows, stamps, strict=True):
            if gathering.take(row, stamp, method, results, row):
                gathering.flush()
                yield None
        gathering.flush()

    def _results(self, row: Any) -> Any:
        found = self._function.call(row)
        return found if type(found) is list else iterator(found, "the flat_map function")


class LenientMapOperator(LenientFlatMapOperator):
    """One result per record."""

    _method = "map"

    def open(self) -> None:
        super().open()
        self._open_columns()

    def process(self, batch: Batch, port: int = 0) -> Steps | None:  # type: ignore[override]
        made = None if self.by_columns is None else self.by_columns.results(batch)
        if made is None:
            return super().process(batch, port)
        self.out.emit(made)
        return None

    def _results(self, row: Any) -> Any:
        return (self._function.call(row),)


class LenientFilterOperator(RowOperator):
    """The records for which the function is true. Columns stay columns."""

    def __init__(self, spec: FilterSpec) -> None:
        super().__init__(spec.function, "filter", None)

    def open(self) -> None:
        super().open()
        letters = open_letters(self)
        assert letters is not None
        self._letters = letters
        self._open_columns(truths=True)

    def process(self, batch: Batch, port: int = 0) -> None:
        known = None if self.by_columns is None else self.by_columns.mask(batch)
        if known is not None:
            assert isinstance(batch, ColumnBatch)
            self._pass(batch, known)
            return
        call, keep, times = self._function.call, self._keep, batch.timestamps
        columns = isinstance(batch, ColumnBatch)
        mask = np.zeros(len(batch), dtype=np.bool_)
        values = []
        for at, row in enumerate(batch.rows()):
            try:
                if call(row):
                    mask[at] = True
                    if not columns:
                        values.append(keep(row))
            except Exception as error:
                mask[at] = False
                stamp = None if times is None else int(times[at])
                self._letters.add(row, error, stamp, "filter")
        if isinstance(batch, ColumnBatch):
            self._pass(batch, mask)
        elif values:
            self.out.emit(ObjectBatch(values, None if times is None else times[mask]))

    def _pass(self, batch: ColumnBatch, mask: npt.NDArray[np.bool_]) -> None:
        kept = batch if mask.all() else batch.filter(mask)
        if len(kept):
            self.out.emit(kept)
