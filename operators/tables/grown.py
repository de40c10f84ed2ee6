"""Small helpers of the table operators: growing arrays, ranges of runs, rows of any type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import ColumnBatch, take_column
from ...state.key_index import CompositeIndex


def fill_to(array: npt.NDArray[Any], size: int, value: Any) -> npt.NDArray[Any]:
    """The array, at least `size` long (doubling); what is new is `value`."""
    if size <= len(array):
        return array
    longer = np.empty(max(size, 2 * len(array), 64), dtype=array.dtype)
    longer[: len(array)] = array
    longer[len(array) :] = value
    return longer


def as_rows(array: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """A view of the array in rows of `width`, without what is left over at its end."""
    return array[: len(array) // width * width].reshape(-1, width)


def ranges(starts: Int64s, sizes: Int64s) -> Int64s:
    """starts[0], starts[0] + 1, ... (sizes[0] many), starts[1], ...: all ranges in a row."""
    ends = np.cumsum(sizes)
    total = int(ends[-1]) if len(ends) else 0
    out: Int64s = np.arange(total) + np.repeat(starts - (ends - sizes), sizes)
    return out


def bounds(sizes: Int64s) -> Int64s:
    """Where ranges of these sizes begin and the last one ends: len(sizes) + 1 entries."""
    out = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=out[1:])
    return out


def reindexed(index: CompositeIndex, keys: pa.Schema, slots: Int64s) -> CompositeIndex:
    """An index of the keys of these slots, ascending, which are numbered from 0."""
    again, at = CompositeIndex(keys), pa.array(slots)
    again.upsert([take_column(column, at) for column in index.freeze()()])
    return again


def take_rows(data: pa.RecordBatch, rows: Int64s) -> pa.RecordBatch:
    """These rows, in this order; for columns of every type."""
    return ColumnBatch(data).take(np.ascontiguousarray(rows)).data
