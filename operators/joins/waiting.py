"""Records that wait for the watermark to pass their time.

Taking the due ones costs as much as there are, not as much as wait: what came between two
watermarks is sorted once (by number; the records stay where they are), and each such run then gives
its records from the front. The records are state (a `RowLog`); runs are made anew from them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import ColumnBatch
from ...core.elements import MAX_TIMESTAMP
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.rows.format import GroupsOf
from ..firing_until import FiringUntil

TIME = "time"

FIRST_COMPACTION = 4096
"""Records taken before the others are numbered anew for the first time."""


@dataclass
class _Run:
    """Numbers of records by time. Invariant: those before `start` were given out as due, and only
    those."""

    rows: Int64s
    times: Int64s
    start: int = 0

    def take(self, stop: int) -> tuple[Int64s, Int64s]:
        taken = slice(self.start, stop)
        self.start = stop
        return self.rows[taken], self.times[taken]


class Waiting:
    """Invariant: all records before `_sorted` that are due no more or not yet are in runs, each in
    one."""

    def __init__(
        self, state: KeyedStateBackend, name: str, schema: pa.Schema, groups_of: GroupsOf
    ) -> None:
        """With the records that are restored."""
        self._groups_of = groups_of
        self._log = state.log(name, schema, groups_of, [AccColumn(TIME, "int64")])
        self._runs: list[_Run] = []
        self._sorted = 0
        times = self._log.number(TIME)[: len(self._log)]
        self._earliest = int(times.min()) if len(times) else MAX_TIMESTAMP
        """Of those that are in no run."""

    def __len__(self) -> int:
        """Records that wait."""
        return self._log.live

    def add(self, rows: pa.RecordBatch, times: Int64s) -> None:
        self._log.append(rows, {TIME: times})
        self._earliest = min(self._earliest, int(times.min()))

    def due(self, watermark: int) -> Int64s:
        """The numbers of the records up to the watermark in order of time (equal times: in order of
        arrival), each to be taken before `tidy`."""
        if self._earliest <= watermark and self._sorted < len(self._log):
            self._sort_new()
        parts = []
        for run in self._runs:
            stop = int(np.searchsorted(run.times, watermark, side="right"))
            if stop > run.start:
                parts.append(run.take(stop))
        self._runs = [run for run in self._runs if run.start < len(run.rows)]
        if not parts:
            return np.empty(0, dtype=np.int64)
        rows, times = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
        return rows if len(parts) == 1 else rows[np.argsort(times, kind="stable")]

    def overdue(self, firing: FiringUntil) -> Int64s:
        """Before anything is added after a restore: the numbers of the records that were due then
        by how far their key groups fire, in the same order; `renumber` when they are taken."""
        rows = self._log.rows()
        times = self._log.number(TIME)[rows]
        at = np.argsort(times, kind="stable")
        rows = rows[at[: np.searchsorted(times[at], firing.furthest, side="right")]]
        groups = self._groups_of(self._log.take(rows))
        return rows[self._log.number(TIME)[rows] <= firing.by_group[groups]]

    def renumber(self) -> None:
        """Number the records that wait anew; none of them is in a run."""
        assert not self._runs
        self._log.keep(self._log.rows())

    def take(self, rows: Int64s) -> ColumnBatch:
        """Remove and return some that are due."""
        data, times = self._log.take(rows), self._log.number(TIME)[rows]
        self._log.remove(rows)
        return ColumnBatch(data, times)

    def tidy(self) -> None:
        """Number the records that wait anew when they are the lesser half."""
        over = len(self._log) - self._log.live
        if over <= FIRST_COMPACTION or 2 * over <= len(self._log):
            return
        kept = self._log.rows()
        moved = np.empty(len(self._log), dtype=np.int64)
        moved[kept] = np.arange(len(kept))
        self._log.keep(kept)
        self._sorted = int(np.searchsorted(kept, self._sorted))
        for run in self._runs:
            run.rows = moved[run.rows[run.start :]]
            run.times, run.start = run.times[run.start :], 0

    def validate(self) -> None:
        """Assert the invariants."""
        self._log.validate()
        assert 0 <= self._sorted <= len(self._log)
        waiting = [np.arange(self._sorted, len(self._log))]
        for run in self._runs:
            assert (np.diff(run.times) >= 0).all()
            assert (self._log.number(TIME)[run.rows] == run.times).all()
            waiting.append(run.rows[run.start :])
        assert np.sort(np.concatenate(waiting)).tolist() == self._log.rows().tolist()

    def _sort_new(self) -> None:
        new = np.arange(self._sorted, len(self._log))
        times = self._log.number(TIME)[new]
        order = np.argsort(times, kind="stable")
        self._runs.append(_Run(new[order], times[order]))
        self._sorted, self._earliest = len(self._log), MAX_TIMESTAMP
