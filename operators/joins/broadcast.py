"""Broadcast join: records with the rows of a bounded stream that every subtask gets whole.

Until the table has ended, records are held back, and so is the watermark: records that come out
late would be lost downstream. Then every batch is joined at once.

Checkpoints: the table, or what has come of it, is the same in every subtask when a barrier is there
(each row is sent to all of them before or after it), so subtask 0 alone writes it, into a union
list, of which every subtask gets a copy at a restore, at any parallelism. Records held back are a
split list: any subtask may join them. After a restore the table's source ends again, with the
records after its position or none, and with it the holding back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import pyarrow as pa

from ...api.specs.joins import BroadcastJoinSpec
from ...core.arrays import numpy_of
from ...core.batch import Batch, ColumnBatch, compatible, concat
from ...core.batch_data import columns_data, columns_of
from ...core.elements import MIN_TIMESTAMP
from ...core.errors import OperatorError, StromError
from ...core.joined_columns import side_columns
from ...core.preload import preload
from ...core.row_kind import RowKind, retracts, split_kinds, with_kinds
from ...state.backend import COLUMN_STATE
from ...state.column_migration import migrated_records
from ...state.descriptors import ListStateDescriptor
from ..base import Operator, Steps, emit_each
from ..contents import content_codes
from .layout import as_columns, fitted
from .tables import KERNELS, TableJoin, TableRows

TABLE = 1
"""Port of the table."""

TIME = "__time"

PIECE = 8_192
"""Rows of an item of state: a restore shares items out."""


class BroadcastJoinOperator(Operator):
    """See the module. `_held` is None once the table is complete."""

    def __init__(self, spec: BroadcastJoinSpec) -> None:
        self._spec = spec
        self._join = TableJoin(spec.how, spec.left_on.names, spec.right_on.names, spec.suffix)
        self._parts: list[ColumnBatch] = []
        """The table so far, with row kinds if it has any."""
        self._held: list[ColumnBatch] | None = []
        self._rows: TableRows | None = None
        """The complete table; None also if it is empty and its columns are not known."""
        self._watermark = MIN_TIMESTAMP

    def open(self) -> None:
        preload(*KERNELS, *COLUMN_STATE)
        state = self.ctx.operator_state
        table = state.get_union_list_state(ListStateDescriptor("table"))
        held = state.get_list_state(ListStateDescriptor("held"))
        self._parts = [self._restored(data, TABLE) for data in table.get()]
        self._held = [self._restored(data, 0) for data in held.get()]
        for restored in (table, held):
            restored.clear()

    def process(self, batch: Batch, port: int = 0) -> Steps:
        try:
            if port == TABLE:
                _gather(self._parts, ColumnBatch(self._fitted(batch, TABLE)))
                return
            records = ColumnBatch(self._fitted(batch, 0), batch.timestamps)
            if self._held is None:
                yield from self._emit(records)
            else:
                _gather(self._held, records)
        except StromError as error:
            raise self._error(error) from error

    def process_watermark(self, timestamp: int) -> None:
        self._watermark = timestamp
        if self._held is None:
            self.out.emit_watermark(timestamp)

    def end_input(self, port: int) -> Steps:
        if port != TABLE or self._held is None:
            return
        held, self._held = self._held, None
        try:
            self._complete()
            for records in held:
                yield from self._emit(records)
        except StromError as error:
            raise self._error(error) from error
        if self._watermark > MIN_TIMESTAMP:
            self.out.emit_watermark(self._watermark)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Both are written beside the task's thread, the table by one subtask for all."""
        parts, held = list(self._parts), list(self._held or ())
        state = self.ctx.operator_state
        if self.ctx.subtask == 0:
            state.set_deferred("table", lambda: _encoded(parts))
        state.set_deferred("held", lambda: _encoded(held))

    # --- inside ------------------------------------------------------------------------------

    def _restored(self, stored: bytes, port: int) -> ColumnBatch:
        """Records of state, as the program says that they are now."""
        side = ("left", "right")[port]
        what = f"broadcast_join '{self.ctx.name}', subtask {self.ctx.subtask}, state '{side}'"
        said = self.ctx.operator_state.migration(side)
        return _decoded(migrated_records(columns_of(stored), said, what))

    def _fitted(self, batch: Batch, port: int) -> pa.RecordBatch:
        """The columns that are known of the side, if any are, and the row kinds."""
        schema = self._spec.schemas[port]
        known = None if schema is None else side_columns(schema)
        data, kinds = split_kinds(as_columns(batch, known).data)
        wanted = side_columns(data.schema) if known is None else known
        data = fitted(data, wanted, ("left", "right")[port])
        return data if kinds is None else with_kinds(data, kinds)

    def _emit(self, records: ColumnBatch) -> Steps:
        if self._rows is not None:
            self._rows.forget_unknown()
            yield from emit_each(self.out, self._join.join(records, self._rows))
        elif self._spec.how == "anti":
            self.out.emit(records)

    def _complete(self) -> None:
        """Make the table from its parts, which are state as before, in one piece."""
        schema = self._spec.schemas[TABLE]
        columns = None if schema is None else side_columns(schema)
        if self._parts:
            parts = [part.data for part in self._parts]
            columns = split_kinds(parts[0])[0].schema if columns is None else columns
            whole = pa.Table.from_batches([_current(parts, columns)]).combine_chunks()
            self._parts = [ColumnBatch(part) for part in whole.to_batches()]
        if columns is not None:
            what = f"broadcast_join '{self.ctx.name}'"
            self._rows = TableRows(columns, self._spec.right_on.names, what)
            for part in self._parts:
                self._rows.add(part.data)

    def _error(self, error: StromError) -> OperatorError:
        return OperatorError(self.ctx.name, self.ctx.subtask, f"broadcast_join: {error}")


