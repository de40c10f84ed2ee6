"""Event time of one stream of records: timestamps out of records, watermarks out of timestamps.

Columns are converted as arrays; only Python assigners and custom generators run per record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...api.watermarks import TimestampAssigner, WatermarkStrategy
from ...core.arrays import holds_event_times, numpy_of
from ...core.batch import Batch, ColumnBatch, Timestamps, to_columns
from ...core.elements import GREATEST_EVENT_TIME, LEAST_EVENT_TIME, MIN_TIMESTAMP
from ...core.errors import ConfigurationError, TypeMismatchError
from ...core.frames import frame_of
from .watermark_generators import make_generator

_PER_MILLI = {"us": 1_000, "ns": 1_000_000}
_DAY_MS = 86_400_000


class WatermarkTracker:
    """Timestamps and watermarks of one stream (a subtask's input, or one source split).

    `watermark` is the greatest watermark so far and never decreases; it is not checkpointed.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._assigner = strategy.timestamp_assigner
        self._generator = make_generator(strategy.generator)
        self.watermark: int = MIN_TIMESTAMP

    def stamp(self, batch: Batch) -> Batch:
        """The batch with its event times; unchanged when the strategy has no assigner."""
        if self._assigner is None:
            return batch
        return batch.with_timestamps(extract_timestamps(batch, self._assigner))

    def on_batch(self, batch: Batch) -> int | None:
        """See a stamped batch, not empty. A punctuated watermark to send behind it, if one of its
        records advanced the watermark."""
        punctuated = self._generator.on_batch(batch)
        if punctuated is None or punctuated <= self.watermark:
            return None
        self.watermark = punctuated
        return punctuated

    def periodic(self) -> int:
        """The watermark now, MIN_TIMESTAMP if there is none yet."""
        self.watermark = max(self.watermark, self._generator.periodic())
        return self.watermark


def make_tracker(strategy: WatermarkStrategy) -> WatermarkTracker:
    """A new tracker; sources make one per split."""
    return WatermarkTracker(strategy)


def extract_timestamps(batch: Batch, assigner: Any) -> Timestamps:
    """The event time of each record: int64[n], ms since the epoch.

    assigner: see WatermarkStrategy. Raises TypeMismatchError naming the column or function and the
    first record that has no timestamp (null), one of another type, or one that is out of range.
    """
    if isinstance(assigner, str):
        return _to_times(_column(batch, assigner), f"timestamp column '{assigner}'")
    if isinstance(assigner, TimestampAssigner) or hasattr(assigner, "extract_timestamp"):
        name = f"timestamp assigner {type(assigner).__name__}"
        return _by_record(batch, assigner.extract_timestamp, name)
    if _is_expression(assigner):
        series = frame_of(to_columns(batch).data).select(assigner).to_series()
        if len(series) != len(batch):
            raise TypeMismatchError(
                f"timestamp expression {assigner} gave {len(series)} values for {len(batch)} "
                "records"
            )
        return _to_times(series.to_arrow(), f"timestamp expression {assigner}")
    if callable(assigner):
        name = getattr(assigner, "__name__", type(assigner).__name__)
        return _by_record(batch, assigner, f"timestamp assigner {name}")
    raise ConfigurationError(
        "a timestamp assigner is a column name, a polars expression, a TimestampAssigner or a "
        f"function (value, record_timestamp) -> ms, not {assigner!r}"
    )


def check_range(stamps: Timestamps, what: str) -> None:
    """TypeMismatchError naming `what` and the first record whose event time is out of range: it is
    told at once, and not by the window that it leaves int64 with."""
    if not len(stamps):
        return
    if stamps.min() >= LEAST_EVENT_TIME and stamps.max() <= GREATEST_EVENT_TIME:
        return
    out = (stamps < LEAST_EVENT_TIME) | (stamps > GREATEST_EVENT_TIME)
    record = int(np.flatnonzero(out)[0])
    raise TypeMismatchError(
        f"{what}: record {record} of the batch has the timestamp {stamps[record]}, which is no "
        f"event time: these are ms since the epoch, from {LEAST_EVENT_TIME} to "
        f"{GREATEST_EVENT_TIME} (-2^62 to 2^62; -2^63 stands for none); filter such records "
        "out, or give them a time, before timestamps are assigned"
    )


def _is_expression(assigner: Any) -> bool:
    """Whether it is a polars expression; says so without importing polars."""
    return type(assigner).__name__ == "Expr" and hasattr(assigner, "meta")


def _column(batch: Batch, name: str) -> pa.Array:
    if isinstance(batch, ColumnBatch):
        index = batch.data.schema.get_field_index(name)
        if index < 0:
            raise TypeMismatchError(
                f"no timestamp column '{name}'; there are {batch.data.schema.names}"
            )
        return batch.data.column(index)
    try:
        values = [_field(value, name) for value in batch.values]
    except (KeyError, AttributeError, TypeError) as error:
        raise TypeMismatchError(f"a record has no timestamp field '{name}': {error}") from error
    return _array(values, f"timestamp column '{name}'")


def _field(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value[name]
    fields = getattr(value, "_fields", None)
    if isinstance(value, tuple) and fields and name in fields:
        return value[fields.index(name)]
    return getattr(value, name)


def _by_record(batch: Batch, assign: Any, what: str) -> Timestamps:
    rows = batch.rows()
    if batch.timestamps is None:
        results = [assign(row, MIN_TIMESTAMP) for row in rows]
    else:
        stamps = batch.timestamps.tolist()
        results = [assign(row, stamp) for row, stamp in zip(rows, stamps, strict=True)]
    return _to_times(_array(results, what), what)


def _array(values: list[Any], what: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TypeMismatchError(f"{what}: values are not timestamps: {error}") from error


def _to_times(array: pa.Array, what: str) -> Timestamps:
    stamps = _to_millis(array, what)
    check_range(stamps, what)
    return stamps


def _to_millis(array: pa.Array, what: str) -> Timestamps:
    """int64 ms of an integer, timestamp or date array; rounds down, never wraps."""
    if array.null_count and (pa.types.is_null(array.type) or holds_event_times(array.type)):
        missing = pc.index(pc.is_null(array), True).as_py()
        raise TypeMismatchError(
            f"{what}: record {missing} of the batch has no timestamp (null): fill it in or filter "
            "such records out before timestamps are assigned"
        )
    kind = array.type
    if not len(array):
        return np.empty(0, dtype=np.int64)
    try:
        if pa.types.is_integer(kind):
            return _numpy(array.cast(pa.int64()))
        if pa.types.is_timestamp(kind):
            return _timestamps_to_millis(array, kind.unit)
        if pa.types.is_date32(kind):
            return _numpy(array.cast(pa.int32()).cast(pa.int64())) * _DAY_MS
        if pa.types.is_date64(kind):
            return _numpy(array.cast(pa.int64()))
    except pa.ArrowInvalid as error:
        raise TypeMismatchError(
            f"{what}: a timestamp exceeds int64 milliseconds: {error}"
        ) from error
    raise TypeMismatchError(
        f"{what} has type {kind}; timestamps are integers (ms since the epoch), timestamps or dates"
    )


def _timestamps_to_millis(array: pa.Array, unit: str) -> Timestamps:
    ticks = array.cast(pa.int64())
    if unit == "s":
        return _numpy(pc.multiply_checked(ticks, 1_000))
    millis = _numpy(ticks)
    return millis if unit == "ms" else millis // _PER_MILLI[unit]


def _numpy(array: pa.Array) -> npt.NDArray[np.int64]:
    result: npt.NDArray[np.int64] = numpy_of(array)
    return result
