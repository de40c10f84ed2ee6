"""Records that wait for the watermark to pass their time.

Taking the due ones costs as much as there are, not as much as wait: what came between two
watermarks is sorted once (by index; the records stay where they are), and each such run then gives
its records from the front.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...core.arrays import Int64s
from ...core.batch import ColumnBatch
from ...core.elements import MAX_TIMESTAMP


@dataclass
class _Run:
    """Records by time. Invariant: those before `start` have been taken, and only those."""

    data: ColumnBatch
    order: Int64s
    times: Int64s
    """Of the records in that order."""
    start: int = 0

    def take(self, stop: int) -> ColumnBatch:
        rows = self.order[self.start : stop]
        self.start = stop
        return self.data.take(rows)


class Waiting:
    """All batches must have one schema, and timestamps."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._new: list[ColumnBatch] = []
        self._earliest = MAX_TIMESTAMP
        """Of the new ones."""

    def add(self, batch: ColumnBatch) -> None:
        assert batch.timestamps is not None
        self._new.append(batch)
        self._earliest = min(self._earliest, int(batch.timestamps.min()))

    def due(self, watermark: int) -> ColumnBatch | None:
        """Remove and return the records up to the watermark in order of time (equal times: in order
        of arrival); None if there are none."""
        if self._new and self._earliest <= watermark:
            self._sort_new()
        parts = []
        for run in self._runs:
            stop = int(np.searchsorted(run.times, watermark, side="right"))
            if stop > run.start:
                parts.append(run.take(stop))
        self._runs = [run for run in self._runs if run.start < len(run.order)]
        if len(parts) < 2:
            return parts[0] if parts else None
        together = _together(parts)
        assert together.timestamps is not None
        return together.take(np.argsort(together.timestamps, kind="stable"))

    def all(self) -> list[ColumnBatch]:
        """The records that wait, in order of arrival as far as it matters; they stay."""
        rest = [run.data.take(run.order[run.start :]) for run in self._runs]
        return rest + self._new

    def _sort_new(self) -> None:
        data = _together(self._new)
        times = data.timestamps
        assert times is not None
        order = np.argsort(times, kind="stable")
        self._runs.append(_Run(data, order, times[order]))
        self._new = []
        self._earliest = MAX_TIMESTAMP


def _together(batches: list[ColumnBatch]) -> ColumnBatch:
    if len(batches) == 1:
        return batches[0]
    times = [batch.timestamps for batch in batches if batch.timestamps is not None]
    return ColumnBatch(pa.concat_batches([b.data for b in batches]), np.concatenate(times))
