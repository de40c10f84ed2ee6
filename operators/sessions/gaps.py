"""The gap after each record of a batch, in ms: fixed, a column or expression, or a user's function.

A function is called record by record; everything behind it is columns all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...api.functions.validation import is_expression
from ...api.windows.session_windows import (
    DYNAMIC,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
)
from ...core.arrays import Int64s, numpy_of
from ...core.batch import Batch, ColumnBatch
from ...core.errors import TypeMismatchError
from ..columns import evaluate

SessionAssigner = (
    EventTimeSessionWindows
    | ProcessingTimeSessionWindows
    | DynamicEventTimeSessionWindows
    | DynamicProcessingTimeSessionWindows
)


def gaps_of(assigner: SessionAssigner, batch: Batch, columns: ColumnBatch) -> Int64s:
    """One gap for all records, or one for each. `columns`: the batch as columns.

    TypeMismatchError unless all are greater than 0."""
    if not isinstance(assigner, DYNAMIC):
        return np.array([assigner.session_gap], dtype=np.int64)
    extractor = assigner.extractor
    if not (isinstance(extractor, str) or is_expression(extractor)):
        gaps = [assigner.gap_of(record) for record in batch.rows()]
        return np.array(gaps, dtype=np.int64)
    (column,) = evaluate(columns, [extractor])
    millis = _millis(column, extractor)
    if len(millis) and millis.min() <= 0:
        raise TypeMismatchError(
            f"the session gap of a record must be > 0 ms, is {millis.min()} ms by {extractor}"
        )
    return millis


def _millis(column: pa.Array, extractor: Any) -> Int64s:
    """Whole milliseconds, rounded down, of numbers of milliseconds or durations."""
    kind = column.type
    if column.null_count:
        raise TypeMismatchError(
            f"the session gap of a record must be > 0 ms, is null by {extractor}: fill nulls"
        )
    millis: Int64s | None = None
    if pa.types.is_integer(kind):
        millis = numpy_of(column.cast(pa.int64()))
    elif pa.types.is_duration(kind):
        micros = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
        millis = numpy_of(micros) // 1000
    elif pa.types.is_floating(kind):
        values = numpy_of(column.cast(pa.float64()))
        if np.isfinite(values).all():
            millis = np.rint(values * 1000).astype(np.int64) // 1000
    if millis is not None:
        return np.ascontiguousarray(millis)
    raise TypeMismatchError(
        f"session gaps must be milliseconds or durations, {extractor} gives values of type {kind}"
        + (" that are not finite" if pa.types.is_floating(kind) else "")
    )
