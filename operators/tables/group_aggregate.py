"""Running aggregates per key over the whole stream, as a changelog: SQL's GROUP BY.

A batch is folded at once; per key that it changed, the results before and after are compared, and
their difference comes out: +I, -U and +U, or -D when no record is left. So a key that changes a
thousand times within a batch costs one update. Where input is a changelog, records are taken back.

Records may have been combined ahead of the exchange (`operators.combining.groups`): a batch of
partial aggregates, which says so itself, is merged as a batch of records is folded.

With a time to live a key without records for so long is forgotten. Nothing is taken back for it,
and of a key without records nothing can be: such retractions are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...api.specs.tables import GroupAggregateSpec
from ...core.arrays import Bools, Int8s, Int64s
from ...core.batch import Batch, ColumnBatch, take_column
from ...core.constants import RETRACTIONS_SKIPPED
from ...core.errors import TypeMismatchError
from ...core.partials import ROWS_COLUMN, key_part, layout_of
from ...core.row_kind import ROW_KIND, RowKind
from ...state.backend import AccColumn
from ..base import Steps, Work
from ..columns import NO_NULLS, fit_keys, plain_values
from ..contents import same_rows
from ..key_expiry import NEVER, KeyExpiry
from ..key_turns import TurnTaking
from .aside import TURN, aside, layout_of_turns, records_of_turns
from .base import Layout, Records, TableOperator, require_distinct
from .combined import partials_of, seen_of
from .group_parts import GroupParts
from .group_values import too_much_taken
from .grown import fill_to

ROWS, SEEN = "rows", "seen"
"""Accumulator columns: records of the group; when its last one came, only with a time to live."""

PORTION = 1 << 18
"""Slots that a step looks at when no batch comes."""


class GroupAggregateOperator(TableOperator):
    """See the module. A group is there while it has records."""

    kernels = (
        "operators.kernels.values",
        "state.seen_kernels",
        "state.block_kernels",
        "operators.kernels.scatter",
        "operators.kernels.moments",
        "operators.kernels.expiry",
        "operators.aggregates.flat",
    )

    def __init__(self, spec: GroupAggregateSpec) -> None:
        super().__init__(spec.key)
        self._spec = spec
        self._names = [name for name, _ in spec.aggregates]
        self._retract = spec.changelog == "retract"
        self._life = spec.ttl
        self._seen = SEEN if spec.ttl is None else spec.ttl.column(SEEN)
        self._expiry: KeyExpiry | None = None
        self.lenient = spec.ttl is not None
        """Whether retractions from groups without records are skipped."""

    def bind(self, layout: Layout) -> None:
        self._schema = layout.keys
        require_distinct(self.ctx.name, [*layout.keys.names, *self._names, ROW_KIND])
        aggregates = [aggregate for _, aggregate in self._spec.aggregates]
        lasting = not layout.changelog and self._life is None
        self._parts = GroupParts(aggregates, layout.columns, layout.changelog, lasting)
        self._columns = accumulators(self._parts)
        columns, life = self._columns, self._life
        if life is not None:
            columns = [*columns, AccColumn(self._seen, "int64", NEVER)]
        state, values = self.ctx.keyed_state, self._parts.values()
        cold = self._parts.ask(state, layout.keys)
        table = state.table("groups", layout.keys, columns, values=values, cold=cold)
        self._table = table.table()
        self._parts.own(self._table)
        self._at = np.empty(0, dtype=np.int64)
        """Scratch: a row of the batch per group."""
        self._awake = False
        """Whether a time to look for forgotten groups is set; it is while there are any."""
        self._bound = layout
        if life is not None:
            self._expiry = KeyExpiry(life, state.time, self.ctx.name, self._forget_some)
            table.expire(self._seen, self._expiry.gone, self._parts.forget_keys)
            self._turns = TurnTaking(life.ms)
            if len(self._table) and not life.event:
                self._wake_in(life.ms)

    def update(self, records: Records) -> None:
        slots = self._table.slots(records.keys)
        self._parts.grow(len(self._table))
        if self._expiry is None:
            self._update(records, slots)
        else:
            self._update_expiring(records, slots, self._expiry)
        self._tidy()

    def process(self, batch: Batch, port: int = 0) -> Work:
        if isinstance(batch, ColumnBatch):
            layout = layout_of(batch.data.schema)
            if layout is not None:
                self._merge(batch, Layout.of(layout), layout)
                return None
        return super().process(batch, port)

    def _merge(self, batch: ColumnBatch, found: Layout, described: pa.Schema) -> None:
        """A batch of partial aggregates of records of the layout `found`."""
        bound = self._bound_to(found)
        self._check(bound, found.columns, batch.timestamps is not None)
        if bound.changelog:
            raise TypeMismatchError(
                f"operator '{self.ctx.name}': its state is that of a changelog, its records were "
                "combined ahead of the exchange, as none of a changelog are: all streams united "
                "before it must be changelogs, or none; if it goes on from a job that had one, set "
                "strom.local-combining to false"
            )
        keys = fit_keys(key_part(batch.data, described), bound.keys)
        slots = self._table.slots(keys)
        self._parts.grow(len(self._table))
        data, stamps = batch.data, batch.timestamps if bound.stamped else None

        def merge() -> None:
            from ..kernels import scatter

            rows = plain_values(data.column(ROWS_COLUMN), "int64")
            scatter.add_into(slots, rows, self._table.column(ROWS))
            partials = partials_of(data, self._parts.columns())
            self._parts.merge(self._table, slots, partials, seen_of(data, slots, self._parts.kept))

        touched = self._touched(slots)
        self._parts.recall(touched[0])
        self._change(keys, stamps, touched, merge)
        self._tidy()

    def _update(self, records: Records, slots: Int64s) -> None:
        touched = self._touched(slots)
        self._parts.recall(touched[0])
        if self.lenient and records.retracted is not None and records.retracted.any():
            rows = self._sound(slots, touched[0], records.retracted)
            if len(rows) < len(slots):
                if len(rows):
                    self._update(records.take(rows), slots[rows])
                return
        self._change(records.keys, records.stamps, touched, lambda: self._fold(records, slots))

    def _change(
        self,
        keys_of_rows: pa.RecordBatch,
        stamps_of_rows: Int64s | None,
        rows_of_groups: tuple[Int64s, Int64s, Int64s],
        fold: Callable[[], None],
    ) -> None:
        """Send what `fold` changes of these groups, which are as `_touched` gives them."""
        table = self._table
        touched, first, last = rows_of_groups
        rows_before = table.column(ROWS)[touched]
        before = self._parts.read(table, touched, rows_before)
        fold()
        self._parts.settle(touched)
        rows_after = table.column(ROWS)[touched]
        if len(rows_after) and rows_after.min() < 0:
            raise too_much_taken(self.ctx.name, self.ctx.subtask, "a record")
        after = self._parts.read(table, touched, rows_after)
        keys = [take_column(column, pa.array(first)) for column in keys_of_rows.columns]
        stamps = None if stamps_of_rows is None else stamps_of_rows[last]
        self._emit(keys, (rows_before > 0, before), (rows_after > 0, after), stamps)
        empty = touched[rows_after <= 0]
        if self._expiry is None:
            self._let_go(empty)
        else:
            self._reset(empty)

    def _update_expiring(self, records: Records, slots: Int64s, expiry: KeyExpiry) -> None:
        """Groups that had no record for so long start anew, wherever in the batch they do."""
        if not self._awake and not expiry.times.event:
            self._wake_in(expiry.ttl)
        times = expiry.times.of(records.stamps, len(records))
        turns = self._turns.take(slots, times, self._table.column(self._seen))
        self._reset(turns.stale)
        if turns.of_rows is None:
            self._update(records, slots)
            return
        first, between, last = turns.parts()
        self._update(records.take(first), slots[first])
        if len(between):
            brief = _Turns(self, layout_of_turns(self._bound))
            brief.update(records_of_turns(records, turns.numbers(slots), between))
        self._reset(np.unique(slots[last]))
        self._update(records.take(last), slots[last])

    def _sound(self, slots: Int64s, touched: Int64s, taken: Bools) -> Int64s:
        """All rows but those that take a record away from a group that has none when they come: it
        was forgotten."""
        from ..kernels.expiry import find_unheld

        self._at[touched] = np.arange(len(touched))
        counts = self._table.column(ROWS)[touched]
        unheld = np.empty(len(slots), dtype=np.bool_)
        found = find_unheld(self._at[slots], taken, counts, unheld)
        if found:
            self.ctx.metrics.count(RETRACTIONS_SKIPPED, found)
        return np.flatnonzero(~unheld)

    def _forget_some(self, records: int) -> None:
        assert self._expiry is not None
        stamps = self._table.column(self._seen)[: len(self._table)]
        self._let_go(self._expiry.some(stamps, records))
        self._tidy()

    def on_processing_time(self, now_ms: int) -> Work:
        """Forget the groups whose time is over that no batch has come across."""
        if self._expiry is None or self._expiry.times.event:
            return None
        return self._forget_all(self._expiry, now_ms)

    def _forget_all(self, expiry: KeyExpiry, now_ms: int) -> Steps:
        """Some slots a step: no group comes or goes between, for nothing else is done then."""
        table = self._table
        for start in range(0, len(table), PORTION):
            if start:
                yield None
            stamps = table.column(self._seen)[start : min(start + PORTION, len(table))]
            self._let_go(start + np.flatnonzero(expiry.gone(stamps)))
        self._tidy()
        self._awake = bool((table.column(self._seen)[: len(table)] != NEVER).any())
        if self._awake:
            self.ctx.wake_at(now_ms + expiry.ttl)

    def _let_go(self, slots: Int64s) -> None:
        """These groups are no more."""
        if len(slots):
            self._parts.forget(slots)
            self._table.release(slots)

    def _tidy(self) -> None:
        """When groups that are no more are the most, the others get new numbers."""
        self._parts.tidy()
        moved = self._table.tidy()
        if moved is not None:
            self._parts.keep(np.flatnonzero(moved >= 0))
            if self._expiry is not None:
                self._expiry.begin_again()

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
        if self._parts.fold(table, slots, arrays, numbers, sign) and not self.lenient:
            raise too_much_taken(self.ctx.name, self.ctx.subtask, "a value")

    def _wake_in(self, ttl: int) -> None:
        """Have the task call once the groups that are here now can have gone."""
        self._awake = True
        self.ctx.wake_at(self.ctx.clock.now_ms() + ttl)

    def _reset(self, slots: Int64s) -> None:
        """These groups, of the batch, start anew; their stamps are written already."""
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
        changed = ~same_rows(before[1], after[1])
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


def accumulators(parts: GroupParts) -> list[AccColumn]:
    """The columns of a table of groups that has these parts."""
    return [AccColumn(ROWS, "int64"), *parts.columns()]


class _Turns(GroupAggregateOperator):
    """Groups that begin and end within a batch of `operator`."""

    def __init__(self, operator: GroupAggregateOperator, layout: Layout) -> None:
        super().__init__(replace(operator._spec, ttl=None))
        self.lenient = True
        self.setup(aside(operator.ctx), operator.out)
        self.open()
        self.bind(layout)

    def emit(self, data: pa.RecordBatch, kinds: Int8s | None, stamps: Int64s | None) -> None:
        super().emit(data.drop_columns([TURN]), kinds, stamps)
