"""Running aggregates per key over the whole stream, as a changelog: SQL's GROUP BY.

A batch is folded at once; per key that it changed, the results before and after are compared, and
their difference comes out: +I, -U and +U, or -D when no record is left. So a key that changes a
thousand times within a batch costs one update. Where input is a changelog, records are taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...api.specs.tables import GroupAggregateSpec
from ...core.arrays import Bools, Int64s, numpy_of
from ...core.batch import take_column
from ...core.row_kind import ROW_KIND, RowKind
from ...state.backend import AccColumn
from ...state.column_index import storage_type
from ..columns import NO_NULLS
from .base import Layout, Records, TableOperator, require_distinct
from .group_parts import GroupParts
from .group_values import too_much_taken
from .grown import fill_to

ROWS, SEEN = "rows", "seen"
"""Accumulator columns: records of the group; when its last one came (only with a ttl)."""


class GroupAggregateOperator(TableOperator):
    """See the module. A group is there while it has records."""

    kernels = (
        "operators.kernels.values",
        "state.seen_kernels",
        "state.block_kernels",
        "operators.kernels.scatter",
        "operators.kernels.moments",
        "operators.aggregates.flat",
    )

    def __init__(self, spec: GroupAggregateSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec
        self._names = [name for name, _ in spec.aggregates]
        self._retract = spec.changelog == "retract"
        self._ttl = spec.ttl_ms

    def bind(self, layout: Layout) -> None:
        self._schema = layout.keys
        require_distinct(self.ctx.name, [*layout.keys.names, *self._names, ROW_KIND])
        aggregates = [aggregate for _, aggregate in self._spec.aggregates]
        lasting = not layout.changelog and self._ttl is None
        self._parts = GroupParts(aggregates, layout.columns, layout.changelog, lasting)
        self._columns = [AccColumn(ROWS, "int64"), *self._parts.columns()]
        if self._ttl is not None:
            self._columns.append(AccColumn(SEEN, "int64", -1))
        state = self.ctx.keyed_state
        self._table = state.table("groups", layout.keys, self._columns).table(0)
        self._parts.bind(state, layout.keys, self._table)
        self._at = np.empty(0, dtype=np.int64)
        """Scratch: a row of the batch per group."""
        self._awake = False
        """Whether a time to look for forgotten groups is set."""

    def update(self, records: Records) -> None:
        table = self._table
        slots = table.slots(records.keys)
        self._parts.grow(len(table))
        touched, first, last = self._touched(slots)
        if self._ttl is not None:
            self._expire(touched, self._ttl)
        rows_before = table.column(ROWS)[touched]
        before = self._parts.read(table, touched, rows_before)
        self._fold(records, slots)
        self._parts.settle(touched)
        rows_after = table.column(ROWS)[touched]
        if len(rows_after) and rows_after.min() < 0:
            self._below(touched, rows_after)
            rows_after = table.column(ROWS)[touched]
        after = self._parts.read(table, touched, rows_after)
        keys = [take_column(column, pa.array(first)) for column in records.keys.columns]
        stamps = None if records.stamps is None else records.stamps[last]
        self._emit(keys, (rows_before > 0, before), (rows_after > 0, after), stamps)
        self._bury(touched[rows_after <= 0])

    def on_processing_time(self, now_ms: int) -> None:
        """Forget the groups whose time is over."""
        if self._layout is not None and self._ttl is not None:
            live = np.flatnonzero(self._table.column(ROWS)[: len(self._table)] > 0)
            old = self._table.column(SEEN)[live] <= now_ms - self._ttl
            self._bury(live[old])
            self._awake = not old.all()
            if self._awake:
                self.ctx.wake_at(now_ms + self._ttl)

    def _bury(self, slots: Int64s) -> None:
        """These groups are no more. When those are the most, the others get new numbers."""
        if len(slots):
            self._parts.forget(slots)
            self._table.release(slots)
            moved = self._table.tidy()
            if moved is not None:
                self._parts.keep(np.flatnonzero(moved >= 0))

    def _touched(self, slots: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """The batch's groups by first appearance; the first and the last row of each."""
        self._at = fill_to(self._at, len(self._table), 0)
        rows = np.arange(len(slots))
        self._at[slots[::-1]] = rows[::-1]
        first = np.flatnonzero(self._at[slots] == rows)
        touched = slots[first]
        self._at[slots] = rows
        return touched, first, self._at[touched]

    def _fold(self, records: Records, slots: Int64s) -> None:
        arrays = self._parts.inputs(records.data)
        numbers = np.arange(self._progress.number, self._progress.number + len(slots))
        self._progress.number += len(slots)
        taken = records.retracted
        if taken is None or not taken.any():
            self._fold_some(slots, arrays, numbers, 1)
            return
        for mask, sign in ((~taken, 1), (taken, -1)):
            rows = np.flatnonzero(mask)
            if len(rows):
                some = [take_column(array, pa.array(rows)) for array in arrays]
                self._fold_some(slots[rows], some, numbers[rows], sign)

    def _fold_some(self, slots: Int64s, arrays: list[pa.Array], numbers: Int64s, sign: int) -> None:
        from ..kernels import moments, scatter

        table = self._table
        count = scatter.count_into if sign > 0 else moments.count_out
        count(slots, NO_NULLS, table.column(ROWS))
        if self._ttl is not None:
            table.column(SEEN)[slots] = self.ctx.clock.now_ms()
        if self._parts.fold(table, slots, arrays, numbers, sign) and self._ttl is None:
            raise too_much_taken(self.ctx.name, self.ctx.subtask, "a value")

    def _below(self, touched: Int64s, rows: Int64s) -> None:
        """Groups with less than no records: an error, unless their records were forgotten."""
        if self._ttl is None:
            raise too_much_taken(self.ctx.name, self.ctx.subtask, "a record")
        self._reset(touched[rows < 0])

    def _expire(self, touched: Int64s, ttl: int) -> None:
        """Groups that had no record for `ttl` start anew."""
        now = self.ctx.clock.now_ms()
        if not self._awake:
            self._awake = True
            self.ctx.wake_at(now + ttl)
        seen = self._table.column(SEEN)[touched]
        self._reset(touched[(seen >= 0) & (seen <= now - ttl)])

    def _reset(self, slots: Int64s) -> None:
        """These groups, of the batch, start anew."""
        if len(slots):
            for column in self._columns:
                self._table.column(column.name)[slots] = column.initial
            self._parts.forget(slots)

    def _emit(
        self,
        keys: list[pa.Array],
        before: tuple[Bools, list[pa.Array]],
        after: tuple[Bools, list[pa.Array]],
        stamps: Int64s | None,
    ) -> None:
        had, has = before[0], after[0]
        changed = _changed(before[1], after[1])
        old = had & (~has | (changed if self._retract else np.False_))
        new = has & (~had | changed)
        shown = np.stack([old, new], axis=1).reshape(-1)
        if not shown.any():
            return
        kinds = np.empty((len(had), 2), dtype=np.int8)
        kinds[:, 0] = np.where(has, RowKind.UPDATE_BEFORE, RowKind.DELETE)
        kinds[:, 1] = np.where(had, RowKind.UPDATE_AFTER, RowKind.INSERT)
        groups = np.arange(len(had))
        which = np.stack([groups, groups + len(had)], axis=1).reshape(-1)[shown]
        at, owner = pa.array(which), which % len(had)
        columns = [take_column(column, pa.array(owner)) for column in keys]
        pairs = zip(before[1], after[1], strict=True)
        columns += [take_column(pa.concat_arrays(pair), at) for pair in pairs]
        data = pa.RecordBatch.from_arrays(columns, names=[*self._schema.names, *self._names])
        self.emit(data, kinds.reshape(-1)[shown], None if stamps is None else stamps[owner])


def _changed(before: Sequence[pa.Array], after: Sequence[pa.Array]) -> Bools:
    """Which groups have another value in any column. Nulls are equal, and NaN are."""
    changed: npt.NDArray[np.bool_] = np.zeros(len(before[0]), dtype=np.bool_)
    for old, new in zip(before, after, strict=True):
        changed |= _differs(old, new)
    return changed


def _differs(old: pa.Array, new: pa.Array) -> Bools:
    differs: Bools
    if pa.types.is_floating(old.type):
        old, new = (a.cast(pa.float64()) for a in (old, new))
        left, right = (numpy_of(a.fill_null(0.0)) for a in (old, new))
        differs = (left != right) & ~(np.isnan(left) & np.isnan(right))
    else:
        plain = storage_type(old.type)  # views cannot be compared
        old, new = (a if a.type == plain else a.cast(plain) for a in (old, new))
        differs = numpy_of(pc.not_equal(old, new).fill_null(False))
    if old.null_count or new.null_count:
        valid = [numpy_of(a.is_valid()) for a in (old, new)]
        differs = differs | (valid[0] != valid[1])
    return differs
