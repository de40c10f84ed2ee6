"""Session windows on kernels: built-in aggregates, over event time or the clock, with a gap for all
records or one for each.

A record extends its key's session, joins several of them, or opens one, in a few array accesses;
sessions fire from a wheel of due times. No per-record Python (but for gaps that a user's function
gives), no timers.

What is late, what fires and what comes out is as on the row path, with one difference: where
lateness is allowed, a late record makes its already fired session fire again once per batch, at the
batch's end and with the bounds it has then, not once per record. Bounds that a session had only in
the middle of a batch are never seen. With batches of one record there is no difference.

By the clock, all records of a batch have the time at which it came and none is late; if the clock
goes back, records come at the earliest time that has not fired. Sessions still open when a bounded
input ends fire then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...api.windows.session_windows import SESSIONS
from ...api.windows.time_windows import no_timestamp_error
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, take_column, to_columns
from ...core.constants import LATE_DROPPED
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import TypeMismatchError
from ...core.preload import preload
from ...state.backend import COLUMN_STATE
from ...state.window_progress import WindowProgress
from ..base import Operator, Work, one_by_one, then
from ..columns import fit_keys
from ..slots.slot_kinds import runs_on_slots
from ..windows.bounded_output import BoundedOutput
from .gaps import SessionAssigner, gaps_of

if TYPE_CHECKING:
    from .store import Fired, SessionStore


class ColumnarSessionOperator(Operator):
    """See the module. State is created when the first record, or a snapshot, tells the types."""

    def __init__(self, spec: WindowSpec) -> None:
        assert isinstance(spec.assigner, SESSIONS)
        assert runs_on_slots(spec.function)
        self._spec = spec
        self._function = spec.function
        self._assigner: SessionAssigner = spec.assigner
        self._event_time = spec.assigner.is_event_time()
        lateness = spec.allowed_lateness_ms if self._event_time else 0
        self._lateness = min(lateness, MAX_TIMESTAMP)
        self._alarm = MAX_TIMESTAMP
        """What the task was asked to call for, by the clock; later wishes may be unknown."""

    def open(self) -> None:
        from ..slots.slot_aggregates import make_slots

        preload(*COLUMN_STATE)
        self._aggregates = make_slots(self._function)
        self._output = BoundedOutput(self._spec, self.ctx, self.out)
        self._progress = WindowProgress(self.ctx.keyed_state)
        self._store: SessionStore | None = None
        layout = self._progress.layout
        if layout is not None:
            self._store = self._bind(layout, 1)
            if not self._event_time:
                self._wake_at(self.ctx.clock.now_ms() - 1)

    def process(self, batch: Batch, port: int = 0) -> Work:
        columns = to_columns(batch)
        gaps = gaps_of(self._assigner, batch, columns)
        times = self._times(columns, int(gaps.max()))
        keys = self._spec.key.key_columns(columns)
        assert keys is not None
        inputs = self._aggregates.inputs(columns)
        if self._store is None:
            fields = [*keys.schema, *self._aggregates.layout(inputs)]
            layout = pa.schema(fields, metadata={"keys": str(len(keys.schema))})
            self._progress.layout = layout
            self._store = self._bind(layout, int(gaps.max()))
        keys = fit_keys(keys, self._keys)
        fired = []
        for watermark, rows in self._progress.split(keys):
            if rows is None:
                fired.append(self._add(batch, times, gaps, keys, inputs, watermark))
            else:
                at = pa.array(rows)
                some = [take_column(array, at) for array in inputs]
                chosen = [take_column(column, at) for column in keys.columns]
                part = pa.RecordBatch.from_arrays(chosen, schema=keys.schema)
                own = gaps[rows] if len(gaps) > 1 else gaps
                taken = batch.take(rows)
                fired.append(self._add(taken, times[rows], own, part, some, watermark))
        return one_by_one(fired)

    def process_watermark(self, timestamp: int) -> Work:
        fired = self._advance(timestamp) if self._event_time else None
        return then(fired, lambda: self.out.emit_watermark(timestamp))

    def on_processing_time(self, now_ms: int) -> Work:
        if self._event_time:
            return None
        if self._alarm < now_ms:
            self._alarm = MAX_TIMESTAMP
        fired = self._advance(now_ms - 1)
        if self._store is not None:
            self._wake_at(self._store.next_end(self._progress.watermark))
        return fired

    def finish(self) -> Work:
        if self._event_time or self._store is None:
            return None
        return self._emit(self._store.fire(MAX_TIMESTAMP))

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        if self._store is not None:
            self._store.validate()

    def _bind(self, layout: pa.Schema, gap: int) -> SessionStore:
        """`gap`: the greatest of the first batch; after a restore, not known."""
        from .store import SessionStore

        count = int(layout.metadata[b"keys"])
        self._keys = pa.schema(list(layout)[:count])
        self._aggregates.bind(list(layout)[count:])
        self._output.bind(self._keys, self._aggregates.names)
        state = self.ctx.keyed_state
        return SessionStore(gap, self._lateness, state, self._keys, self._aggregates)

    def _times(self, columns: ColumnBatch, gap: int) -> Int64s:
        """Where in time the records are; `gap`: the greatest."""
        if not self._event_time:
            return np.full(len(columns), self.ctx.clock.now_ms(), dtype=np.int64)
        timestamps = columns.timestamps
        if timestamps is None or timestamps.min() == MIN_TIMESTAMP:
            raise no_timestamp_error()
        if timestamps.max() > MAX_TIMESTAMP - gap:
            raise TypeMismatchError(
                f"window operator '{self.ctx.name}': a session that starts at "
                f"{timestamps.max()} ms would end after the last timestamp, {MAX_TIMESTAMP}"
            )
        return np.ascontiguousarray(timestamps, dtype=np.int64)

    def _advance(self, watermark: int) -> Work:
        """The sessions' time, by watermarks or the clock, has passed `watermark`."""
        fired: Work = None
        if self._store is not None and watermark > self._progress.watermark:
            fired = self._emit(self._store.fire(watermark))
        self._progress.advance(watermark)
        return fired

    def _wake_at(self, due: int) -> None:
        """Have the task call once the clock has passed `due`."""
        if due < self._alarm:
            self._alarm = due
            self.ctx.wake_at(due + 1)

    def _add(
        self,
        batch: Batch,
        times: Int64s,
        gaps: Int64s,
        keys: pa.RecordBatch,
        inputs: list[pa.Array],
        watermark: int,
    ) -> Work:
        """Fold records whose key groups have fired up to `watermark`."""
        assert self._store is not None
        if not self._event_time:
            times = np.maximum(times, watermark + 1)
            self._wake_at(int(times[0] + gaps.min()) - 1)
        number = self._progress.number
        self._progress.number += len(times)
        late, fired = self._store.add(keys, times, gaps, inputs, number, watermark)
        self._emit_late(batch, late)
        return self._emit(fired)

    def _emit(self, fired: Fired | None) -> Work:
        if fired is None:
            return None
        bounds = pa.array(fired.starts), pa.array(fired.ends)
        return self._output.emit(fired.keys, *bounds, fired.results, fired.ends - 1)

    def _emit_late(self, batch: Batch, rows: npt.NDArray[np.int64]) -> None:
        if not len(rows):
            return
        if self._spec.late_tag is None:
            self.ctx.metrics.count(LATE_DROPPED, len(rows))
        else:
            self.out.emit_side(self._spec.late_tag.tag_id, batch.take(rows))