def _current(parts: list[pa.RecordBatch], columns: pa.Schema) -> pa.RecordBatch:
    """The rows that a changelog has left: of rows with equal contents, as many as were added more
    often than taken away."""
    pieces, kinds = [], []
    for part in parts:
        data, found = split_kinds(part)
        pieces.append(fitted(data, columns, "right"))
        kinds.append(np.zeros(len(data), np.int8) if found is None else found)
    whole, all_kinds = pa.concat_batches(pieces), np.concatenate(kinds)
    if not (all_kinds != RowKind.INSERT).any():
        return whole
    taking = retracts(all_kinds)
    content = content_codes(whole.columns)
    taken = np.bincount(content[taking], minlength=int(content.max()) + 1)
    added = np.flatnonzero(~taking)
    order = added[np.argsort(content[added], kind="stable")]
    sorted_content = content[order]
    rank = np.arange(len(order)) - np.searchsorted(sorted_content, sorted_content)
    rows = np.sort(order[rank >= taken[sorted_content]])
    return ColumnBatch(whole).take(rows).data


def _gather(batches: list[ColumnBatch], batch: ColumnBatch) -> None:
    """Put it behind the others. Small ones become one, so that there are few of them however many
    came: every snapshot encodes them all. A row is copied about log2(`PIECE`) times."""
    batches.append(batch)
    while len(batches) > 1 and _belong_together(*batches[-2:]):
        batches[-2:] = [concat(batches[-2:])]  # type: ignore[list-item]


def _belong_together(first: ColumnBatch, second: ColumnBatch) -> bool:
    return (
        max(len(first), len(second)) < PIECE
        and len(first) <= 2 * len(second)
        and compatible(first, second)
    )


def _encoded(batches: list[ColumnBatch]) -> list[bytes]:
    """As Arrow streams of about `PIECE` rows, the times as a column behind the others."""
    return [
        columns_data(piece)
        for _, alike in groupby(map(_with_times, batches), key=lambda data: data.schema)
        for piece in _pieces(list(alike))
    ]


def _with_times(batch: ColumnBatch) -> pa.RecordBatch:
    data = batch.data
    if batch.timestamps is None:
        return data
    arrays = [*data.columns, pa.array(batch.timestamps)]
    return pa.RecordBatch.from_arrays(arrays, schema=data.schema.append(pa.field(TIME, pa.int64())))


def _pieces(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Neighbours in one, until there are `PIECE` rows or more."""
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        gathered.append(batch)
        rows += len(batch)
        if rows >= PIECE:
            yield pa.concat_batches(gathered)
            gathered, rows = [], 0
    if gathered:
        yield pa.concat_batches(gathered)


def _decoded(data: pa.RecordBatch) -> ColumnBatch:
    if TIME not in data.schema.names:
        return ColumnBatch(data)
    times = numpy_of(data.column(TIME))
    return ColumnBatch(data.drop_columns([TIME]), times)
