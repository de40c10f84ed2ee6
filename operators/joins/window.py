"""Window join: all pairs of records with equal keys in one tumbling or sliding window.

Each side's rows are kept per slice of time, once, whatever the windows' overlap. When the watermark
passes a window's end, the keys of both sides are numbered together and rows with equal numbers
paired. Nothing is decided before, so all kinds of join are one procedure.

A record whose windows have all ended is dropped and counted. Windows fire once.

What is much at once comes out by key groups, and `FiringProgress` says which have had which window;
so a checkpoint passes between two of them. One group's pairs, a product, may take many batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.joins import WindowJoinSpec, with_bounds
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch
from ...core.constants import CHUNK_BATCHES, LATE_DROPPED
from ...core.errors import GraphError, StateError
from ...core.joined_columns import NO_ROW
from ...core.preload import preload
from ...core.value_types import empty_batch, empty_table
from ...plan.windows import slicing_of
from ...state.backend import COLUMN_STATE
from ...state.column_face import BufferState
from ...state.key_groups import key_groups_of
from ...state.window_progress import WindowProgress
from ..base import IN_STATE, Operator, Pause, Steps, Work, plainly
from ..windows.firing_progress import FiringProgress
from ..windows.slice_calendar import SliceCalendar
from ..windows.slices import runs_by_slice, slice_ends
from .chunks import ChunkedOutput
from .side import SIDES, JoinSide, SideLayouts, SideRows, all_valid, check_sides
from .window_rows import WindowRows

SCRATCH = "scratch"

PART_BATCHES = 4
"""About how many batches of pairs are between two pauses where a snapshot may be taken: cutting
finer costs more, and a barrier waits for so many."""

_NO_GROUPS = np.empty(0, dtype=np.int32)


class WindowJoinOperator(Operator):
    """See the module. Port 0 is the left side."""

    def __init__(self, spec: WindowJoinSpec) -> None:
        slicing = slicing_of(spec.assigner)
        if slicing is None or not spec.assigner.is_event_time():
            raise GraphError(f"window_join runs no {type(spec.assigner).__name__}")
        self._slicing = slicing
        self._calendar = SliceCalendar(slicing)
        self._spec = spec.sides
        self._how = spec.sides.how
        self._buffers: list[BufferState | None] = [None, None]
        """Rows per slice, for the sides whose columns are known."""
        self._keeps_nulls = (self._how in ("left", "full", "anti"), self._how in ("right", "full"))

    def open(self) -> None:
        preload(*COLUMN_STATE, "operators.kernels.slices", "operators.kernels.pairs")
        name = f"window_join '{self.ctx.name}'"
        self._sides = (
            JoinSide(0, self._spec.left_key, self._spec.left_schema, name),
            JoinSide(1, self._spec.right_key, self._spec.right_schema, name),
        )
        self._layouts = SideLayouts(self.ctx.keyed_state, self._sides)
        self._progress = WindowProgress(self.ctx.keyed_state)
        self._firing = FiringProgress(self.ctx.keyed_state, self._progress)
        self._complete: list[tuple[int, int]] = []
        """(window end, up to which key group) of all that was added to the output since the state
        was told of what is emitted."""
        self._limit = self.ctx.config.batch_size * CHUNK_BATCHES
        self._output = ChunkedOutput(self.out, self._limit)
        self._join: str = name
        for side in self._sides:
            if side.schema is not None:
                self._bind(side)
        for end in self._slices():
            self._calendar.note(end, self._progress.watermark)
        if self._firing.unfinished:
            self.go_on_soon()

    def process(self, batch: Batch, port: int = 0) -> Work:
        if self._firing.unfinished:
            return self._resumed_for(batch, port)
        self._process(batch, port)
        return None

    def _resumed_for(self, batch: Batch, port: int) -> Steps:
        """The batch, behind what was due before it."""
        yield from plainly(self._resume())
        self._process(batch, port)

    def _process(self, batch: Batch, port: int) -> None:
        side = self._sides[port]
        records = side.read(batch)
        if self._buffers[port] is None:
            self._bind(side)
        for watermark, rows in self._progress.split(records.keys):
            self._add(port, records if rows is None else records.take(rows), watermark)

    def process_watermark(self, timestamp: int) -> Steps:
        yield from plainly(self._resume())  # a snapshot in between would not know of this one
        due = self._calendar.due
        if due is not None and due <= timestamp:
            yield from self._fire_until(timestamp)
        self._progress.advance(timestamp)
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> Steps:
        yield from self._resume()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()
        self._firing.save()

    def _resume(self) -> Steps:
        """After a restore in the middle of a firing: the rest of it."""
        if self._firing.unfinished:
            yield from self._fire_until(self._progress.watermark)

    def _bind(self, side: JoinSide) -> None:
        """The columns of this side are known from here on."""
        assert side.schema is not None
        self._layouts.learn(side)
        self._buffers[side.port] = self.ctx.keyed_state.buffer(
            SIDES[side.port], side.schema, cold=True
        )
        if check_sides(self._sides, self._join):
            self._columns = self._spec.columns(self._sides[0].schema, self._sides[1].schema)
        joined = self._spec.schema(self._sides[0].schema, self._sides[1].schema)
        self._schema = None if joined is None else with_bounds(joined)

    def _add(self, port: int, records: SideRows, watermark: int) -> None:
        """Keep records whose key groups have fired up to `watermark`."""
        if records.valid is not None and not self._keeps_nulls[port]:
            records = records.take(np.flatnonzero(records.valid))
            if not len(records):
                return
        order, runs = runs_by_slice(slice_ends(self._slicing, records.timestamps))
        if order is not None:
            records = records.take(order)
        groups = key_groups_of(records.keys, self.ctx.max_parallelism)
        buffer = self._buffers[port]
        assert buffer is not None
        for end, start, stop in runs:
            windows = self._slicing.window_ends(end)
            if not windows:
                self._drop_late(int((records.timestamps[start:stop] <= watermark).sum()))
            elif self._calendar.over(windows, watermark):
                self._drop_late(stop - start)
            else:
                buffer.append(end, records.rows.slice(start, stop - start), groups[start:stop])
                self._calendar.note(end, watermark)

    def _drop_late(self, count: int) -> None:
        if count:
            self.ctx.metrics.count(LATE_DROPPED, count)

    def _slices(self) -> list[int]:
        """Ends of the slices that hold rows of either side, ascending."""
        return sorted({end for b in self._buffers if b is not None for end in b.namespaces()})

    def _fire_until(self, watermark: int) -> Steps:
        """Fire the windows that `watermark` passes, in order of time, and drop finished slices."""
        slices = self._slices()
        self._firing.begin()
        self._progress.advance(watermark)
        fired, until = self._firing.least, self._progress.furthest
        for window in self._calendar.windows(slices, fired, until):
            yield from self._fire(window, slices)
        self._output.flush()
        self._complete.clear()
        self._firing.end()
        for end in self._calendar.take_over(slices, watermark):
            for buffer in self._buffers:
                if buffer is not None:
                    buffer.drop(end)

    def _fire(self, window: int, slices: list[int]) -> Steps:
        """Emit one window's results, for the key groups that have not had it."""
        held = [end for end in slices if self._slicing.holds(window, end)]
        rows = [self._rows(port, held) for port in (0, 1)]
        if rows[0] is None or (rows[1] is None and self._how != "anti"):
            # A side of unknown columns is empty; a join that could write something knows them.
            return
        left = rows[0][0]
        right = None if rows[1] is None else rows[1][0]
        groups = [_NO_GROUPS if side is None else side[1] for side in rows]
        keys = [self._sides[0].keys_of(left)]
        if right is not None:
            keys.append(self._sides[1].keys_of(right))
        slots, count = self._number(keys, window)
        if right is None:
            slots.append(np.empty(0, dtype=np.int64))
        for through, part in self._parts(window, WindowRows(self._how, slots, groups, count)):
            more = False
            sides = left, right
            if part.at is not None:
                others = None if right is None else _rows_at(right, part.at[1])
                sides = _rows_at(left, part.at[0]), others
            for pairs in part.pairs(self._limit):
                if self._output.add(self._build(window, *sides, *pairs)):
                    yield None if more else self._emitted()
                more = True
            self._complete.append((window, through))

    def _parts(self, window: int, rows: WindowRows) -> Iterator[tuple[int, WindowRows]]:
        """The rows of the key groups that have not had the window, cut where a batch is full, and
        up to which group."""
        due = self._firing.due_groups(window)
        return (rows if due is None else rows.of(due)).parts(PART_BATCHES * self._limit)

    def _emitted(self) -> Pause:
        """All that is complete is emitted, and nothing else."""
        for window, through in self._complete:
            self._firing.emitted_through(window, through)
        self._complete.clear()
        return IN_STATE

    def _rows(
        self, port: int, slice_ends: list[int]
    ) -> tuple[pa.RecordBatch, npt.NDArray[np.int32]] | None:
        """One side's rows in these slices and their key groups; None if its columns are not known
        yet."""
        buffer, schema = self._buffers[port], self._sides[port].schema
        if buffer is None or schema is None:
            return None
        found = [buffer.get(end) for end in slice_ends]
        table = pa.concat_tables([empty_table(schema), *(rows for rows, _ in found)])
        groups = np.concatenate([_NO_GROUPS, *(groups for _, groups in found)])
        batches = table.combine_chunks().to_batches()
        if len(batches) > 1:
            raise StateError(
                f"{self._join}: one window holds over 2 GiB of one text column of the "
                f"{SIDES[port]} side; make it a large_string before the join"
            )
        return batches[0] if batches else empty_batch(schema), groups

    def _number(self, keys: list[pa.RecordBatch], window: int) -> tuple[list[Int64s], int]:
        """Each side's keys as slots of one numbering, NO_ROW for null, and how many there are."""
        schema = pa.schema([pa.field(f"key{i}", t) for i, t in enumerate(keys[0].schema.types)])
        table = self.ctx.keyed_state.table(SCRATCH, schema, []).table(0)
        slots = []
        for side in keys:
            mine = table.slots(pa.RecordBatch.from_arrays(side.columns, schema=schema))
            valid = all_valid(side)
            slots.append(mine if valid is None else np.where(valid, mine, NO_ROW))
        count = len(table)
        self.ctx.keyed_state.table(SCRATCH, schema, []).drop(0)
        return slots, count

    def _build(
        self,
        window: int,
        left: pa.RecordBatch,
        right: pa.RecordBatch | None,
        left_rows: Int64s,
        right_rows: Int64s,
    ) -> ColumnBatch:
        count = len(left_rows)
        if right is None or self._how in ("semi", "anti"):
            joined = ColumnBatch(left).take(left_rows).data
        else:
            joined = self._columns.build(left, left_rows, right, right_rows)
        bounds = [np.full(count, at, np.int64) for at in (window - self._slicing.size, window)]
        data = pa.RecordBatch.from_arrays(
            [*joined.columns, *map(pa.array, bounds)], schema=self._schema
        )
        return ColumnBatch(data, np.full(count, window - 1, dtype=np.int64))


def _rows_at(rows: pa.RecordBatch, at: Int64s) -> pa.RecordBatch:
    return ColumnBatch(rows).take(at).data
