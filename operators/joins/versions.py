"""The versions of a table's rows by key, as a temporal join keeps them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.elements import MIN_TIMESTAMP
from ...core.growing import GrowingList
from ...state.rows.arena import Arena

TIME, BORN, ENDS = "time", "born", "ends"

KNOWN = (pa.field(TIME, pa.int64()), pa.field(BORN, pa.int64()), pa.field(ENDS, pa.bool_()))
"""What is kept of each version besides its columns."""

_NO_BIRTHS = np.empty(0, dtype=np.int64)


class VersionStore:
    """`watermark`: versions before the one valid at it are not found any more.

    Rows that are of no more use stay until the owner makes a new store of the others.
    Invariant: times never increase along a chain.
    """

    def __init__(self, schema: pa.Schema, ttl_ms: int | None) -> None:
        self.arena = Arena(schema)
        self.ttl_ms = ttl_ms
        self.watermark = MIN_TIMESTAMP
        self._times = GrowingList(np.int64)
        self._born = GrowingList(np.int64)
        self._ends = GrowingList(np.bool_)
        self._link = GrowingList(np.int64)
        self._head = GrowingList(np.int64, fill=-1)
        self.slots = GrowingList(np.int64)
        self.checked = 0
        """Rows when it was last seen how many are useful."""

    def __len__(self) -> int:
        return len(self.arena)

    def add(self, rows: pa.RecordBatch, slots: Int64s, known: dict[str, npt.NDArray[Any]]) -> None:
        """Versions in order of arrival, with these slots (>= 0)."""
        from ..kernels.versions import insert_versions

        first = len(self)
        if not rows.num_rows:
            return
        self.arena.append(rows)
        self.slots.append(slots)
        self._times.append(known[TIME])
        self._ends.append(known[ENDS].astype(np.bool_))
        self._link.extend(rows.num_rows)
        if self.ttl_ms is not None:
            self._born.append(known[BORN])
        self._head.extend(max(0, int(slots.max()) + 1 - self._head.length))
        insert_versions(
            slots, self._times.array, first, self.watermark, self._head.array, self._link.array
        )

    def find(self, slots: Int64s, times: Int64s, now_ms: int) -> Int64s:
        """The version valid for each key at each time; -1 where there is none."""
        from ..kernels.versions import find_versions

        found = np.empty(len(slots), dtype=np.int64)
        find_versions(
            slots,
            times,
            self._head.used,
            self._link.array,
            self._times.array,
            self._ends.array,
            self._births,
            self._cutoff(now_ms),
            found,
        )
        return found

    def useful(self, now_ms: int) -> Bools:
        """Which rows may still be found."""
        from ..kernels.versions import mark_useful

        marks = np.zeros(len(self), dtype=np.bool_)
        mark_useful(
            self._head.used,
            self._link.array,
            self._times.array,
            self._ends.array,
            self._births,
            self._cutoff(now_ms),
            self.watermark,
            marks,
        )
        return marks

    def known(self, rows: Int64s) -> dict[str, npt.NDArray[Any]]:
        """What `add` takes, of these rows."""
        births = np.zeros(len(rows), np.int64) if self.ttl_ms is None else self._born.array[rows]
        return {TIME: self._times.array[rows], BORN: births, ENDS: self._ends.array[rows]}

    def validate(self) -> None:
        """Assert the invariants."""
        for head in self._head.used.tolist():
            at = head
            while at >= 0 and (after := int(self._link.array[at])) >= 0:
                assert self._times.array[at] >= self._times.array[after]
                assert self.slots.array[at] == self.slots.array[after]
                at = after

    @property
    def _births(self) -> Int64s:
        return _NO_BIRTHS if self.ttl_ms is None else self._born.array

    def _cutoff(self, now_ms: int) -> int:
        return 0 if self.ttl_ms is None else now_ms - self.ttl_ms
