"""Tumbling, sliding and cumulating windows on kernels: built-in aggregates, extremes, top-n.

Each record is folded once, into the slice of time that holds it; a window's result is merged from
its slices when the watermark passes its end. No per-record Python, no timers: which windows are due
follows from the slices and the watermark.

Lateness is the row path's: a record is late for a window when window end - 1 + allowed lateness <=
watermark, and goes to the late side output (or is dropped and counted) when it is late for all its
windows. One difference: a late but allowed record makes its already fired windows fire again once
per batch and key, at the batch's end, not once per record. The last result of each (key, window) is
the same.

Processing-time windows are the same operator with the clock for event time: all records of a batch
have the time at which it came, none is late, and windows fire when the clock has passed their end.
If the clock goes back, records go to the earliest window that has not fired. Windows still open
when a bounded input ends fire then. `ticking_windows` adds windows that fire before their end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...api.windows.time_windows import no_timestamp_error
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, take_column, take_rows, to_columns
from ...core.constants import LATE_DROPPED
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import TypeMismatchError
from ...core.partials import (
    check_layout,
    key_part,
    layout_of,
    make_layout,
    records_in,
    split_layout,
)
from ...core.preload import preload
from ...plan.slicing import Slicing
from ...state.backend import COLUMN_STATE
from ...state.window_progress import WindowProgress
from ..base import Operator, Steps, Work, one_by_one, then
from ..columns import fit_keys
from .firing_progress import FiringProgress
from .slices import runs_by_slice, slice_ends
from .window_output import Fired, WindowOutput

if TYPE_CHECKING:
    from .window_aggregates import PartialContents


class Arguments(Protocol):
    """The columns that a window's function folds."""

    def inputs(self, batch: ColumnBatch) -> list[pa.Array]:
        """Before binding in their own types."""
        ...

    def layout(self, inputs: list[pa.Array]) -> list[pa.Field]:
        """Fields describing them, which survive a restore."""
        ...


@dataclass(frozen=True)
class Arrivals:
    """Records that were folded, by slice and, within a slice, in order of arrival."""

    keys: pa.RecordBatch
    times: Int64s
    numbers: Int64s
    """Sequence numbers."""
    pieces: dict[int, list[tuple[int, int]]]
    """Window end -> ranges of rows, one per slice."""

    def keys_of(self, window: int) -> pa.RecordBatch:
        """The keys of the records in a window, with repetitions."""
        return pa.concat_batches([self.keys.slice(a, b - a) for a, b in self.pieces[window]])


