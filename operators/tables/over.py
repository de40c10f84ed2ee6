"""Each record with aggregates over the records of its key up to it.

In event-time order records wait until the watermark passes them and come out sorted by time, those
of one key and time in order of arrival. In order of arrival they come out at once; ranges of time
then go by processing time. What frames reach back to is in `FrameHistory`, or `Running` for all.
With a time to live a key without records for so long is forgotten.

What one watermark passes comes out in parts. Between two, state says all: what is out waits no more
and is in the frames of what follows, the rest waits, and the progress says that it is due.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from ...core.value_types import empty_batch
from ...state.key_groups import group_order
from ..aggregates.inputs import AggregateInputs
from ..aggregates.registry import check_type
from ..base import IN_STATE, Steps, Work, emit_slices, then
from ..columns import fit
from .base import Layout, Records, TableOperator, require_distinct
from .frame_history import FrameHistory
from .pending import Pending
from .running import Running

AGAIN = 4
"""How many times as much as a part has itself its frames may reach back to, before parts grow."""


class OverOperator(TableOperator):
    """See the module."""

    kernels = (
        "operators.kernels.over",
        "operators.kernels.running",
        "operators.kernels.expiry",
        "state.block_kernels",
        "operators.aggregates.registry",
    )

    def __init__(self, spec: OverSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec
        self._event_time = spec.order == "event_time"
        self._peers = self._event_time and spec.range_ms is not None
        """Whether records of one key and time are in each other's frames."""
        self._evaluate = AggregateInputs([a for _, a in spec.aggregates])
        self._pending: Pending | None = None
        """In event-time order, once bound."""

    def open(self) -> None:
        self._limit = self.ctx.config.batch_size * CHUNK_BATCHES
        super().open()

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
        empty = ColumnBatch(empty_batch(layout.columns))
        self._kinds = [array.type for array in self._evaluate.of(empty)]
        self._aggregates = list(self._with_inputs())
        fields = [pa.field(f"i{i}", kind) for i, kind in enumerate(self._kinds)]
        ranged = spec.range_ms is not None
        inner = Layout(layout.keys, pa.schema(fields), ranged, changelog=False, named=False)
        self._history: FrameHistory | Running
        if spec.rows is None and not ranged:
            self._history = Running(inner, state, self._aggregates, spec.ttl, self.ctx.name)
        else:
            frame = (spec.rows, spec.range_ms, self._peers)
            self._history = FrameHistory(inner, state, *frame, spec.ttl, self.ctx.name)
        if self._event_time:
            self._pending = Pending(layout, state)
            first = self._pending.first
            if first is not None and first <= self._progress.watermark:
                self.go_on_soon()

    def update(self, records: Records) -> Work:
        if not self._event_time:
            now = self.ctx.clock.now_ms()
            done = self._finish(records, np.full(len(records), now, dtype=np.int64))
            self._history.prune(now - 1)
            return done
        assert self._pending is not None
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
        return then(self._release(timestamp), lambda: self._passed(timestamp))

    def on_processing_time(self, now_ms: int) -> Work:
        """After a restore between two parts."""
        return self._release(self._progress.watermark)

    def _release(self, watermark: int) -> Work:
        """What waits up to `watermark` comes out."""
        if self._pending is None:
            return None
        positions, times = self._pending.due(watermark)
        self._progress.advance(watermark)
        return self._in_parts(positions, times) if len(positions) else None

    def _passed(self, watermark: int) -> None:
        """All up to `watermark` is out."""
        if self._pending is not None:
            self._history.prune(watermark)
        self._progress.advance(watermark)
        self.out.emit_watermark(watermark)

    def _in_parts(self, positions: Int64s, times: Int64s) -> Steps:
        assert self._pending is not None
        more = False
        for part, stamps in self._parts(positions, times):
            if more:
                yield IN_STATE
            yield from self._finish(self._pending.take(part, stamps), stamps) or ()
            more = True

    def _parts(self, positions: Int64s, times: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
        """Cut about where a batch is full; with frames of a range of time, in which all records of
        one time see each other, between times, or between key groups within one time."""
        start = 0
        while start < len(times):
            stop = start + self._part_size()
            if self._peers and stop < len(times):
                stop = int(np.searchsorted(times, times[stop]))
                if stop <= start:
                    stop = int(np.searchsorted(times, times[start], side="right"))
                    yield from self._parts_of_one_time(positions[start:stop], times[start:stop])
                    start = stop
                    continue
            yield positions[start:stop], times[start:stop]
            start = stop

    def _parts_of_one_time(
        self, positions: Int64s, times: Int64s
    ) -> Iterator[tuple[Int64s, Int64s]]:
        assert self._pending is not None
        groups = self._pending.key_groups(positions)
        order = group_order(groups)
        groups, positions = groups[order], positions[order]
        start = 0
        while start < len(groups):
            stop = min(start + self._part_size(), len(groups))
            if stop < len(groups):
                stop = int(np.searchsorted(groups, groups[stop]))
            if stop <= start:
                stop = int(np.searchsorted(groups, groups[start], side="right"))
            yield positions[start:stop], times[start:stop]
            start = stop

    def _part_size(self) -> int:
        """Each part looks at what the frames of its keys reach back to: where that is a lot, parts
        are larger, so that what is looked at again is at most some times what comes out."""
        return max(self._limit, self._history.reached // AGAIN)

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
        results = self._history.update(inner, self._aggregates, records.stamps)
        names = [*records.data.schema.names, *(name for name, _ in self._spec.aggregates)]
        columns = [*records.data.columns, *results]
        output = ColumnBatch(pa.RecordBatch.from_arrays(columns, names=names), records.stamps)
        return emit_slices(self.out, output, self._limit)
