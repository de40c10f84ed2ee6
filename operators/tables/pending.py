"""Records that wait for the watermark to pass their event time."""

from __future__ import annotations

import numpy as np

from ...core.arrays import Int64s
from ...core.growing import GrowingList
from ...state.backend import KeyedStateBackend
from .base import Layout, Records
from .kept_rows import KeptRows


class Pending:
    """`_positions` and `_times`: where the waiting records lie, in order of arrival, and their
    event times; `_first` is the least of these."""

    def __init__(self, layout: Layout, state: KeyedStateBackend) -> None:
        self._rows = KeptRows(layout, state, "pending")
        self._positions = GrowingList(np.int64)
        self._times = GrowingList(np.int64)
        self._first: int | None = None
        for positions in self._rows.restored():
            self._append(positions, self._rows.times(positions))

    def add(self, records: Records, rows: Int64s | None) -> None:
        """These records of a batch (None: all), behind those that wait already."""
        assert records.stamps is not None
        times = records.stamps if rows is None else records.stamps[rows]
        if len(times):
            self._append(self._rows.add(records, rows), times)

    def _append(self, positions: Int64s, times: Int64s) -> None:
        self._positions.append(positions)
        self._times.append(times)
        least = int(times.min())
        self._first = least if self._first is None else min(self._first, least)

    def take_until(self, time: int) -> Records | None:
        """Those of times up to this one, sorted by time, then arrival; None if there are none."""
        if self._first is None or self._first > time:
            return None
        positions, times = self._positions.used, self._times.used
        due = np.flatnonzero(times <= time)
        left = np.flatnonzero(times > time)
        order = due[np.argsort(times[due], kind="stable")]
        keys, data = self._rows.keyed(positions[order])
        records = Records(keys, data, times[order], None)
        self._rows.release(positions[due])
        self._positions, self._times = GrowingList(np.int64), GrowingList(np.int64)
        self._first = None
        if len(left):
            self._append(positions[left], times[left])
        return records
