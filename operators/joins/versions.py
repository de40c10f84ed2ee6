"""The versions of a table's rows by key, as a temporal join keeps them.

The rows are state (a `RowLog`), with the time from which each is valid (`time`), whether it ends
the one before (`ends`), and with a time to live of processing time when it came (`born`); by event
time it lives so long after `time`. Chains are made anew.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.elements import MIN_TIMESTAMP
from ...core.growing import GrowingList
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.rows.format import GroupsOf
from ...state.rows.log import PORTION
from ...state.ttl import Lifetime

TIME, BORN, ENDS = "time", "born", "ends"

_NO_BIRTHS = np.empty(0, dtype=np.int64)


class VersionStore:
    """`watermark`: versions before the one valid at it are not found any more.

    Rows that are of no more use stay until the owner has only the others kept (`rebuild`).
    Invariant: times never increase along a chain, and no row is in two.
    """

    def __init__(
        self,
        state: KeyedStateBackend,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        life: Lifetime | None,
    ) -> None:
        """The rows that are restored have no chains yet: see `rebuild`."""
        numbers = [AccColumn(TIME, "int64"), AccColumn(ENDS, "bool")]
        self._ttl = None if life is None or life.event else life.ms
        """Of processing time."""
        self._event_ttl = life.ms if life is not None and life.event else 0
        if self._ttl is not None:
            numbers.append(AccColumn(BORN, "int64"))
        self.log = state.log(name, schema, groups_of, numbers)
        self.watermark = MIN_TIMESTAMP
        self._link = GrowingList(np.int64)
        self._head = GrowingList(np.int64, fill=-1)
        self.checked = 0
        """Rows when it was last seen how many are useful."""

    def __len__(self) -> int:
        return len(self.log)

    def add(
        self, rows: pa.RecordBatch, slots: Int64s, times: Int64s, ends: Bools, now_ms: int
    ) -> None:
        """Versions in order of arrival, with these slots (>= 0)."""
        if not rows.num_rows:
            return
        known = {TIME: times, ENDS: ends}
        if self._ttl is not None:
            known[BORN] = np.full(len(slots), now_ms)
        self._chain(self.log.append(rows, known), slots)

    def rebuild(self, rows: Int64s, slots_of: Callable[[pa.RecordBatch], Int64s]) -> None:
        """Keep only these rows, and chain them by the slots of their keys."""
        if len(rows) < len(self):
            self.log.keep(rows)
        self._link = GrowingList(np.int64)
        self._head = GrowingList(np.int64, fill=-1)
        for start in range(0, len(self), PORTION):
            numbers = np.arange(start, min(start + PORTION, len(self)))
            self._chain(start, slots_of(self.log.take(numbers)))
        self.checked = len(self)

    def find(self, slots: Int64s, times: Int64s, now_ms: int) -> Int64s:
        """The version valid for each key at each time; -1 where there is none."""
        from ..kernels.versions import find_versions

        found = np.empty(len(slots), dtype=np.int64)
        find_versions(
            slots,
            times,
            self._head.used,
            self._link.array,
            self.log.number(TIME),
            self.log.number(ENDS),
            self._births,
            self._cutoff(now_ms),
            self._event_ttl,
            found,
        )
        return found

    def useful(self, now_ms: int) -> Bools:
        """Which rows may still be found."""
        from ..kernels.versions import mark_useful

        marks = np.zeros(len(self), dtype=np.bool_)
        births, cutoff = self._births, self._cutoff(now_ms)
        if self._event_ttl and self.watermark > MIN_TIMESTAMP + self._event_ttl:
            births, cutoff = self.log.number(TIME), self.watermark - self._event_ttl
        mark_useful(
            self._head.used,
            self._link.array,
            self.log.number(TIME),
            self.log.number(ENDS),
            births,
            cutoff,
            self.watermark,
            marks,
        )
        return marks

    def unexpired(self, now_ms: int) -> Int64s:
        """The rows that have not expired by processing time, ascending."""
        if self._ttl is None:
            return np.arange(len(self))
        return np.flatnonzero(self._births[: len(self)] > self._cutoff(now_ms))

    def validate(self) -> None:
        """Assert the invariants."""
        self.log.validate()
        times, chained = self.log.number(TIME), []
        for head in self._head.used.tolist():
            at = head
            while at >= 0:
                chained.append(at)
                after = int(self._link.array[at])
                assert after < 0 or times[at] >= times[after]
                at = after
        assert len(chained) == len(set(chained))
        assert all(at < len(self) for at in chained)

    def _chain(self, first: int, slots: Int64s) -> None:
        """Put rows first, first + 1, ... into the chains of these slots."""
        from ..kernels.versions import insert_versions

        self._link.extend(len(slots))
        self._head.extend(max(0, int(slots.max()) + 1 - self._head.length))
        times = self.log.number(TIME)
        insert_versions(slots, times, first, self.watermark, self._head.array, self._link.array)

    @property
    def _births(self) -> Int64s:
        return _NO_BIRTHS if self._ttl is None else self.log.number(BORN)

    def _cutoff(self, now_ms: int) -> int:
        return 0 if self._ttl is None else now_ms - self._ttl
