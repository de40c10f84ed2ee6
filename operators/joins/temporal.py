"""Temporal join: each record with the version of its key that was valid at the record's time.

Records wait until the watermark has passed their time: by then every version up to it has come. The
versions of a key are chained from the latest to the first, so that one is found in as many steps as
there are later ones.

State: waiting records, and the versions that may still be found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...api.specs.joins import TemporalJoinSpec
from ...core.arrays import Int64s, numpy_of
from ...core.batch import Batch, ColumnBatch
from ...core.errors import OperatorError, StromError, TypeMismatchError
from ...core.joined_columns import NO_ROW, JoinedColumns, side_columns
from ...core.key_types import widened_keys
from ...core.preload import preload
from ...core.row_kind import RowKind
from ...state.backend import COLUMN_STATE, BufferState
from ...state.key_groups import key_groups_of
from ...state.rows.arena import stored_schema, to_stored
from ..base import Operator
from .assembly import BatchRows, joined
from .keyslots import KeySlots
from .layout import JoinLayout
from .rowstore import FIRST_COMPACTION
from .versions import BORN, ENDS, KNOWN, TIME, VersionStore
from .waiting import Waiting

MAX_ROWS = 1 << 15
"""Records of one output batch."""

LEFT, RIGHT = 0, 1

_SEEN = pa.field("seen", pa.int64())
_USEFUL = pa.field("useful", pa.bool_())


class TemporalJoinOperator(Operator):
    """See the module."""

    def __init__(self, spec: TemporalJoinSpec) -> None:
        self._spec = spec
        self._keys = (spec.key, spec.right_key)
        self._waiting = Waiting()
        self._versions: VersionStore | None = None
        self._columns: JoinedColumns | None = None
        self._saved_now = False
        """Whether the buffers hold what is in a snapshot; they are emptied when work goes on."""

    def open(self) -> None:
        preload("operators.kernels.versions", "state.gather_kernels", *COLUMN_STATE)
        schemas = map(side_columns, self._spec.schemas)
        self._layout = JoinLayout(self.ctx.keyed_state, self._keys, *schemas)
        self._slots = self._new_slots()
        self._bind()
        if self.ctx.restored:
            self._restore()

    def process(self, batch: Batch, port: int = 0) -> None:
        self._forget_saved()
        try:
            if port == LEFT:
                self._wait(batch)
            else:
                self._version(batch)
        except StromError as error:
            raise OperatorError(
                self.ctx.name, self.ctx.subtask, f"temporal_join: {error}"
            ) from error

    def process_watermark(self, timestamp: int) -> None:
        self._forget_saved()
        due = self._waiting.due(timestamp)
        if due is not None:
            for start in range(0, len(due), MAX_ROWS):
                self._emit(due.slice(start, MAX_ROWS))
        if self._versions is not None:
            self._versions.watermark = max(self._versions.watermark, timestamp)
        self._tidy()
        self.out.emit_watermark(timestamp)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._layout.save()
        self._save_waiting()
        self._save_versions()
        self._saved_now = True

    # --- records -----------------------------------------------------------------------------

    def _wait(self, batch: Batch) -> None:
        data, kinds = self._layout.read(batch, LEFT)
        if kinds is not None and (kinds != RowKind.INSERT).any():
            raise TypeMismatchError(
                "the left side has records that are taken back (row kinds other than +I), which "
                "an as-of join cannot follow; only the versions may be a changelog"
            )
        self._bind()
        times = self._times(batch, "left")
        if self._spec.how == "inner":
            keys = self._keys[LEFT].key_columns(ColumnBatch(data))
            assert keys is not None
            if any(column.null_count for column in keys.columns):
                complete = np.flatnonzero(self._slots.slots(keys) >= 0)
                if not len(complete):
                    return
                data, times = ColumnBatch(data).take(complete).data, times[complete]
        self._waiting.add(ColumnBatch(data, times))

    def _version(self, batch: Batch) -> None:
        data, kinds = self._layout.read(batch, RIGHT)
        self._bind()
        assert self._versions is not None
        times = self._times(batch, "right")
        keys = self._keys[RIGHT].key_columns(ColumnBatch(data))
        assert keys is not None
        slots = self._slots.slots(keys)
        keep = slots >= 0
        ends = np.zeros(len(slots), dtype=np.bool_)
        if kinds is not None:  # what -U takes back, the +U behind it replaces
            keep &= kinds != RowKind.UPDATE_BEFORE
            ends = kinds == RowKind.DELETE
        if not keep.all():
            rows = np.flatnonzero(keep)
            data, slots = ColumnBatch(data).take(rows).data, slots[rows]
            times, ends = times[rows], ends[rows]
        born = np.full(len(slots), self.ctx.clock.now_ms())
        known: dict[str, npt.NDArray[Any]] = {TIME: times, BORN: born, ENDS: ends}
        self._versions.add(data, slots, known)

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
        keys = self._keys[LEFT].key_columns(due)
        assert keys is not None
        slots = self._slots.slots(keys)
        found = versions.find(slots, due.timestamps, self.ctx.clock.now_ms())
        rows = np.arange(len(due))
        if self._spec.how == "inner":
            rows = np.flatnonzero(found != NO_ROW)
            found = found[rows]
        if len(rows):
            assert self._columns is not None
            left = BatchRows(due.data)
            data = joined(self._columns, left, rows, versions.arena, found)
            self.out.emit(ColumnBatch(data, due.timestamps[rows]))

    # --- state -------------------------------------------------------------------------------

    def _bind(self) -> None:
        """Make what can be made of the columns known so far."""
        left, right = self._layout.sides
        if right is not None and self._versions is None:
            self._versions = VersionStore(right, self._spec.ttl_ms)
        if left is not None and right is not None and self._columns is None:
            self._columns = JoinedColumns.of(left, right, *self._spec.shared, self._spec.suffix)

    def _new_slots(self) -> KeySlots:
        return KeySlots(self.ctx.max_parallelism, f"temporal_join '{self.ctx.name}'")

    def _tidy(self) -> None:
        """Make the versions and the key index anew when they have doubled since the last time."""
        versions = self._versions
        if versions is None:
            return
        limit = FIRST_COMPACTION + 2 * versions.checked
        if len(versions) > limit or len(self._slots) > limit:
            now = self.ctx.clock.now_ms()
            self._rebuild(versions, np.flatnonzero(versions.useful(now)))

    def _rebuild(self, versions: VersionStore, rows: Int64s) -> None:
        arrays = versions.arena.gather(rows)
        data = pa.RecordBatch.from_arrays(arrays, schema=versions.arena.schema)
        self._slots = self._new_slots()
        self._versions = self._filled(data, versions.known(rows), versions.watermark)

    def _filled(
        self, data: pa.RecordBatch, known: dict[str, npt.NDArray[Any]], watermark: int
    ) -> VersionStore:
        schema = self._layout.sides[RIGHT]
        assert schema is not None
        new = VersionStore(schema, self._spec.ttl_ms)
        new.watermark = watermark
        keys = self._keys[RIGHT].key_columns(ColumnBatch(data))
        assert keys is not None
        new.add(data, self._slots.slots(keys), known)
        new.checked = len(new)
        return new

    def _save_waiting(self) -> None:
        buffer = self._buffer(LEFT)
        if buffer is None:
            return
        buffer.drop(0)
        for batch in self._waiting.all():
            keys = self._keys[LEFT].key_columns(batch)
            assert keys is not None
            groups = key_groups_of(widened_keys(keys), self.ctx.max_parallelism)
            stored = to_stored(batch.data).columns
            rows = [pa.array(batch.timestamps), *stored]
            buffer.append(0, pa.RecordBatch.from_arrays(rows, schema=self._saved(LEFT)), groups)

    def _save_versions(self) -> None:
        buffer, versions = self._buffer(RIGHT), self._versions
        if buffer is None or versions is None:
            return
        useful = versions.useful(self.ctx.clock.now_ms())
        known = versions.known(np.arange(len(versions)))
        columns = [pa.array(useful), *(pa.array(known[field.name]) for field in KNOWN)]
        columns += versions.arena.stored()
        groups = self._slots.groups(versions.slots.used)
        buffer.replace(0, pa.Table.from_arrays(columns, schema=self._saved(RIGHT)), groups)

    def _forget_saved(self) -> None:
        """A snapshot is taken; the buffers would keep what is replaced alive."""
        if self._saved_now:
            for buffer in (self._buffer(LEFT), self._buffer(RIGHT)):
                if buffer is not None:
                    buffer.drop(0)
            self._saved_now = False

    def _restore(self) -> None:
        left, right = self._buffer(LEFT), self._buffer(RIGHT)
        if left is not None:
            table, _ = left.get(0)
            if table.num_rows:
                data = _rows(table, 1, self._layout.sides[LEFT])
                times = numpy_of(table.column(_SEEN.name))
                self._waiting.add(ColumnBatch(data, times))
            left.drop(0)
        if right is not None:
            table, _ = right.get(0)
            if table.num_rows:
                table = table.filter(table.column(_USEFUL.name))
                data = _rows(table, 1 + len(KNOWN), self._layout.sides[RIGHT])
                names = [field.name for field in KNOWN]
                known = {n: numpy_of(table.column(n)) for n in names}
                watermark = VersionStore(data.schema, None).watermark
                self._versions = self._filled(data, known, watermark)
            right.drop(0)

    def _buffer(self, port: int) -> BufferState | None:
        if self._layout.sides[port] is None:
            return None
        return self.ctx.keyed_state.buffer(("left", "right")[port], self._saved(port))

    def _saved(self, port: int) -> pa.Schema:
        """The columns of a side in state, by position, behind what is known of each row."""
        kinds = stored_schema(self._layout.sides[port] or pa.schema([])).types
        known = (_SEEN,) if port == LEFT else (_USEFUL, *KNOWN)
        return pa.schema([*known, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])


def _rows(table: pa.Table, known: int, schema: pa.Schema | None) -> pa.RecordBatch:
    """The columns behind the first `known`, in the types of `schema`."""
    assert schema is not None
    pairs = zip(table.columns[known:], schema.types, strict=True)
    arrays = [column.combine_chunks().cast(kind) for column, kind in pairs]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
