"""Panes: what each (key, window) holds by itself, where windows cannot share slices.

A pane has a number, which is its slot in a table of accumulators. Numbers are given anew once most
panes are closed (see `live_keys`), so that memory follows the windows that are open.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s, Slots, numpy_of
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.key_groups import key_groups_of
from ..slots.live_keys import LiveKeys
from ..slots.numbered_table import NumberedTable
from ..slots.slot_aggregates import SlotAggregates

WINDOW, SEEN, TICK = "window", "seen", "tick"
"""Columns of the table: the window's end (CLOSED for none), records so far, when to fire next by
time."""

CLOSED = MIN_TIMESTAMP
NEVER = MAX_TIMESTAMP


class PaneStore:
    """Invariants: the table has a slot per key known to `_live`, initial where closed; `_members`
    has the slots of all open panes by window."""

    def __init__(self, keys: pa.Schema, aggregates: SlotAggregates) -> None:
        fields = [*keys, pa.field(WINDOW, pa.int64())]
        self._live = LiveKeys(pa.schema(fields))
        self._aggregates = aggregates
        self.table = NumberedTable(
            [
                AccColumn(WINDOW, "int64", CLOSED),
                AccColumn(SEEN, "int64"),
                AccColumn(TICK, "int64", NEVER),
                *aggregates.columns,
            ]
        )
        self._members: dict[int, list[Slots]] = {}
        stored = [pa.field(name, pa.int64()) for name in (SEEN, TICK)]
        self._rows = pa.schema([*self._live.kept, *stored, *aggregates.stored_fields()])

    def __len__(self) -> int:
        """Open panes."""
        return sum(len(slots) for parts in self._members.values() for slots in parts)

    def windows(self) -> list[int]:
        """The ends of windows that have panes, in no order."""
        return list(self._members)

    def slots(self, keys: Sequence[pa.Array], windows: Int64s) -> Slots:
        """The pane of each row's key and window, opened if need be."""
        columns = [*keys, pa.array(windows)]
        rows = pa.RecordBatch.from_arrays(columns, names=[str(i) for i in range(len(columns))])
        return self._opened(self._live.numbers(rows), windows)

    def members(self, window: int) -> Slots:
        """The panes of a window, in the order they were opened."""
        parts = self._members[window]
        if len(parts) > 1:
            self._members[window] = parts = [np.concatenate(parts)]
        return parts[0]

    def keys(self, slots: Slots) -> list[pa.Array]:
        """Their key columns."""
        return self._live.take(slots)[:-1]

    def empty(self, slots: Slots) -> None:
        """Purge these panes: they hold no records, but go on counting and ticking."""
        for column in self._aggregates.columns:
            self.table.column(column.name)[slots] = column.initial

    def close(self, window: int) -> None:
        """The window is over."""
        self.table.reset(self.members(window))
        del self._members[window]

    def tidy(self) -> None:
        """Forget closed panes, and values that none holds any more, if there are many."""
        self._aggregates.compact(self.table)
        if not self._live.crowded(len(self)):
            return
        used = np.flatnonzero(self.table.column(WINDOW)[: len(self.table)] != CLOSED)
        self._live.keep(used)
        self.table = self.table.gather(used)
        self._members = {}
        self._enroll(np.arange(len(used)))

    def save(self, state: KeyedStateBackend) -> None:
        """Write one row per open pane."""
        slots = np.flatnonzero(self.table.column(WINDOW)[: len(self.table)] != CLOSED)
        held = self._live.stored(slots)
        columns = [*held.columns, *(pa.array(self.table.column(n)[slots]) for n in (SEEN, TICK))]
        columns += self._aggregates.stored(self.table, slots)
        rows = pa.Table.from_arrays(columns, schema=self._rows)
        keys = pa.RecordBatch.from_arrays(
            held.columns[:-1], schema=pa.schema(list(held.schema)[:-1])
        )
        state.buffer("panes", self._rows).replace(
            0, rows, key_groups_of(keys, state.max_parallelism)
        )

    def load(self, state: KeyedStateBackend) -> None:
        """Take over the rows that former subtasks wrote. Only at the start."""
        rows = state.buffer("panes", self._rows).get(0)[0].combine_chunks()
        if not rows.num_rows:
            return
        kept = self._live.kept
        columns = [pa.concat_arrays(rows.column(name).chunks) for name in kept.names]
        self._live.numbers(pa.RecordBatch.from_arrays(columns, schema=kept))
        self._aggregates.restore(self.table, rows)
        self.table.column(WINDOW)[: rows.num_rows] = numpy_of(columns[-1])
        for name in (SEEN, TICK):
            self.table.column(name)[: rows.num_rows] = numpy_of(rows.column(name))
        self._enroll(np.arange(rows.num_rows))

    def forget_saved(self, state: KeyedStateBackend) -> None:
        """The rows of the last snapshot are not needed any more."""
        state.buffer("panes", self._rows).drop(0)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        held = self.table.column(WINDOW)[: len(self.table)]
        assert len(self.table) == len(self._live)
        assert (held != CLOSED).sum() == len(self)
        for window in self._members:
            assert (held[self.members(window)] == window).all()
        closed = np.flatnonzero(held == CLOSED)
        assert not self.table.column(self._aggregates.rows)[closed].any()

    def _opened(self, slots: Slots, windows: Int64s) -> Slots:
        """Note the panes among these that are new; `windows`: of each."""
        known = len(self.table)
        if len(self._live) > known:
            self.table.resize(len(self._live))
            at = np.flatnonzero(slots >= known)
            self.table.column(WINDOW)[slots[at]] = windows[at]
            self._enroll(np.arange(known, len(self._live)))
        return slots

    def _enroll(self, slots: Slots) -> None:
        """Put open panes into `_members`."""
        windows = self.table.column(WINDOW)[slots]
        if (windows == windows[:1]).all():
            if len(slots):
                self._members.setdefault(int(windows[0]), []).append(slots)
            return
        order = np.argsort(windows, kind="stable")
        ends, starts = np.unique(windows[order], return_index=True)
        for end, part in zip(ends.tolist(), np.split(slots[order], starts[1:]), strict=True):
            self._members.setdefault(end, []).append(part)
