"""One side of a regular join: its rows, chained by key, with what is known of each.

`seen`     event time of the record (NO_TIME: it has none)
`born`     processing time of its arrival; kept only with a time to live
`matches`  how many rows of the other side it matches; kept only where the join asks
`alive`    false once it was retracted;  `hashes`  of its content: kept only for changelogs

Rows are numbered as they arrive. Those that were retracted or have expired stay until they are the
better half of all; then the store is made anew from the others. Expired rows are never read.

Retractions find their row by content: see `retraction`.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import ColumnBatch
from ...core.growing import GrowingList
from ...state.rows.arena import Arena
from .contents import hash_rows
from .retraction import Chains, Changes

NO_TIME = np.iinfo(np.int64).min
"""Event time of a record without one: less than every time."""

FIRST_COMPACTION = 4096
"""Rows without use before a store is made anew for the first time."""

SEEN, BORN, MATCHES, ALIVE = "seen", "born", "matches", "alive"

_NO_BIRTHS = np.empty(0, dtype=np.int64)


class RowStore:
    """`ttl_ms`: None keeps rows for ever. `counted`: whether `matches` is kept.

    Invariants: all arrays in use have len(self) entries; `born` never decreases; the chains hold
    exactly the rows that are alive, each in its slot's.
    """

    def __init__(self, schema: pa.Schema, ttl_ms: int | None, counted: bool) -> None:
        self.arena = Arena(schema)
        self.ttl_ms = ttl_ms
        self.counted = counted
        self.seen = GrowingList(np.int64)
        self.slots = GrowingList(np.int32)
        self.link = GrowingList(np.int32)
        self.head = GrowingList(np.int32, fill=-1)
        self.matches = GrowingList(np.int64, fill=0)
        self._born = GrowingList(np.int64)
        self._alive: GrowingList | None = None
        self._hashes: GrowingList | None = None
        self.retracted = 0
        """Rows that are not alive."""

    def __len__(self) -> int:
        return len(self.arena)

    @property
    def born(self) -> Int64s:
        """As kernels take it: empty where nothing expires."""
        return _NO_BIRTHS if self.ttl_ms is None else self._born.array

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
            self._mark(hash_rows(rows.columns))
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
        assert self._alive is not None
        hashed = hash_rows(rows.columns)
        added = np.flatnonzero(~retracting)
        first = self._append(
            ColumnBatch(rows).take(added).data,
            slots[added],
            seen[added],
            now_ms,
            None if matches is None else matches[added],
        )
        self._mark(hashed[added])
        self.head.extend(max(0, int(slots.max()) + 1 - self.head.length))
        numbers = np.full(len(slots), -1, dtype=np.int64)
        numbers[added] = np.arange(first, first + len(added))
        held = (self.arena, self.head, self.link, self.born, self.cutoff(now_ms))
        chains = Chains(*held, self._hashes)
        removed = chains.apply(Changes(rows.columns, slots, hashed, retracting, numbers))
        removed = removed[removed >= 0]
        self._alive.array[removed] = False
        self.retracted += len(removed)

    def useless(self, now_ms: int) -> int:
        """Rows that are retracted or expired (counted twice if both)."""
        if self.ttl_ms is None:
            return self.retracted
        gone = int(np.searchsorted(self._born.used, self.cutoff(now_ms), side="right"))
        return self.retracted + gone

    def useful(self, now_ms: int) -> Int64s:
        """The rows that are neither, ascending."""
        keep = np.ones(len(self), dtype=np.bool_) if self._alive is None else self._alive.used
        rows = np.flatnonzero(keep)
        return rows if self.ttl_ms is None else rows[self._born.array[rows] > self.cutoff(now_ms)]

    def columns(self) -> dict[str, pa.Array]:
        """What is known of each row, for a snapshot; copies of what may change."""
        count = len(self)
        alive = np.ones(count, dtype=np.bool_) if self._alive is None else self._alive.used.copy()
        matches = self.matches.used.copy() if self.counted else np.zeros(count, dtype=np.int64)
        born = np.zeros(count, np.int64) if self.ttl_ms is None else self._born.used
        return {
            SEEN: pa.array(self.seen.used),
            BORN: pa.array(born),
            MATCHES: pa.array(matches),
            ALIVE: pa.array(alive),
        }

    def fill(self, rows: pa.RecordBatch, slots: Int64s, known: dict[str, Int64s]) -> None:
        """Into an empty store: rows in order of birth, with what `columns` gave (alive rows
        only)."""
        from ..kernels.chains import link_rows

        self._append(rows, slots, known[SEEN], 0, known[MATCHES])
        if self.ttl_ms is not None:
            self._born.array[: len(self)] = known[BORN]
        link_rows(slots, 0, self.head.array, self.link.array)

    def known(self, rows: Int64s) -> dict[str, Int64s]:
        """What `fill` takes, of these rows."""
        none = np.zeros(len(rows), dtype=np.int64)
        return {
            SEEN: self.seen.array[rows],
            BORN: none if self.ttl_ms is None else self._born.array[rows],
            MATCHES: self.matches.array[rows] if self.counted else none,
        }

    def compacted(self, now_ms: int) -> RowStore:
        """A new store of the useful rows, in the same slots."""
        rows = self.useful(now_ms)
        new = RowStore(self.arena.schema, self.ttl_ms, self.counted)
        if len(rows):
            data = pa.RecordBatch.from_arrays(self.arena.gather(rows), schema=self.arena.schema)
            new.fill(data, self.slots.array[rows].astype(np.int64), self.known(rows))
        return new

    def validate(self) -> None:
        """Assert the invariants."""
        for grower in (self.seen, self.slots, self.link):
            assert grower.length == len(self)
        assert self._born.length == (0 if self.ttl_ms is None else len(self))
        assert self.matches.length == (len(self) if self.counted else 0)
        assert bool((np.diff(self._born.used) >= 0).all())
        chained: list[int] = []
        for slot, head in enumerate(self.head.used.tolist()):
            at = head
            while at >= 0:
                assert self.slots.array[at] == slot
                chained.append(at)
                at = int(self.link.array[at])
        alive = np.ones(len(self), np.bool_) if self._alive is None else self._alive.used
        assert sorted(chained) == np.flatnonzero(alive).tolist()
        assert self.retracted == len(self) - int(alive.sum())

    def _append(
        self, rows: pa.RecordBatch, slots: Int64s, seen: Int64s, now_ms: int, matches: Int64s | None
    ) -> int:
        """Store rows without chaining them; the number of the first."""
        first, count = len(self), rows.num_rows
        self.arena.append(rows)
        self.seen.append(seen)
        self.slots.append(slots)
        self.link.extend(count)
        if self.ttl_ms is not None:
            latest = int(self._born.array[first - 1]) if first else now_ms
            self._born.append(np.full(count, max(now_ms, latest)))
        if self.counted:
            assert matches is not None
            self.matches.append(matches)
        if count:
            self.head.extend(max(0, int(slots.max()) + 1 - self.head.length))
        return first

    def _mark(self, hashed: Int64s) -> None:
        """Rows just appended are alive, with these hashes."""
        assert self._hashes is not None
        assert self._alive is not None
        self._hashes.append(hashed)
        self._alive.append(np.ones(len(hashed), dtype=np.bool_))

    def _keep_hashes(self) -> None:
        """From the first changelog batch on, hashes are known of all rows."""
        if self._hashes is not None:
            return
        self._hashes, self._alive = GrowingList(np.int64), GrowingList(np.bool_)
        for start in range(0, len(self), 1 << 16):
            numbers = np.arange(start, min(start + (1 << 16), len(self)))
            self._mark(hash_rows(self.arena.gather(numbers)))
