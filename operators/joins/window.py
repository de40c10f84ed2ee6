"""Window join: all pairs of records with equal keys in one tumbling or sliding window.

Each side's rows are kept per slice of time, once, whatever the windows' overlap. When the watermark
passes a window's end, the keys of both sides are numbered together and rows with equal numbers
paired. Nothing is decided before, so all kinds of join are one procedure.

A record whose windows have all ended is dropped and counted. Windows fire once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...api.specs.joins import WindowJoinSpec, with_bounds
from ...api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch
from ...core.constants import CHUNK_BATCHES, LATE_DROPPED
from ...core.errors import GraphError, StateError
from ...core.joined_columns import NO_ROW
from ...core.preload import preload
from ...plan.slicing import Slicing
from ...state.backend import COLUMN_STATE, BufferState
from ...state.key_groups import key_groups_of
from ...state.window_progress import WindowProgress
from ..base import Operator, Steps
from ..windows.slices import runs_by_slice, slice_ends
from .chunks import ChunkedOutput
from .pairing import join_rows
from .side import SIDES, JoinSide, SideLayouts, SideRows, all_valid, check_sides

SCRATCH = "scratch"


class WindowJoinOperator(Operator):
    """See the module. Port 0 is the left side."""

    def __init__(self, spec: WindowJoinSpec) -> None:
        assigner = spec.assigner
        if isinstance(assigner, TumblingEventTimeWindows):
            self._slicing = Slicing(assigner.size, assigner.size, assigner.offset)
        elif isinstance(assigner, SlidingEventTimeWindows):
            self._slicing = Slicing(assigner.size, assigner.slide, assigner.offset)
        else:
            raise GraphError(f"window_join runs no {type(assigner).__name__}")
        self._spec = spec.sides
        self._how = spec.sides.how
        self._due: int | None = None
        """The least watermark at which a window has to fire."""
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
        self._limit = self.ctx.config.batch_size * CHUNK_BATCHES
        self._output = ChunkedOutput(self.out, self._limit)
        self._join: str = name
        for side in self._sides:
            if side.schema is not None:
                self._bind(side)
        for end in self._slices():
            self._note_due(end, self._progress.watermark)

    def process(self, batch: Batch, port: int = 0) -> None:
        side = self._sides[port]
        records = side.read(batch)
        if self._buffers[port] is None:
            self._bind(side)
        for watermark, rows in self._progress.split(records.keys):
            self._add(port, records if rows is None else records.take(rows), watermark)

    def process_watermark(self, timestamp: int) -> Steps:
        if self._due is not None and self._due <= timestamp:
            yield from self._fire_until(timestamp)
        self._progress.advance(timestamp)
        self.out.emit_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()

    def _bind(self, side: JoinSide) -> None:
        """The columns of this side are known from here on."""
        assert side.schema is not None
        self._layouts.learn(side)
        self._buffers[side.port] = self.ctx.keyed_state.buffer(SIDES[side.port], side.schema)
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
            elif windows[-1] - 1 <= watermark:
                self._drop_late(stop - start)
            else:
                buffer.append(end, records.rows.slice(start, stop - start), groups[start:stop])
                self._note_due(end, watermark)

    def _drop_late(self, count: int) -> None:
        if count:
            self.ctx.metrics.count(LATE_DROPPED, count)

    def _slices(self) -> list[int]:
        """Ends of the slices that hold rows of either side, ascending."""
        return sorted({end for b in self._buffers if b is not None for end in b.namespaces()})

    def _note_due(self, slice_end: int, watermark: int) -> None:
        """Remember when a slice's next window fires; `watermark` has fired the ones before."""
        due = next(w - 1 for w in self._slicing.window_ends(slice_end) if w - 1 > watermark)
        self._due = due if self._due is None else min(self._due, due)

    def _fire_until(self, watermark: int) -> Steps:
        """Fire the windows that `watermark` passes, in order of time, and drop finished slices."""
        fired, slices = self._progress.watermark, self._slices()
        due = {
            window
            for end in slices
            for window in self._slicing.window_ends(end)
            if fired < window - 1 <= watermark
        }
        for window in sorted(due):
            yield from self._fire(window, slices)
        self._output.flush()
        self._due = None
        for end in slices:
            if self._slicing.window_ends(end)[-1] - 1 <= watermark:
                for buffer in self._buffers:
                    if buffer is not None:
                        buffer.drop(end)
            else:
                self._note_due(end, watermark)

    def _fire(self, window: int, slices: list[int]) -> Steps:
        """Emit one window's results, for the key groups that have not had it."""
        held = [end for end in slices if self._slicing.holds(window, end)]
        rows = [self._rows(port, held) for port in (0, 1)]
        if rows[0] is None or (rows[1] is None and self._how != "anti"):
            # A side of unknown columns is empty; a join that could write something knows them.
            return
        left = rows[0]
        right = rows[1]
        keys = [self._sides[0].keys_of(left)]
        if right is not None:
            keys.append(self._sides[1].keys_of(right))
        slots, count = self._number(keys, window)
        if right is None:
            slots.append(np.empty(0, dtype=np.int64))
        for pairs in self._chosen(keys, window, slots, count):
            if self._output.add(self._build(window, left, right, *pairs)):
                yield None

    def _rows(self, port: int, slice_ends: list[int]) -> pa.RecordBatch | None:
        """One side's rows in these slices; None if its columns are not known yet."""
        buffer, schema = self._buffers[port], self._sides[port].schema
        if buffer is None or schema is None:
            return None
        table = pa.concat_tables([schema.empty_table(), *(buffer.get(e)[0] for e in slice_ends)])
        batches = table.combine_chunks().to_batches()
        if len(batches) > 1:
            raise StateError(
                f"{self._join}: one window holds over 2 GiB of one text column of the "
                f"{SIDES[port]} side; make it a large_string before the join"
            )
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)

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

    def _chosen(
        self, keys: list[pa.RecordBatch], window: int, slots: list[Int64s], count: int
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """The window's pairs, without the keys whose groups fired it before a rescale."""
        unfired = [self._progress.unfired(side, window) for side in keys]
        if all(mask is None for mask in unfired):
            yield from join_rows(self._how, slots[0], slots[1], count, self._limit)
            return
        at = [np.flatnonzero(mask) for mask in unfired if mask is not None]
        at += [np.empty(0, dtype=np.int64)] * (2 - len(at))
        chosen = [side[rows] for side, rows in zip(slots, at, strict=True)]
        for left, right in join_rows(self._how, chosen[0], chosen[1], count, self._limit):
            yield _back(at[0], left), _back(at[1], right)

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


def _back(rows: Int64s, chosen: Int64s) -> Int64s:
    """Row numbers among the chosen rows as row numbers of the side."""
    if not len(rows):
        return chosen
    back: Int64s = np.where(chosen == NO_ROW, NO_ROW, rows[chosen])
    return back
