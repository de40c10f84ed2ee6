"""Each record with aggregates over the records of its key up to it.

In event-time order records wait until the watermark passes them and come out sorted by time, those
of one time in order of arrival. In order of arrival they come out at once; ranges of time then go
by processing time. What frames reach back to is in `FrameHistory`, or `Running` for all rows.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.tables import OverSpec
from ...core.arrays import Int64s
from ...core.batch import ColumnBatch
from ...core.constants import CHUNK_BATCHES, LATE_DROPPED
from ...core.elements import MIN_TIMESTAMP
from ...core.errors import TypeMismatchError
from ...core.row_kind import ROW_KIND
from ..aggregates.accumulators import check_type
from ..aggregates.inputs import AggregateInputs
from ..base import Work, emit_slices, then
from ..columns import fit
from .base import Layout, Records, TableOperator, require_distinct
from .frame_history import FrameHistory
from .pending import Pending
from .running import Running


class OverOperator(TableOperator):
    """See the module."""

    kernels = (
        "operators.kernels.over",
        "operators.kernels.running",
        "state.block_kernels",
        "operators.aggregates.accumulators",
    )

    def __init__(self, spec: OverSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec
        self._event_time = spec.order == "event_time"
        self._evaluate = AggregateInputs([a for _, a in spec.aggregates])

    def bind(self, layout: Layout) -> None:
        spec, state = self._spec, self.ctx.keyed_state
        if layout.changelog:
            raise TypeMismatchError(
                f"operator '{self.ctx.name}': over takes streams that only insert; this one has "
                f"{ROW_KIND}"
            )
        if self._event_time and not layout.stamped:
            raise self._no_time()
        names = [name for name, _ in spec.aggregates]
        require_distinct(self.ctx.name, [*layout.columns.names, *names])
        empty = ColumnBatch(pa.RecordBatch.from_pylist([], schema=layout.columns))
        self._kinds = [array.type for array in self._evaluate.of(empty)]
        self._aggregates = list(self._with_inputs())
        fields = [pa.field(f"i{i}", kind) for i, kind in enumerate(self._kinds)]
        ranged = spec.range_ms is not None
        inner = Layout(layout.keys, pa.schema(fields), ranged, changelog=False, named=False)
        self._history: FrameHistory | Running
        if spec.rows is None and not ranged:
            self._history = Running(inner, state, self._aggregates)
        else:
            peers = ranged and self._event_time
            self._history = FrameHistory(inner, state, spec.rows, spec.range_ms, peers)
        self._pending = Pending(layout, state) if self._event_time else None

    def update(self, records: Records) -> Work:
        if self._pending is None:
            now = self.ctx.clock.now_ms()
            done = self._finish(records, np.full(len(records), now, dtype=np.int64))
            self._history.prune(now - 1)
            return done
        assert records.stamps is not None
        if records.stamps.min() == MIN_TIMESTAMP:
            raise self._no_time()
        late = np.zeros(len(records), dtype=np.bool_)
        for watermark, rows in self._progress.split(records.keys):
            some = slice(None) if rows is None else rows
            late[some] = records.stamps[some] <= watermark
        if late.any():
            self.ctx.metrics.count(LATE_DROPPED, int(late.sum()))
        self._pending.add(records, np.flatnonzero(~late) if late.any() else None)
        return None

    def process_watermark(self, timestamp: int) -> Work:
        done: Work = None
        if self._layout is not None and self._pending is not None:
            due = self._pending.take_until(timestamp)
            if due is not None:
                assert due.stamps is not None
                done = self._finish(due, due.stamps)
            self._history.prune(timestamp)
        self._progress.advance(timestamp)
        return then(done, lambda: self.out.emit_watermark(timestamp))

    def _no_time(self) -> TypeMismatchError:
        return TypeMismatchError(
            f"operator '{self.ctx.name}': a record without event time: assign timestamps at the "
            'source or with assign_timestamps_and_watermarks, or use order="arrival"'
        )

    def _with_inputs(self) -> list[tuple[Aggregate, int]]:
        """Each aggregate with the index of its input, -1 if it takes none."""
        found, index = [], 0
        for _, aggregate in self._spec.aggregates:
            if aggregate.takes_input:
                check_type(aggregate, self._kinds[index])
                found.append((aggregate, index))
                index += 1
            else:
                found.append((aggregate, -1))
        return found

    def _finish(self, records: Records, times: Int64s) -> Work:
        """Records of a key in their final order: append the aggregates and send them on."""
        arrays = self._evaluate.of(ColumnBatch(records.data))
        inputs = [
            fit(array, kind, f"an input of operator '{self.ctx.name}'")
            for array, kind in zip(arrays, self._kinds, strict=True)
        ]
        fields = [pa.field(f"i{i}", kind) for i, kind in enumerate(self._kinds)]
        data = pa.RecordBatch.from_arrays(inputs, schema=pa.schema(fields))
        stamps = times if self._spec.range_ms is not None else None
        inner = Records(records.keys, data, stamps, None)
        results = self._history.update(inner, self._aggregates)
        names = [*records.data.schema.names, *(name for name, _ in self._spec.aggregates)]
        columns = [*records.data.columns, *results]
        output = ColumnBatch(pa.RecordBatch.from_arrays(columns, names=names), records.stamps)
        return emit_slices(self.out, output, self.ctx.config.batch_size * CHUNK_BATCHES)
