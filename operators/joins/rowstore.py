"""One side of a regular join: its rows, chained by key, with what is known of each.

`seen`     event time of the record (NO_TIME: it has none)
`born`     processing time of its arrival; kept only with a time to live
`matches`  how many rows of the other side it matches; kept only where the join asks

These are state (a `RowLog`); what finds rows is not, and is made anew from them: chains, and for
changelogs hashes of the rows' contents, by which a retraction finds its row (see `retraction`).

Rows are numbered as they arrive. Those that were retracted or have expired are marked as gone, and
when they are the better half the others are numbered anew. Expired rows are never read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import ColumnBatch
from ...core.growing import GrowingList
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.rows.format import GroupsOf
from ...state.rows.log import PORTION
from .contents import hash_rows
from .retraction import Chains, Changes

NO_TIME = np.iinfo(np.int64).min
"""Event time of a record without one: less than every time."""

FIRST_COMPACTION = 4096
"""Rows without use before rows are numbered anew for the first time."""

SEEN, BORN, MATCHES = "seen", "born", "matches"

_NO_BIRTHS = np.empty(0, dtype=np.int64)


class RowStore:
    """`ttl_ms`: None keeps rows for ever. `counted`: whether `matches` is kept.

    Invariants: all arrays have len(self) entries; `born` never decreases; the chains hold exactly
    the rows that were not retracted, each in its slot's.
    """

    def __init__(
        self,
        state: KeyedStateBackend,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        ttl_ms: int | None,
        counted: bool,
    ) -> None:
        """The rows that are restored have no chains yet: see `restore`."""
        numbers = [AccColumn(SEEN, "int64")]
        if ttl_ms is not None:
            numbers.append(AccColumn(BORN, "int64"))
        marks = [AccColumn(MATCHES, "int64")] if counted else []
        self.log = state.log(name, schema, groups_of, numbers, marks)
        self.ttl_ms = ttl_ms
        self.counted = counted
        self.slots = GrowingList(np.int32)
        self.link = GrowingList(np.int32)
        self.head = GrowingList(np.int32, fill=-1)
        self._hashes: GrowingList | None = None

    def __len__(self) -> int:
        return len(self.log)

    @property
    def born(self) -> Int64s:
        """As kernels take it: empty where nothing expires."""
        return _NO_BIRTHS if self.ttl_ms is None else self.log.number(BORN)

    def cutoff(self, now_ms: int) -> int:
        """Rows born then or before have expired."""
        return 0 if self.ttl_ms is None else now_ms - self.ttl_ms

    def add(
        self, rows: pa.RecordBatch, slots: Int64s, seen: Int64s, now_ms: int, matches: Int64s | None
    ) -> None:
        """Insert-only records with these slots (>= 0); `matches` where they are counted."""
        from ..kernels.chains import link_rows

        first = self._append(rows, slots, seen, now_ms, matches)
        if self._hashes is not None:
            self._hashes.append(hash_rows(rows.columns))
        link_rows(slots, first, self.head.array, self.link.array)

    def change(
        self,
        rows: pa.RecordBatch,
        slots: Int64s,
        seen: Int64s,
        now_ms: int,
        matches: Int64s | None,
        retracting: Bools,
    ) -> None:
        """A changelog in order: each retraction takes one equal row away, if there is one."""
        self._keep_hashes()
        assert self._hashes is not None
        hashed = hash_rows(rows.columns)
        added = np.flatnonzero(~retracting)
        first = self._append(
            ColumnBatch(rows).take(added).data,
            slots[added],
            seen[added],
            now_ms,
            None if matches is None else matches[added],
        )
        self._hashes.append(hashed[added])
        self.head.extend(max(0, int(slots.max()) + 1 - self.head.length))
        numbers = np.full(len(slots), -1, dtype=np.int64)
        numbers[added] = np.arange(first, first + len(added))
        held = (self.log, self.head, self.link, self.born, self.cutoff(now_ms))
        chains = Chains(*held, self._hashes)
        removed = chains.apply(Changes(rows.columns, slots, hashed, retracting, numbers))
        self.log.remove(removed[removed >= 0])

    def expire(self, now_ms: int) -> None:
        """Rows that have expired are gone."""
        if self.ttl_ms is not None:
            born = self.born[: len(self)]
            self.log.forget(int(np.searchsorted(born, self.cutoff(now_ms), side="right")))

    @property
    def useless(self) -> int:
        """Rows that are gone."""
        return len(self) - self.log.live

    def restore(self, now_ms: int, slots_of: Callable[[pa.RecordBatch], Int64s]) -> None:
        """Chain the rows that former subtasks kept, by the slots of their keys."""
        if self.ttl_ms is not None:
            by_birth = np.argsort(self.born[: len(self)], kind="stable")
            expired = np.searchsorted(self.born[by_birth], self.cutoff(now_ms), side="right")
            self.log.keep(by_birth[expired:])
        self.rechain(slots_of)

    def compact(self) -> None:
        """Number the rows that are not gone anew; their slots stay."""
        rows = self.log.rows()
        slots = self.slots.array[rows]
        hashes = None if self._hashes is None else self._hashes.array[rows]
        self.log.keep(rows)
        self._chain(slots.astype(np.int64))
        if hashes is not None:
            self._hashes = GrowingList(np.int64)
            self._hashes.append(hashes)

    def rechain(self, slots_of: Callable[[pa.RecordBatch], Int64s]) -> None:
        """Chain all rows, none of which is gone, by other slots."""
        slots = np.empty(len(self), dtype=np.int64)
        for numbers in _portions(len(self)):
            slots[numbers] = slots_of(self.log.take(numbers))
        self._chain(slots)

    def validate(self) -> None:
        """Assert the invariants."""
        self.log.validate()
        for grower in (self.slots, self.link):
            assert grower.length == len(self)
        assert self._hashes is None or self._hashes.length == len(self)
        if self.ttl_ms is not None:
            assert bool((np.diff(self.born[: len(self)]) >= 0).all())
        chained: list[int] = []
        for slot, head in enumerate(self.head.used.tolist()):
            at = head
            while at >= 0:
                assert self.slots.array[at] == slot
                chained.append(at)
                at = int(self.link.array[at])
        assert len(chained) == len(set(chained))
        assert set(self.log.rows().tolist()) <= set(chained)
        if self.ttl_ms is None:
            assert len(chained) == self.log.live

    def _append(
        self, rows: pa.RecordBatch, slots: Int64s, seen: Int64s, now_ms: int, matches: Int64s | None
    ) -> int:
        """Store rows without chaining them; the number of the first."""
        count = rows.num_rows
        known = {SEEN: seen}
        if self.ttl_ms is not None:
            latest = int(self.born[len(self) - 1]) if len(self) else now_ms
            known[BORN] = np.full(count, max(now_ms, latest))
        if self.counted:
            assert matches is not None
            known[MATCHES] = matches
        first = self.log.append(rows, known)
        self.slots.append(slots)
        self.link.extend(count)
        if count:
            self.head.extend(max(0, int(slots.max()) + 1 - self.head.length))
        return first

    def _chain(self, slots: Int64s) -> None:
        """Make the chains anew: row i is in slots[i]."""
        from ..kernels.chains import link_rows

        self.slots, self.link = GrowingList(np.int32), GrowingList(np.int32)
        self.head = GrowingList(np.int32, fill=-1)
        self.slots.append(slots)
        self.link.extend(len(slots))
        self.head.extend(int(slots.max()) + 1 if len(slots) else 0)
        link_rows(slots, 0, self.head.array, self.link.array)

    def _keep_hashes(self) -> None:
        """From the first changelog batch on, hashes are known of all rows."""
        if self._hashes is not None:
            return
        self._hashes = GrowingList(np.int64)
        for numbers in _portions(len(self)):
            self._hashes.append(hash_rows(self.log.gather(numbers)))


def _portions(count: int) -> list[Int64s]:
    """The rows 0..count - 1, some at a time."""
    return [np.arange(start, min(start + PORTION, count)) for start in range(0, count, PORTION)]