class ColumnarWindowOperator(Operator):
    """See the module. State is created when the first record, or a snapshot, tells the types."""

    def __init__(self, spec: WindowSpec, slicing: Slicing) -> None:
        self._spec = spec
        self._slicing = slicing
        self._event_time = spec.assigner.is_event_time()
        self._lateness = spec.allowed_lateness_ms if self._event_time else 0
        self._keys: pa.Schema | None = None
        """Types of the key columns; None until bound."""
        self._due: int | None = None
        """The least watermark at which a slice has to fire a window or be dropped."""
        self._alarm = MAX_TIMESTAMP
        """What the task was asked to call for, in processing time; later wishes may be unknown."""
        self._partials = False
        """Whether the batch being handled is of partial aggregates, not of records."""

    def open(self) -> None:
        preload(*COLUMN_STATE)
        self._arguments = self._make()
        self._progress = WindowProgress(self.ctx.keyed_state)
        self._firing = FiringProgress(self.ctx.keyed_state, self._progress)
        layout = self._progress.layout
        if layout is not None:
            self._bind(*split_layout(layout))
            self._resume()
            self._ask_to_be_woken()

    def _make(self) -> Arguments:
        """What takes the columns to be folded out of batches; makes all that is not state."""
        from .window_functions import make_contents

        self._contents = make_contents(self._spec.function)
        self._output = WindowOutput(self._spec, self._slicing, self.ctx, self.out)
        return self._contents

    def _resume(self) -> None:
        """State was restored."""
        for end in self._contents.slices():
            self._note_due(end, self._progress.watermark)

    def process(self, batch: Batch, port: int = 0) -> Work:
        return self._after_firing(lambda: self._process(batch))

    def _process(self, batch: Batch) -> Work:
        columns = to_columns(batch)
        times = self._times(columns)
        layout = layout_of(columns.data.schema)
        self._partials = layout is not None
        if layout is not None:
            keys = key_part(columns.data, layout)
            inputs = list(columns.data.columns[len(keys.schema) :])
        else:
            keys = self._spec.key.key_columns(columns)
            inputs = self._arguments.inputs(columns)
        if self._keys is None:
            layout = layout or make_layout(keys.schema, self._arguments.layout(inputs))
            self._progress.layout = layout
            self._bind(*split_layout(layout))
        elif layout is not None and self._progress.layout is not None:
            check_layout(layout, self._progress.layout)
        keys = fit_keys(keys, self._keys)
        fired = []
        for watermark, rows in self._progress.split(keys):
            if rows is None:
                fired.append(self._add(batch, times, keys, inputs, watermark))
            else:
                at = pa.array(rows)
                some = [take_column(array, at) for array in inputs]
                taken, mine = batch.take(rows), take_rows(keys, at)
                fired.append(self._add(taken, times[rows], mine, some, watermark))
        self._ask_to_be_woken()
        return one_by_one(fired)

    def process_watermark(self, timestamp: int) -> Work:
        fired = self._after_firing(lambda: self._advance(timestamp) if self._event_time else None)
        return then(fired, lambda: self.out.emit_watermark(timestamp))

    def on_processing_time(self, now_ms: int) -> Work:
        if self._alarm < now_ms:
            self._alarm = MAX_TIMESTAMP
        by_clock = not self._event_time
        fired = self._after_firing(lambda: self._advance(now_ms - 1) if by_clock else None)
        return then(fired, self._ask_to_be_woken)

    def finish(self) -> Work:
        if self._event_time or self._keys is None:
            return None
        return self._after_firing(lambda: self._fire_until(MAX_TIMESTAMP))

    def _after_firing(self, call: Callable[[], Work]) -> Work:
        """`call`, behind what an operator restored in the middle of a firing has still to fire."""
        return self._resumed(call) if self._firing.unfinished else call()

    def _resumed(self, call: Callable[[], Work]) -> Steps:
        yield from self._fire_until(self._progress.watermark)
        yield from call() or ()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()
        self._firing.save()

    def _bind(self, keys: pa.Schema, fields: Sequence[pa.Field]) -> None:
        self._output.check(keys, fields)
        self._contents.bind(self.ctx.keyed_state, pa.schema(list(keys)), fields)
        self._keys = pa.schema(list(keys))

    def _times(self, columns: ColumnBatch) -> Int64s:
        """Where in time the records are."""
        if not self._event_time:
            return np.full(len(columns), self.ctx.clock.now_ms(), dtype=np.int64)
        if columns.timestamps is None or columns.timestamps.min() == MIN_TIMESTAMP:
            raise no_timestamp_error()
        for extreme in (columns.timestamps.min(), columns.timestamps.max()):
            self._check_time(int(extreme))
        return columns.timestamps

    def _check_time(self, timestamp: int) -> None:
        """TypeMismatchError for a time whose windows begin or end beyond all timestamps."""
        windows = self._slicing.window_ends(self._slicing.slice_end(timestamp))
        if not windows:
            return
        first = self._slicing.window_start(windows[0])
        if first < MIN_TIMESTAMP or windows[-1] > MAX_TIMESTAMP:
            raise TypeMismatchError(
                f"window operator '{self.ctx.name}': the windows of a record at {timestamp} ms are "
                f"from {first} to {windows[-1]}, beyond {MIN_TIMESTAMP} or {MAX_TIMESTAMP}"
            )

    def _advance(self, watermark: int) -> Work:
        """The windows' time, by watermarks or the clock, has passed `watermark`."""
        if watermark <= self._progress.watermark:
            return None
        due = self._next_due()
        fires = due is not None and due <= watermark
        work = self._fire_until(watermark) if fires else None
        return then(work, lambda: self._progress.advance(watermark))

    def _next_due(self) -> int | None:
        """When something is to be done next, in the windows' time; None if nothing is held."""
        return self._due

    def _next_alarm(self) -> int | None:
        """When something is to be done next by the clock."""
        return None if self._event_time else self._next_due()

    def _ask_to_be_woken(self) -> None:
        """Have the task call once the clock has passed what is due next by it."""
        due = self._next_alarm()
        if due is not None and due < self._alarm:
            self._alarm = due
            self.ctx.wake_at(due + 1)

    def _add(
        self,
        batch: Batch,
        timestamps: Int64s,
        keys: pa.RecordBatch,
        inputs: list[pa.Array],
        watermark: int,
    ) -> Work:
        """Fold records whose key groups have fired up to `watermark`."""
        if not self._event_time:
            timestamps = np.maximum(timestamps, watermark + 1)
        order, runs = runs_by_slice(slice_ends(self._slicing, timestamps))
        if order is not None:
            at = pa.array(order)
            keys, inputs = take_rows(keys, at), [take_column(array, at) for array in inputs]
        numbers = np.arange(len(timestamps)) if order is None else order
        numbers = numbers + self._progress.number
        self._progress.number += len(timestamps)
        late: list[npt.NDArray[np.int64]] = []
        pieces: dict[int, list[tuple[int, int]]] = {}
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
            if self._partials:
                cast("PartialContents", self._contents).merge(end, run, arrays)
            else:
                self._contents.fold(end, run, arrays, numbers[start:stop])
            self._note_due(end, watermark)
            for window in windows:
                if watermark < window - 1 + self._lateness:
                    pieces.setdefault(window, []).append((start, stop))
        self._emit_late(batch, late)
        times = timestamps if order is None else timestamps[order]
        return self._added(Arrivals(keys, times, numbers, pieces), watermark)

    def _added(self, arrivals: Arrivals, watermark: int) -> Work:
        """Records are folded: fire windows again that have fired."""
        again = sorted(window for window in arrivals.pieces if window - 1 <= watermark)
        if not again:
            return None
        slices = self._contents.slices()
        return self._output.emit(self._fire(w, slices, arrivals.keys_of(w)) for w in again)

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
            count = records_in(batch, rows) if self._partials else len(rows)
            self.ctx.metrics.count(LATE_DROPPED, count)
        else:
            self.out.emit_side(self._spec.late_tag.tag_id, batch.take(rows))

    def _fire_until(self, watermark: int) -> Steps:
        """Fire what `watermark` passes, in order of time, and drop finished slices."""
        slices = self._contents.slices()
        yield from self._fire_due(watermark, slices)
        self._due = None
        for end in slices:
            if self._slicing.window_ends(end)[-1] - 1 + self._lateness <= watermark:
                self._contents.drop(end)
            else:
                self._note_due(end, watermark)

    def _fire_due(self, watermark: int, slices: list[int]) -> Steps:
        """Fire the windows over `slices` that `watermark` passes."""
        self._firing.begin()
        self._progress.advance(watermark)
        fired, until = self._firing.least, self._progress.furthest
        due = {
            window
            for end in slices
            for window in self._slicing.window_ends(end)
            if fired < window - 1 <= until
        }
        results = (self._fire(window, slices, None) for window in sorted(due))
        yield from self._output.emit(results, self._firing.emitted)
        self._firing.end()

    def _fire(self, window: int, slices: list[int], only: pa.RecordBatch | None) -> Fired:
        """One window's results, for all keys that have not had it or `only` those given.

        `slices`: all there are, ascending."""
        held = self._held(window, slices)
        keys, results = self._contents.fire(held, only)
        unfired = None if only is not None else self._firing.unfired(keys, window)
        fired = Fired(window, keys, results)
        return fired if unfired is None else fired.filter(unfired)

    def _held(self, window: int, slices: list[int]) -> list[int]:
        """The slices that lie in the window."""
        first = bisect_right(slices, self._slicing.window_start(window))
        return slices[first : bisect_right(slices, window)]
