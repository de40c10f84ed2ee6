"""`TopNWindow` row by row: for sessions, count windows and other windows that have no slices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import pyarrow as pa

from ...api.specs.columns import OrderColumn
from ...api.specs.windows import TopNWindow
from ...core.batch import ColumnBatch
from ...core.row_values import field_of
from ..base import Output
from .builtin_windows import ExtremesEmitter, Layout


class TopNFold:
    """Accumulator: the first n records so far, in order; equal ones in order of arrival, or, where
    windows merged, of the merges."""

    def __init__(self, spec: TopNWindow) -> None:
        self._n = spec.n
        self._columns = spec.order

    def first(self, value: Any) -> Any:
        return [value]

    def add(self, accumulator: Any, value: Any) -> Any:
        held: list[Any] = accumulator
        at = len(held)
        while at and self._compare(value, held[at - 1]) < 0:
            at -= 1
        if at < self._n:
            held.insert(at, value)
            del held[self._n :]
        return held

    def merge(self, left: Any, right: Any) -> Any:
        return sorted(left + right, key=cmp_to_key(self._compare))[: self._n]

    def result(self, accumulator: Any) -> list[Any]:
        return list(accumulator)

    def _compare(self, left: Any, right: Any) -> int:
        for column in self._columns:
            order = _compare(column, field_of(left, column.name), field_of(right, column.name))
            if order:
                return order
        return 0


def _compare(column: OrderColumn, left: Any, right: Any) -> int:
    """-1, 0 or 1. Nulls come last in either direction; NaN is the greatest number."""
    if left is None or right is None:
        return int(left is None) - int(right is None)
    if left != left or right != right:
        order = int(left != left) - int(right != right)
    else:
        order = int(left > right) - int(left < right)
    return -order if column.descending else order


class TopNEmitter(ExtremesEmitter):
    """The records with the window's bounds, and their places if asked for, appended."""

    def __init__(self, out: Output, chunk: int, layout: Layout, spec: TopNWindow) -> None:
        super().__init__(out, chunk, layout)
        self._rank = spec.rank
        self._places: list[int] = []

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> None:
        for place, record in enumerate(contents[0], 1):
            self._places.append(place)
            self._gather(record, window)

    def _columns(self) -> ColumnBatch:
        batch = super()._columns()
        places, self._places = self._places, []
        if self._rank is None:
            return batch
        arrays = [*batch.data.columns, pa.array(places, type=pa.int64())]
        names = [*batch.data.schema.names, self._rank]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), batch.timestamps)
