"""Tumbling and sliding event-time windows on kernels: built-in aggregates and extremes.

Each record is folded once, into the slice of time that holds it; a window's result is merged from
its slices when the watermark passes its end. No per-record Python, no timers: which windows are due
follows from the slices and the watermark.

Lateness is the row path's: a record is late for a window when window end - 1 + allowed lateness <=
watermark, and goes to the late side output (or is dropped and counted) when it is late for all its
windows. One difference: a late but allowed record makes its already fired windows fire again once
per batch and key, at the batch's end, not once per record. The last result of each (key, window) is
the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..api.specs import BuiltinWindow, ExtremeWindow, WindowSpec
from ..api.triggers import EventTimeTrigger
from ..api.windows import (
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    no_timestamp_error,
)
from ..core.batch import Batch, ColumnBatch, compatible, concat, to_columns
from ..core.elements import MIN_TIMESTAMP
from ..core.errors import GraphError
from ..core.keys import ConstantKey, FunctionKey
from ..core.preload import COLUMN_STATE, preload
from .base import Operator
from .columns import fit_columns
from .slices import Int64s, Slicing, runs_by_slice
from .window_progress import WindowProgress

START, END = "window_start", "window_end"
LATE_DROPPED = "numLateRecordsDropped"
CHUNK_BATCHES = 4
"""A firing is emitted in batches of at most this many times the job's batch size."""


def make_columnar_window(spec: WindowSpec) -> Operator | None:
    """The columnar operator for this spec; None when it needs the row path (other windows, triggers
    or functions, keys that are Python functions)."""
    if not isinstance(spec.function, (BuiltinWindow, ExtremeWindow)):
        return None
    if isinstance(spec.key, FunctionKey):
        return None
    if spec.trigger is not None and not isinstance(spec.trigger, EventTimeTrigger):
        return None
    assigner = spec.assigner
    if isinstance(assigner, TumblingEventTimeWindows):
        return ColumnarWindowOperator(spec, Slicing(assigner.size, assigner.size, assigner.offset))
    if isinstance(assigner, SlidingEventTimeWindows):
        return ColumnarWindowOperator(spec, Slicing(assigner.size, assigner.slide, assigner.offset))
    return None


