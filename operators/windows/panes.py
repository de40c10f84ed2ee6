"""Panes: what each (key, window) holds by itself, where windows cannot share slices.

A pane is a slot of the table "panes", whose key is the record's key and the window's end. Where the
table's rows may leave memory, slots are of one batch or round alone, and which panes a window has
is looked for among those in memory, behind `bring`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s, Slots
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import AccColumn, KeyedStateBackend
from ..slots.slot_aggregates import SlotAggregates

WINDOW, SEEN, TICK = "window", "seen", "tick"
"""Columns of the table: the window's end (CLOSED for none), records so far, when to fire next by
time."""

CLOSED = MIN_TIMESTAMP
NEVER = MAX_TIMESTAMP


class PaneStore:
    """Invariant: `_members` has the slots of all open panes by window; if these leave memory only
    the windows."""

    def __init__(
        self, state: KeyedStateBackend, keys: pa.Schema, aggregates: SlotAggregates
    ) -> None:
        self._aggregates = aggregates
        columns = [
            AccColumn(WINDOW, "int64", CLOSED),
            AccColumn(SEEN, "int64"),
            AccColumn(TICK, "int64", NEVER),
            *aggregates.columns,
        ]
        fields = [pa.field(f"k{i}", field.type) for i, field in enumerate(keys)]
        schema = pa.schema([*fields, pa.field("end", pa.int64())])
        family = state.table("panes", schema, columns, len(keys), aggregates.values(), cold=True)
        self._schema = schema
        self._leaves = family.leaves
        self.table = family.table()
        self._members: dict[int, list[Slots]] = {}
        if self._leaves:
            self._members = {end: [] for end in self.ticks()}
        else:
            self._enroll(np.arange(len(self.table)))

    def __len__(self) -> int:
        """Open panes, wherever they are."""
        return sum(int((windows != CLOSED).sum()) for (windows,) in self.table.scan(WINDOW))

    def windows(self) -> list[int]:
        """The ends of windows that have panes, in no order."""
        return list(self._members)

    def ticks(self) -> dict[int, int]:
        """By window with panes its least tick."""
        least: dict[int, int] = {}
        for windows, ticks in self.table.scan(WINDOW, TICK):
            ends, which = np.unique(windows, return_inverse=True)
            firsts = np.full(len(ends), NEVER)
            np.minimum.at(firsts, which, ticks)
            for end, tick in zip(ends.tolist(), firsts.tolist(), strict=True):
                least[end] = min(tick, least.get(end, NEVER))
        least.pop(CLOSED, None)
        return least

    def bring(self, windows: Sequence[int]) -> None:
        """Have all panes of these windows in memory."""
        if windows:
            self.table.bring(WINDOW, lambda ends: np.isin(ends, windows))

    def slots(self, keys: Sequence[pa.Array], windows: Int64s) -> Slots:
        """The pane of each row's key and window, opened if need be."""
        rows = pa.RecordBatch.from_arrays([*keys, pa.array(windows)], schema=self._schema)
        slots = self.table.slots(rows)
        held = self.table.column(WINDOW)
        at = np.flatnonzero(held[slots] == CLOSED)
        if len(at):
            held[slots[at]] = windows[at]
            self._enroll(np.unique(slots[at]))
        return slots

    def members(self, window: int) -> Slots:
        """The panes of a window that are in memory; if none leaves, in the order they were
        opened."""
        if self._leaves:
            return np.flatnonzero(self.table.column(WINDOW)[: len(self.table)] == window)
        parts = self._members[window]
        if len(parts) > 1:
            self._members[window] = parts = [np.concatenate(parts)]
        return parts[0]

    def keys(self, slots: Slots) -> list[pa.Array]:
        """Their key columns."""
        return self.table.take_keys(slots)[:-1]

    def empty(self, slots: Slots) -> None:
        """Purge these panes: they hold no records, but go on counting and ticking."""
        self.table.touch(slots)
        for column in self._aggregates.columns:
            self.table.column(column.name)[slots] = column.initial

    def close(self, windows: Sequence[int]) -> None:
        """These are over."""
        for window in windows:
            self.table.release(self.members(window))
            del self._members[window]
        if windows:
            self.table.forget(WINDOW, lambda ends: np.isin(ends, windows))

    def tidy(self) -> None:
        """Forget closed panes, and values that none holds any more, if there are many."""
        moved = self.table.tidy()
        if moved is not None and not self._leaves:
            self._members = {end: [moved[self.members(end)]] for end in self._members}

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        held = self.table.column(WINDOW)[: len(self.table)]
        assert self.ticks().keys() == self._members.keys()
        members = [self.members(window) for window in self._members]
        every = np.concatenate([np.empty(0, np.int64), *members])
        assert sorted(every.tolist()) == np.flatnonzero(held != CLOSED).tolist()
        for window, slots in zip(self._members, members, strict=True):
            assert (held[slots] == window).all()
        closed = np.flatnonzero(held == CLOSED)
        assert not self.table.column(self._aggregates.rows)[closed].any()

    def _enroll(self, slots: Slots) -> None:
        """Put open panes into `_members`."""
        windows = self.table.column(WINDOW)[slots]
        if self._leaves:
            for end in np.unique(windows).tolist():
                self._members.setdefault(end, [])
            return
        if (windows == windows[:1]).all():
            if len(slots):
                self._members.setdefault(int(windows[0]), []).append(slots)
            return
        order = np.argsort(windows, kind="stable")
        ends, starts = np.unique(windows[order], return_index=True)
        for end, part in zip(ends.tolist(), np.split(slots[order], starts[1:]), strict=True):
            self._members.setdefault(end, []).append(part)
