"""Partial aggregates of running groups, ahead of the exchange: one per group and batch.

Nothing is held back, and nothing is state: what a batch adds to each of its groups is sent on at
once, with those values of distinct counts that were not sent before. So the work on each record,
looking up its group and its values, is shared by all senders, also where there is one group only,
and the operator behind the exchange sees what is new. What it emits is grained as without: once a
batch and group that changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import Batch, ColumnBatch, take_column
from ...core.keys import ColumnKey
from ...core.partials import partial_schema
from ...core.preload import preload
from ...core.row_kind import ROW_KIND
from ...core.value_types import empty_batch
from ...plan.combining_groups import CombineGroupsSpec, uncombined_groups
from ...state.backend import COLUMN_STATE, AccColumn
from ...state.table_state import MemoryTableState
from ..aggregates.inputs import AggregateInputs
from ..base import Operator
from ..columns import NO_NULLS
from ..tables.base import Layout, bare
from ..tables.combined import MOST_VIEWS, value_columns, value_fields
from ..tables.group_aggregate import ROWS, accumulators
from ..tables.group_parts import GroupParts
from ..tables.grown import fill_to
from .sent_values import SentValues
from .worth import Worth

MOST_SENT_ON = 0.25
"""Share of groups and values among a stretch of records above which combining does not pay: what is
sent for each of them is more than a record."""

TABLE = 0
"""The namespace of the groups."""


@dataclass
class _Bound:
    """What is made for the types of the first batch."""

    layout: Layout
    records: pa.Schema
    """Of the batches that are combined."""
    schema: pa.Schema
    """Of the batches that are sent."""
    parts: GroupParts
    columns: list[AccColumn]
    groups: MemoryTableState
    sent: list[SentValues]


class LocalGroupsOperator(Operator):
    """See the module."""

    def __init__(self, spec: CombineGroupsSpec) -> None:
        self._spec = spec.groups
        self._worth = Worth(most_new=MOST_SENT_ON)
        self._bound: _Bound | None = None
        self._off = False
        """Whether there is no combining: of a single sender, or by the types of the first batch;
        final."""
        self._at: Int64s = np.empty(0, dtype=np.int64)
        """Scratch: a row of the batch per group."""

    @property
    def combines(self) -> bool | None:
        """Whether the types allow it; None before the first columns."""
        return None if self._bound is None and not self._off else not self._off

    def open(self) -> None:
        self._off = self.ctx.parallelism == 1
        if self._off:
            return
        preload(
            *COLUMN_STATE,
            "state.seen_kernels",
            "operators.kernels.scatter",
            "operators.kernels.moments",
            "operators.aggregates.flat",
        )

    def process(self, batch: Batch, port: int = 0) -> None:
        if self._off or self._worth.passes(len(batch)) or not isinstance(batch, ColumnBatch):
            self.out.emit(batch)
            return
        found = self._keys_and_inputs(batch)
        if found is None:
            self.out.emit(batch)
        else:
            self._combine(batch, *found)

    def _keys_and_inputs(
        self, batch: ColumnBatch
    ) -> tuple[_Bound, pa.RecordBatch, list[pa.Array]] | None:
        """Key columns and what is folded; None where this batch is not to be combined."""
        if ROW_KIND in batch.data.schema.names:
            return None
        try:
            keys = self._spec.key.key_columns(batch)
            if keys is None:
                return None
            bound = self._bound or self._bind(batch, keys.schema)
            same = (
                bound is not None
                and bare(batch.data.schema).equals(bound.records)
                and bare(keys.schema).equals(bound.layout.keys)
                and (batch.timestamps is not None) == bound.layout.stamped
            )
            return (bound, keys, bound.parts.inputs(batch.data)) if bound and same else None
        except Exception:
            return None  # the operator behind will meet the same error, and say so in its name

    def _bind(self, batch: ColumnBatch, keys: pa.Schema) -> _Bound | None:
        records = bare(batch.data.schema)
        stamped, named = batch.timestamps is not None, isinstance(self._spec.key, ColumnKey)
        layout = Layout(bare(keys), records, stamped, changelog=False, named=named)
        aggregates = [aggregate for _, aggregate in self._spec.aggregates]
        inputs = AggregateInputs(aggregates).of(ColumnBatch(empty_batch(records)))
        kinds = [array.type for array in inputs]
        self._off = uncombined_groups(aggregates, kinds) is not None
        if self._off:
            return None
        parts = GroupParts(aggregates, records, changelog=False, lasting=True)
        columns, kept = accumulators(parts), parts.kept
        described = [(column.name, column.dtype) for column in columns]
        schema = partial_schema(layout.to_schema(), described, value_fields(kept))
        clash = len(set(schema.names)) < len(schema.names)  # a key is called as another column is
        many = any(views > MOST_VIEWS for _, views in kept)
        self._off = clash or many or not parts.combinable
        if self._off:
            return None
        groups = MemoryTableState("groups", layout.keys, columns)
        sent = [SentValues(kind, views) for kind, views in kept]
        self._bound = _Bound(layout, records, schema, parts, columns, groups, sent)
        return self._bound

    def _combine(
        self, batch: ColumnBatch, bound: _Bound, keys: pa.RecordBatch, inputs: list[pa.Array]
    ) -> None:
        from ..kernels import scatter

        table = bound.groups.table(TABLE)
        slots = table.slots(keys)
        first, last, groups = self._groups(slots, len(table))
        touched = slots[first]
        scatter.count_into(slots, NO_NULLS, table.column(ROWS))
        bound.parts.fold_numbers(table, slots, inputs, _NO_NUMBERS, 1)
        seen = bound.parts.seen(inputs)
        fresh = [one.fresh(slots, some) for one, some in zip(bound.sent, seen, strict=True)]
        columns = [take_column(column, pa.array(first)) for column in keys.columns]
        for column in bound.columns:
            held = table.column(column.name)
            columns.append(pa.array(held[touched]))
            held[touched] = column.initial
        columns += value_columns(seen, fresh, groups, len(touched))
        data = pa.RecordBatch.from_arrays(columns, schema=bound.schema)
        stamps = None if batch.timestamps is None else batch.timestamps[last]
        new = len(touched) + sum(int(np.count_nonzero(bits)) for bits in fresh)
        pays = self._worth.combined(len(batch), new, len(table))
        if not pays or any(one.full for one in bound.sent):
            self._forget(bound)
        self.out.emit(ColumnBatch(data, stamps))

    def _groups(self, slots: Int64s, count: int) -> tuple[Int64s, Int64s, Int64s]:
        """The first and the last row of each group of the batch, by first appearance; and per row
        its group's number among these."""
        self._at = fill_to(self._at, count, 0)
        rows = np.arange(len(slots))
        self._at[slots[::-1]] = rows[::-1]
        first = np.flatnonzero(self._at[slots] == rows)
        touched = slots[first]
        self._at[slots] = rows
        last = self._at[touched]
        self._at[touched] = np.arange(len(touched))
        return first, last, self._at[slots]

    def _forget(self, bound: _Bound) -> None:
        """The groups, and what was sent of them."""
        bound.groups.drop(TABLE)
        for one in bound.sent:
            one.forget()


_NO_NUMBERS: Int64s = np.empty(0, dtype=np.int64)
"""No sequence numbers: aggregates that need them are not combined."""
