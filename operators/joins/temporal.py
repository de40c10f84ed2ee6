"""Temporal join: each record with the version of its key that was valid at the record's time.

Records wait until the watermark has passed their time: by then every version up to it has come. The
versions of a key are chained from the latest to the first, so that one is found in as many steps as
there are later ones.

State: waiting records, and the versions that may still be found. The order of the former and the
chains of the latter are made anew from them. A record waits until it is emitted; `FiringUntil` says
that it is due, so that versions which come after a restore do not change what it is joined with.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from ...api.specs.joins import TemporalJoinSpec
from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch
from ...core.errors import OperatorError, StromError, TypeMismatchError
from ...core.joined_columns import NO_ROW, JoinedColumns, side_columns
from ...core.preload import preload
from ...core.row_kind import RowKind
from ...state.backend import COLUMN_STATE
from ..base import IN_STATE, Operator, Steps, Work, plainly
from ..firing_until import FiringUntil
from .assembly import BatchRows, joined
from .keyslots import KeySlots, groups_by
from .layout import JoinLayout
from .rowstore import FIRST_COMPACTION
from .side import SIDES
from .versions import VersionStore
from .waiting import Waiting

MAX_ROWS = 1 << 15
"""Records of one output batch."""

LEFT, RIGHT = 0, 1


class TemporalJoinOperator(Operator):
    """See the module."""

    def __init__(self, spec: TemporalJoinSpec) -> None:
        self._spec = spec
        self._keys = (spec.key, spec.right_key)
        self._waiting: Waiting | None = None
        self._versions: VersionStore | None = None
        self._columns: JoinedColumns | None = None

    def open(self) -> None:
        preload("operators.kernels.versions", "state.gather_kernels", *COLUMN_STATE)
        schemas = map(side_columns, self._spec.schemas)
        self._layout = JoinLayout(self.ctx.keyed_state, self._keys, *schemas)
        self._slots = self._new_slots()
        self._firing = FiringUntil(self.ctx.keyed_state, "firing")
        self._bind()
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
        try:
            if port == LEFT:
                self._wait(batch)
            else:
                self._version(batch)
        except StromError as error:
            raise OperatorError(
                self.ctx.name, self.ctx.subtask, f"temporal_join: {error}"
            ) from error

    def process_watermark(self, timestamp: int) -> Steps:
        yield from plainly(self._resume())  # a snapshot in between would not know of this one
        if self._waiting is not None:
            self._firing.begin(timestamp)
            yield from self._release(self._waiting, self._waiting.due(timestamp))
            self._firing.end()
            self._waiting.tidy()
        if self._versions is not None:
            self._versions.watermark = max(self._versions.watermark, timestamp)
        self._tidy()
        self.out.emit_watermark(timestamp)

    def on_processing_time(self, now_ms: int) -> Steps:
        yield from self._resume()

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._firing.save()

    def _resume(self) -> Steps:
        """After a restore between two batches of records that were due: the rest of them."""
        if self._firing.unfinished:
            if self._waiting is not None:
                yield from self._release(self._waiting, self._waiting.overdue(self._firing))
                self._waiting.renumber()
            if self._versions is not None:
                self._versions.watermark = self._firing.least
            self._firing.end()

    def _release(self, waiting: Waiting, due: Int64s) -> Steps:
        for start in range(0, len(due), MAX_ROWS):
            if start:
                yield IN_STATE
            self._emit(waiting.take(due[start : start + MAX_ROWS]))

    def validate(self) -> None:
        """Assert the invariants of both sides."""
        for held in (self._waiting, self._versions):
            if held is not None:
                held.validate()

    # --- records -----------------------------------------------------------------------------

    def _wait(self, batch: Batch) -> None:
        data, kinds = self._layout.read(batch, LEFT)
        if kinds is not None and (kinds != RowKind.INSERT).any():
            raise TypeMismatchError(
                "the left side has records that are taken back (row kinds other than +I), which "
                "an as-of join cannot follow; only the versions may be a changelog"
            )
        self._bind()
        assert self._waiting is not None
        times = self._times(batch, "left")
        if self._spec.how == "inner":
            keys = self._keys[LEFT].key_columns(ColumnBatch(data))
            assert keys is not None
            if any(column.null_count for column in keys.columns):
                complete = np.flatnonzero(self._slots.slots(keys) >= 0)
                if not len(complete):
                    return
                data, times = ColumnBatch(data).take(complete).data, times[complete]
        self._waiting.add(data, times)

    def _version(self, batch: Batch) -> None:
        data, kinds = self._layout.read(batch, RIGHT)
        self._bind()
        assert self._versions is not None
        times = self._times(batch, "right")
        slots = self._slots_of(RIGHT, data)
        keep = slots >= 0
        ends = np.zeros(len(slots), dtype=np.bool_)
        if kinds is not None:  # what -U takes back, the +U behind it replaces
            keep &= kinds != RowKind.UPDATE_BEFORE
            ends = kinds == RowKind.DELETE
        if not keep.all():
            rows = np.flatnonzero(keep)
            data, slots = ColumnBatch(data).take(rows).data, slots[rows]
            times, ends = times[rows], ends[rows]
        self._versions.add(data, slots, times, ends, self.ctx.clock.now_ms())

    def _times(self, batch: Batch, side: str) -> Int64s:
        if batch.timestamps is None:
            raise TypeMismatchError(
                f"the {side} side's records have no event times: use "
                "assign_timestamps_and_watermarks before the join"
            )
        return batch.timestamps

    def _emit(self, due: ColumnBatch) -> None:
        """Join records whose time has come."""
        assert due.timestamps is not None
        versions = self._versions
        if versions is None:  # no version has ever come, and an inner join asks for no columns
            return
        slots = self._slots_of(LEFT, due.data)
        found = versions.find(slots, due.timestamps, self.ctx.clock.now_ms())
        rows = np.arange(len(due))
        if self._spec.how == "inner":
            rows = np.flatnonzero(found != NO_ROW)
            found = found[rows]
        if len(rows):
            assert self._columns is not None
            left = BatchRows(due.data)
            data = joined(self._columns, left, rows, versions.log, found)
            self.out.emit(ColumnBatch(data, due.timestamps[rows]))

    # --- state -------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Make what can be made of the columns known so far."""
        left, right = self._layout.sides
        state, most = self.ctx.keyed_state, self.ctx.max_parallelism
        if left is not None and self._waiting is None:
            self._waiting = Waiting(state, SIDES[LEFT], left, groups_by(self._keys[LEFT], most))
        if right is not None and self._versions is None:
            groups_of = groups_by(self._keys[RIGHT], most)
            versions = VersionStore(state, SIDES[RIGHT], right, groups_of, self._spec.ttl)
            rows = versions.unexpired(self.ctx.clock.now_ms())
            versions.rebuild(rows, partial(self._slots_of, RIGHT))
            self._versions = versions
        if left is not None and right is not None and self._columns is None:
            self._columns = JoinedColumns.of(left, right, *self._spec.shared, self._spec.suffix)

    def _slots_of(self, port: int, rows: pa.RecordBatch) -> Int64s:
        """The slots of these rows' keys."""
        keys = self._keys[port].key_columns(ColumnBatch(rows))
        assert keys is not None
        return self._slots.slots(keys)

    def _new_slots(self) -> KeySlots:
        return KeySlots(f"temporal_join '{self.ctx.name}'")

    def _tidy(self) -> None:
        """Make the versions and the key index anew when they have doubled since the last time."""
        versions = self._versions
        if versions is None:
            return
        limit = FIRST_COMPACTION + 2 * versions.checked
        if len(versions) > limit or len(self._slots) > limit:
            self._slots = self._new_slots()
            useful = np.flatnonzero(versions.useful(self.ctx.clock.now_ms()))
            versions.rebuild(useful, partial(self._slots_of, RIGHT))
