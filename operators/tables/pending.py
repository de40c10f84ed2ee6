"""Records that wait for the watermark to pass their event time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.arrays import Groups, Int64s
from ...core.growing import GrowingList
from ...state.backend import KeyedStateBackend
from ...state.key_groups import key_groups_of
from .base import Layout, Records
from .kept_rows import KeptRows

_NONE = np.empty(0, dtype=np.int64)


class Pending:
    """`_positions` and `_times`: where the waiting records lie, in order of arrival, and their
    event times; `_first` is the least of these."""

    def __init__(self, layout: Layout, state: KeyedStateBackend) -> None:
        self._rows = KeptRows(layout, state, "pending")
        self._keys = layout.keys
        self._max_parallelism = state.max_parallelism
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

    @property
    def first(self) -> int | None:
        """The least event time of those that wait; None if there are none."""
        return self._first

    def due(self, time: int) -> tuple[Int64s, Int64s]:
        """Positions and event times of those up to this time, sorted by time, then arrival. Each
        has to be taken before the next call of this; until then it is in state."""
        if self._first is None or self._first > time:
            return _NONE, _NONE
        positions, times = self._positions.used, self._times.used
        due = np.flatnonzero(times <= time)
        left = np.flatnonzero(times > time)
        order = due[np.argsort(times[due], kind="stable")]
        self._positions, self._times = GrowingList(np.int64), GrowingList(np.int64)
        self._first = None
        if len(left):
            self._append(positions[left], times[left])
        return positions[order], times[order]

    def take(self, positions: Int64s, times: Int64s) -> Records:
        """Some of those that are due, in this order; they wait no more."""
        keys, data = self._rows.keyed(positions)
        self._rows.release(positions)
        return Records(keys, data, times, None)

    def key_groups(self, positions: Int64s) -> Groups:
        """Of some of those that are due."""
        keys = pa.RecordBatch.from_arrays(self._rows.keys(positions), schema=self._keys)
        return key_groups_of(keys, self._max_parallelism)