class ColumnarWindowOperator(Operator):
    """See the module. State is created when the first record, or a snapshot, tells the types."""

    def __init__(self, spec: WindowSpec, slicing: Slicing) -> None:
        self._spec = spec
        self._slicing = slicing
        self._lateness = spec.allowed_lateness_ms
        self._keys: pa.Schema | None = None
        """Types of the key columns; None until bound."""
        self._due: int | None = None
        """The least watermark at which a slice has to fire a window or be dropped."""

    def open(self) -> None:
        from .window_aggregates import WindowAggregates, WindowContents
        from .window_extremes import WindowExtremes

        preload(*COLUMN_STATE)
        function = self._spec.function
        self._contents: WindowContents
        if isinstance(function, BuiltinWindow):
            self._contents = WindowAggregates(function)
        else:
            assert isinstance(function, ExtremeWindow)
            self._contents = WindowExtremes(function)
        self._progress = WindowProgress(self.ctx.keyed_state)
        layout = self._progress.layout
        if layout is not None:
            count = int(layout.metadata[b"keys"])
            self._bind(pa.schema(list(layout)[:count]), list(layout)[count:])
            for end in self._contents.slices():
                self._note_due(end, self._progress.watermark)

    def process(self, batch: Batch, port: int = 0) -> None:
        columns = to_columns(batch)
        if columns.timestamps is None or columns.timestamps.min() == MIN_TIMESTAMP:
            raise no_timestamp_error()
        keys = self._spec.key.key_columns(columns)
        assert keys is not None
        inputs = self._contents.inputs(columns)
        if self._keys is None:
            fields = self._contents.layout(inputs)
            layout = pa.schema([*keys.schema, *fields], metadata={"keys": str(len(keys.schema))})
            self._progress.layout = layout
            self._bind(keys.schema, fields)
        keys = fit_columns(keys, self._keys)
        for watermark, rows in self._progress.split(keys):
            if rows is None:
                self._add(batch, columns.timestamps, keys, inputs, watermark)
            else:
                at = pa.array(rows)
                some = [array.take(at) for array in inputs]
                stamps = columns.timestamps[rows]
                self._add(batch.take(rows), stamps, keys.take(at), some, watermark)

    def process_watermark(self, timestamp: int) -> None:
        if self._due is not None and self._due <= timestamp:
            self._fire_until(timestamp)
        self._progress.advance(timestamp)
        self.out.emit_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()

    def _bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        names = [] if isinstance(self._spec.key, ConstantKey) else list(keys.names)
        if isinstance(self._spec.function, BuiltinWindow):
            names += [START, END, *(name for name, _ in self._spec.function.aggregates)]
        else:
            names = [*(field.name for field in fields), START, END]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise GraphError(
                f"window operator '{self.ctx.name}' would emit several columns named {twice}: "
                "rename them upstream, or the aggregates"
            )
        self._contents.bind(self.ctx.keyed_state, pa.schema(list(keys)), fields)
        self._keys = pa.schema(list(keys))

    def _add(
        self,
        batch: Batch,
        timestamps: Int64s,
        keys: pa.RecordBatch,
        inputs: list[pa.Array],
        watermark: int,
    ) -> None:
        """Fold records whose key groups have fired up to `watermark`."""
        order, runs = runs_by_slice(self._slicing.slice_ends(timestamps))
        if order is not None:
            at = pa.array(order)
            keys, inputs = keys.take(at), [array.take(at) for array in inputs]
        numbers = np.arange(len(timestamps)) if order is None else order
        numbers = numbers + self._progress.number
        self._progress.number += len(timestamps)
        late: list[npt.NDArray[np.int64]] = []
        touched: dict[int, list[pa.RecordBatch]] = {}
        for end, start, stop in runs:
            windows = self._slicing.window_ends(end)
            if not windows or windows[-1] - 1 + self._lateness <= watermark:
                rows = np.arange(start, stop) if order is None else order[start:stop]
                if not windows:
                    rows = rows[timestamps[rows] + self._lateness <= watermark]
                late.append(rows)
                continue
            run = keys.slice(start, stop - start)
            arrays = [array.slice(start, stop - start) for array in inputs]
            self._contents.fold(end, run, arrays, numbers[start:stop])
            self._note_due(end, watermark)
            for window in windows:
                if window - 1 <= watermark < window - 1 + self._lateness:
                    touched.setdefault(window, []).append(run)
        self._emit_late(batch, late)
        self._emit(
            self._fire(window, pa.concat_batches(touched[window])) for window in sorted(touched)
        )

    def _note_due(self, slice_end: int, watermark: int) -> None:
        """Remember when a slice is next due, its windows having fired up to `watermark`."""
        windows = self._slicing.window_ends(slice_end)
        unfired = (window - 1 for window in windows if window - 1 > watermark)
        due = next(unfired, windows[-1] - 1 + self._lateness)
        self._due = due if self._due is None else min(self._due, due)

    def _emit_late(self, batch: Batch, late: list[npt.NDArray[np.int64]]) -> None:
        rows = np.sort(np.concatenate(late)) if late else np.empty(0, dtype=np.int64)
        if not len(rows):
            return
        if self._spec.late_tag is None:
            self.ctx.metrics.count(LATE_DROPPED, len(rows))
        else:
            self.out.emit_side(self._spec.late_tag.tag_id, batch.take(rows))

    def _fire_until(self, watermark: int) -> None:
        """Fire the windows that `watermark` passes, in order of time, and drop finished slices."""
        fired = self._progress.watermark
        slices = self._contents.slices()
        due = {
            window
            for end in slices
            for window in self._slicing.window_ends(end)
            if fired < window - 1 <= watermark
        }
        self._emit(self._fire(window, None) for window in sorted(due))
        self._due = None
        for end in slices:
            if self._slicing.window_ends(end)[-1] - 1 + self._lateness <= watermark:
                self._contents.drop(end)
            else:
                self._note_due(end, watermark)

    def _fire(self, window: int, only: pa.RecordBatch | None) -> ColumnBatch:
        """One window's results, for all keys that have not had it or `only` those given."""
        held = [end for end in self._contents.slices() if self._slicing.holds(window, end)]
        keys, results = self._contents.fire(held, only)
        unfired = None if only is not None else self._progress.unfired(keys, window)
        if unfired is not None:
            mask = pa.array(unfired)
            keys, results = keys.filter(mask), results.filter(mask)
        return self._output(window, keys, results)

    def _emit(self, fired: Iterable[ColumnBatch]) -> None:
        """In batches of a good size: windows may be many and small, or one and large."""
        size = self.ctx.config.batch_size * CHUNK_BATCHES
        waiting: list[Batch] = []
        for output in fired:
            if sum(map(len, waiting)) + len(output) > size or not all(
                compatible(output, other) for other in waiting[:1]
            ):
                self._emit_one(waiting, size)
                waiting = []
            waiting.append(output)
        self._emit_one(waiting, size)

    def _emit_one(self, waiting: list[Batch], size: int) -> None:
        if not waiting:
            return
        output = concat(waiting)
        for start in range(0, len(output), size):
            self.out.emit(output.slice(start, min(size, len(output) - start)))

    def _output(self, window: int, keys: pa.RecordBatch, results: pa.RecordBatch) -> ColumnBatch:
        count = keys.num_rows
        bounds = [
            pa.array(np.full(count, at, dtype=np.int64))
            for at in (window - self._slicing.size, window)
        ]
        names, arrays = list(results.schema.names), list(results.columns)
        if isinstance(self._spec.function, ExtremeWindow):
            names, arrays = [*names, START, END], [*arrays, *bounds]
        else:
            hidden = isinstance(self._spec.key, ConstantKey)
            shown = [] if hidden else list(zip(keys.schema.names, keys.columns, strict=True))
            names = [*(name for name, _ in shown), START, END, *names]
            arrays = [*(array for _, array in shown), *bounds, *arrays]
        data = pa.RecordBatch.from_arrays(arrays, names=names)
        return ColumnBatch(data, np.full(count, window - 1, dtype=np.int64))
