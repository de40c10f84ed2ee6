"""Interval join: pairs of records with equal keys, the right one's time from `lower` to `upper` ms
after the left one's.

Both sides are held until the watermark says that no partner can come any more. A batch is probed
against the other side, then held itself; so each pair comes out when its later record arrives. What
has no partner (outer and anti joins) is written when it expires, with its own time; its watermark
is behind by up to the length of the interval then, so the output's watermark is kept behind by as
much, as Flink SQL does, and nothing comes out late. So are semi joins', whose record comes out with
its first partner.

A late record (time <= watermark) is dropped and counted. A null key never matches: such a record is
dropped, or written at once where records without partner are.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.specs.joins import IntervalJoinSpec
from ...core.arrays import Bools, Int64s
from ...core.batch import Batch, ColumnBatch
from ...core.constants import CHUNK_BATCHES, LATE_DROPPED
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.joined_columns import NO_ROW
from ...core.preload import preload
from ...core.value_types import empty_batch
from ...state.backend import COLUMN_STATE
from ...state.rows.chunks import Gathered
from ...state.window_progress import WindowProgress
from ..base import IN_STATE, Operator, Steps
from .assembly import BatchRows, joined
from .chunks import ChunkedOutput
from .held_rows import HeldRows
from .side import JoinSide, SideLayouts, SideRows, check_sides

PADDED = {
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
    "anti": (True, False),
}
"""Sides whose records are written if they have no partner."""


class IntervalJoinOperator(Operator):
    """See the module. Port 0 is the left side."""

    def __init__(self, spec: IntervalJoinSpec) -> None:
        self._spec = spec.sides
        self._how = spec.sides.how
        self._lower, self._upper = spec.lower, spec.upper
        self._padded = PADDED.get(self._how, (False, False))
        self._single = self._how in ("semi", "anti")
        """Only left records are written."""
        behind = [0]
        if self._padded[0] or self._how == "semi":
            behind.append(spec.upper)
        if self._padded[1]:
            behind.append(-spec.lower)
        self._behind = max(behind)
        """How much later than its own time a record may be written, by the watermark."""

    def open(self) -> None:
        preload(*COLUMN_STATE, "operators.kernels.intervals")
        self._join = f"interval_join '{self.ctx.name}'"
        self._sides = (
            JoinSide(0, self._spec.left_key, self._spec.left_schema, self._join),
            JoinSide(1, self._spec.right_key, self._spec.right_schema, self._join),
        )
        self._layouts = SideLayouts(self.ctx.keyed_state, self._sides)
        self._progress = WindowProgress(self.ctx.keyed_state)
        self._limit = self.ctx.config.batch_size * CHUNK_BATCHES
        self._output = ChunkedOutput(self.out, self._limit)
        width = self._upper - self._lower + 1
        self._held = (
            HeldRows(self._sides[0], self._upper, width, self._padded[0]),
            HeldRows(self._sides[1], -self._lower, width, self._padded[1]),
        )
        self._kept = [True, True]
        """Whether a side's records may still be needed."""
        self._known = False
        """Whether both sides' columns are known."""
        self._learn()
        for side, held in zip(self._sides, self._held, strict=True):
            if side.schema is not None:
                held.bind(self.ctx.keyed_state)
        if any(map(len, self._held)):
            self.go_on_soon()

    def process(self, batch: Batch, port: int = 0) -> Steps:
        records = self._sides[port].read(batch)
        if not self._known:
            self._layouts.learn(self._sides[port])
            self._held[port].bind(self.ctx.keyed_state)
            self._learn()
        for watermark, rows in self._progress.split(records.keys):
            yield from self._take_in(
                port, records if rows is None else records.take(rows), watermark
            )
        self._output.flush()

    def process_watermark(self, timestamp: int) -> Steps:
        yield from self._expire_until(max(timestamp, self._progress.watermark))
        behind = timestamp if timestamp == MAX_TIMESTAMP else timestamp - self._behind
        if behind > MIN_TIMESTAMP:
            self.out.emit_watermark(behind)

    def on_processing_time(self, now_ms: int) -> Steps:
        """After a restore, perhaps of a snapshot between two parts of what expired."""
        return self._expire_until(self._progress.watermark)

    def end_input(self, port: int) -> None:
        """The other side's records will find no more partners: they are kept only to be written."""
        other = 1 - port
        if not self._padded[other]:
            self._held[other].expire(MAX_TIMESTAMP)
            self._kept[other] = False

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()

    def validate(self) -> None:
        """Assert the invariants of both sides."""
        for held in self._held:
            held.validate()

    def _learn(self) -> None:
        self._known = check_sides(self._sides, self._join)
        if self._known:
            self._columns = self._spec.columns(self._sides[0].schema, self._sides[1].schema)

    def _take_in(self, port: int, records: SideRows, watermark: int) -> Steps:
        """Join records whose key groups are at `watermark`, and hold them."""
        timely = records.timestamps > watermark
        if not timely.all():
            self.ctx.metrics.count(LATE_DROPPED, len(records) - int(timely.sum()))
            records = records.take(np.flatnonzero(timely))
        if records.valid is not None:
            if self._padded[port]:
                yield from self._write_alone(port, records, np.flatnonzero(~records.valid))
            records = records.take(np.flatnonzero(records.valid))
        if not len(records):
            return
        matched = np.zeros(len(records), dtype=np.bool_)
        yield from self._join_with_other(port, records, matched)
        keep = records.timestamps > watermark - self._held[port].reach
        if self._single and port == 0:
            if self._how == "semi":
                yield from self._write_alone(port, records, np.flatnonzero(matched))
            keep &= ~matched
        if self._padded[port]:
            over = records.timestamps <= watermark - self._held[port].reach
            yield from self._write_alone(port, records, np.flatnonzero(over & ~matched))
        if not keep.all():
            at = np.flatnonzero(keep)
            records, matched = records.take(at), matched[at]
        if len(records) and self._kept[port]:
            self._held[port].insert(records, matched)

    def _join_with_other(self, port: int, records: SideRows, matched: Bools) -> Steps:
        """Pair the records with the other side's rows; sets in `matched` those that have one."""
        other = self._held[1 - port]
        bounds = (self._lower, self._upper) if port == 0 else (-self._upper, -self._lower)
        pairs = other.probe(records.keys, records.timestamps, *bounds, self._limit)
        for probing, numbers, found in pairs:
            matched[probing] = True
            if self._single:
                if port == 1:
                    yield from self._meet(other, numbers)
                continue
            if self._padded[1 - port]:
                other.mark(numbers)
            for start in range(0, len(probing), self._limit):
                part = slice(start, start + self._limit)
                if self._write_pairs(port, records, probing[part], found, found.at[part]):
                    yield None

    def _meet(self, lefts: HeldRows, numbers: Int64s) -> Steps:
        """Left rows of a semi or anti join have met a partner."""
        fresh = lefts.mark(numbers)
        if self._how == "semi" and len(fresh):
            found = lefts.gather(fresh)
            if self._write_rows(found.rows, found.at, found.stamps[found.at]):
                yield None

    def _expire_until(self, watermark: int) -> Steps:
        """No partner comes any more for rows whose time is far enough behind `watermark`. They come
        out in order of time, in parts, between which state has those that are still to come."""
        self._progress.advance(watermark)
        for port, held in enumerate(self._held):
            until = watermark if watermark == MAX_TIMESTAMP else watermark - held.reach
            for part in held.cuts(until, self._limit):
                for chunk, rows in held.expire(part):
                    alone = SideRows(chunk.rows, chunk.keys, chunk.stamps, None)
                    yield from self._write_alone(port, alone, rows)
                if part < until:
                    self._output.flush()
                    yield IN_STATE
        self._output.flush()

    def _write_pairs(
        self, port: int, records: SideRows, mine: Int64s, found: Gathered, theirs: Int64s
    ) -> bool:
        """Whether anything went out for it."""
        stamps = np.maximum(records.timestamps[mine], found.stamps[theirs])
        sides = (BatchRows(records.rows), mine), (BatchRows(found.rows), theirs)
        left, right = sides if port == 0 else sides[::-1]
        data = joined(self._columns, *left, *right)
        return self._output.add(ColumnBatch(data, stamps))

    def _write_alone(self, port: int, records: SideRows, rows: Int64s) -> Steps:
        """Records without partner, or those of a semi join, with their own time."""
        for start in range(0, len(rows), self._limit):
            some = rows[start : start + self._limit]
            stamps = records.timestamps[some]
            if self._single:
                if self._write_rows(records.rows, some, stamps):
                    yield None
                continue
            none = np.full(len(some), NO_ROW, dtype=np.int64)
            nothing = empty_batch(self._sides[1 - port].schema)
            if port == 0:
                data = self._columns.build(records.rows, some, nothing, none)
            else:
                data = self._columns.build(nothing, none, records.rows, some)
            if self._output.add(ColumnBatch(data, stamps)):
                yield None

    def _write_rows(self, rows: pa.RecordBatch, at: Int64s, stamps: Int64s) -> bool:
        """Left rows as they are; whether anything went out for them."""
        return self._output.add(ColumnBatch(ColumnBatch(rows).take(at).data, stamps))
