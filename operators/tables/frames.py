"""Aggregates over frames of rows that lie key by key: one array per aggregate.

A frame is rows starts[i] .. ends[i] - 1; see `kernels.over`. Counts and integer sums are
differences of running totals, as are means of integers; first and last are look-ups, the others
have kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ..columns import from_numbers, is_whole, to_numbers, validity, whole_numbers
from ..order_words import value_words
from ..sums import overflow

_LIMIT = 2.0**63


class Frames:
    """The frames of a batch. `rows` is how many rows there are in all."""

    def __init__(self, starts: Int64s, ends: Int64s, rows: int) -> None:
        self._starts = np.ascontiguousarray(starts)
        self._ends = np.ascontiguousarray(ends)
        self._rows = rows

    def sizes(self) -> pa.Array:
        """How many rows each frame has."""
        return pa.array(self._ends - self._starts)

    def aggregate(self, aggregate: Aggregate, array: pa.Array) -> pa.Array:
        """The aggregate of each frame over `array`, one value per row."""
        match aggregate.kind:
            case "count":
                return pa.array(self._counts(validity(array)))
            case "sum" if not pa.types.is_floating(array.type):
                return self._integer_sums(aggregate, array)
            case "mean" if is_whole(array.type):
                return self._whole_means(array)
            case "sum" | "mean":
                return self._float_sums(array, aggregate.kind == "mean")
            case "min" | "max":
                return self._extremes(array, aggregate.kind == "max")
            case "first" | "last":
                return self._ends_of(array, aggregate.kind == "last")
        raise AssertionError(f"over offers no {aggregate.kind}")

    def _counts(self, valid: Bools) -> Int64s:
        if not len(valid):
            return self._ends - self._starts
        totals = _totals(valid.astype(np.int64))
        counts: Int64s = totals[self._ends] - totals[self._starts]
        return counts

    def _integer_sums(self, aggregate: Aggregate, array: pa.Array) -> pa.Array:
        """Running totals may wrap; their differences are exact as long as the sums fit."""
        values, valid = to_numbers(array, "int64")
        counts = self._counts(valid)
        if self._may_wrap(values, counts):
            self._check(aggregate, values)
        totals = _totals(values)
        return from_numbers(totals[self._ends] - totals[self._starts], counts > 0, pa.int64())

    def _check(self, aggregate: Aggregate, values: Int64s) -> None:
        """TypeMismatchError if a sum does not fit."""
        if not all(-(2**63) <= total < 2**63 for total in self._python_sums(values)):
            raise overflow(aggregate)

    def _may_wrap(self, values: Int64s, counts: Int64s) -> bool:
        if not len(values) or not len(counts):
            return False
        greatest = max(abs(float(values.min())), abs(float(values.max())))
        return greatest * float(counts.max()) >= _LIMIT

    def _python_sums(self, values: npt.NDArray[Any]) -> list[int]:
        """With Python's integers, which never wrap."""
        totals = np.concatenate([[0], np.cumsum(values.astype(object))])
        sums: list[int] = (totals[self._ends] - totals[self._starts]).tolist()
        return sums

    def _whole_means(self, array: pa.Array) -> pa.Array:
        """Of integers: of sums without rounding, as `WholeMean`."""
        values, valid, unsigned = whole_numbers(array)
        counts = self._counts(valid)
        if self._may_wrap(values, counts) or (unsigned and bool((values < 0).any())):
            exact = self._python_sums(values.view(np.uint64) if unsigned else values)
            sums = np.array([float(total) for total in exact])
        else:
            totals = _totals(values)
            sums = (totals[self._ends] - totals[self._starts]).astype(np.float64)
        return from_numbers(sums / np.maximum(counts, 1), counts > 0, pa.float64())

    def _float_sums(self, array: pa.Array, mean: bool) -> pa.Array:
        from ..kernels.over import frame_sums

        values, valid = to_numbers(array, "float64")
        sums = np.empty(len(self._starts))
        frame_sums(values, valid, self._starts, self._ends, np.empty(len(values)), sums)
        counts = self._counts(valid)
        if mean:
            sums /= np.maximum(counts, 1)
        return from_numbers(sums, counts > 0, pa.float64())

    def _extremes(self, array: pa.Array, largest: bool) -> pa.Array:
        from ..kernels.over import frame_extremes

        rows = np.empty(len(self._starts), dtype=np.int64)
        words = np.ascontiguousarray(value_words(array))
        queue = np.empty(len(words), dtype=np.int64)
        frame_extremes(words, validity(array), self._starts, self._ends, largest, queue, rows)
        return _pick(array, rows)

    def _ends_of(self, array: pa.Array, last: bool) -> pa.Array:
        """The first or last value of each frame that is not null."""
        valid = validity(array)
        if not len(valid):
            return _pick(array, self._ends - 1 if last else self._starts)
        places = np.arange(self._rows)
        if last:
            before = np.maximum.accumulate(np.where(valid, places, -1))
            rows = before[self._ends - 1]
            return _pick(array, np.where(rows >= self._starts, rows, -1))
        behind = np.minimum.accumulate(np.where(valid, places, self._rows)[::-1])[::-1]
        rows = behind[self._starts]
        return _pick(array, np.where(rows < self._ends, rows, -1))


def _totals(values: Int64s) -> Int64s:
    totals = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=totals[1:])
    return totals


def _pick(array: pa.Array, rows: Int64s) -> pa.Array:
    missing = rows < 0
    return take_column(array, pa.array(rows, mask=missing) if missing.any() else pa.array(rows))
