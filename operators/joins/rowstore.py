"""One side of a regular join: its rows, chained by key, with what is known of each.

`seen`        event time of the record (NO_TIME: it has none)
`born`        processing time of its arrival; kept only with a time to live of that
`event_born`  where a side's rows expire by event time, of both sides: the record's timestamp, or
              the watermark at its arrival if that was later
`matches`     how many rows of the other side it matches; kept only where the join asks

These are state (a `RowLog`); what finds rows is not, and is made anew from them: chains, and for
changelogs hashes of the rows' contents, by which a retraction finds its row (see `retraction`).

Rows are numbered as they arrive. Those that were retracted or have expired are marked as gone, and
when they are the better half the others are numbered anew. Expired rows are never read. By
processing time they are the first ones; by event time they are looked for, some with each batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from ...core.arrays import Bools, Int64s
from ...core.batch import ColumnBatch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.growing import GrowingList
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.rows.format import GroupsOf
from ...state.rows.log import PORTION
from ...state.ttl import Lifetime
from ..contents import hash_rows
from ..key_expiry import LEAST, PER_RECORD
from .retraction import Chains, Changes

NO_TIME = np.iinfo(np.int64).min
"""Event time of a record without one: less than every time."""

FIRST_COMPACTION = 4096
"""Rows without use before rows are numbered anew for the first time."""

SEEN, BORN, MATCHES = "seen", "born", "matches"

_NONE = np.empty(0, dtype=np.int64)


class RowStore:
    """`life`: None keeps rows for ever. `event`: whether a side's rows expire by event time.
    `counted`: whether `matches` is kept.

    Invariants: all arrays have len(self) entries; processing times of arrival never decrease; the
    chains hold exactly the rows that were not retracted, each in its slot's.
    """

    def __init__(
        self,
        state: KeyedStateBackend,
        name: str,
        schema: pa.Schema,
        groups_of: GroupsOf,
        life: Lifetime | None,
        event: bool,
        counted: bool,
    ) -> None:
        """The rows that are restored have no chains yet: see `restore`."""
        numbers = [AccColumn(SEEN, "int64")]
        self._born = f"event_{BORN}" if event else BORN
        self._stamped = event or life is not None
        """Whether births are kept."""
        if self._stamped:
            numbers.append(AccColumn(self._born, "int64"))
        marks = [AccColumn(MATCHES, "int64")] if counted else []
        self.log = state.log(name, schema, groups_of, numbers, marks)
        self.life = life
        self.event = event
        self._next = 0
        """By event time: the first row that was not looked at in this round."""
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
        return self.log.number(self._born) if self._stamped else _NONE

    def oldest(self, when: Int64s) -> Int64s:
        """Per record of this time: rows born then or before have expired for it. Empty where births
        are not kept."""
        if not self._stamped:
            return _NONE
        if self.life is None:
            return np.full(len(when), MIN_TIMESTAMP, dtype=np.int64)
        return when - self.life.ms

    def latest(self, when: Int64s) -> Int64s:
        """Per record of this side and time: for rows of the other side born then or later it has
        expired itself. Empty by processing time, of which it cannot be."""
        if not self.event:
            return _NONE
        if self.life is None:
            return np.full(len(when), MAX_TIMESTAMP, dtype=np.int64)
        return when + self.life.ms

    def add(
        self,
        rows: pa.RecordBatch,
        slots: Int64s,
        seen: Int64s,
        when: Int64s,
        matches: Int64s | None,
    ) -> None:
        """Insert-only records with these slots (>= 0), which come at these times; `matches` where
        they are counted."""
        from ..kernels.chains import link_rows

        first = self._append(rows, slots, seen, when, matches)
        if self._hashes is not None:
            self._hashes.append(hash_rows(rows.columns))
        link_rows(slots, first, self.head.array, self.link.array)

    def change(
        self,
        rows: pa.RecordBatch,
        slots: Int64s,
        seen: Int64s,
        when: Int64s,
        matches: Int64s | None,
        retracting: Bools,
    ) -> None:
        """A changelog in order: each retraction takes one equal row away, if there is one that has
        not expired."""
        self._keep_hashes()
        assert self._hashes is not None
        hashed = hash_rows(rows.columns)
        added = np.flatnonzero(~retracting)
        first = self._append(
            ColumnBatch(rows).take(added).data,
            slots[added],
            seen[added],
            when[added],
            None if matches is None else matches[added],
        )
        self._hashes.append(hashed[added])
        self.head.extend(max(0, int(slots.max()) + 1 - self.head.length))
        numbers = np.full(len(slots), -1, dtype=np.int64)
        numbers[added] = np.arange(first, first + len(added))
        held = (self.log, self.head, self.link, self.born, self.oldest(when), not self.event)
        chains = Chains(*held, self._hashes)
        removed = chains.apply(Changes(rows.columns, slots, hashed, retracting, numbers))
        self.log.remove(removed[removed >= 0])

    def expire(self, now: int) -> None:
        """All rows that have expired are gone."""
        if self.life is None or now < MIN_TIMESTAMP + self.life.ms:
            return
        if self.event:
            self._expire_between(0, len(self), now - self.life.ms)
        else:
            born = self.born[: len(self)]
            self.log.forget(int(np.searchsorted(born, now - self.life.ms, side="right")))

    def expire_some(self, now: int, records: int) -> None:
        """By event time: rows that have expired are gone, of those whose turn it is."""
        if self.life is None or now < MIN_TIMESTAMP + self.life.ms:
            return
        count = len(self)
        budget = min(max(LEAST, PER_RECORD * records), count)
        start = self._next if self._next < count else 0
        stop = min(start + budget, count)
        again = start + budget - stop
        self._next = again or stop
        for at, end in ((start, stop), (0, again)):
            self._expire_between(at, end, now - self.life.ms)

    def _expire_between(self, start: int, end: int, cutoff: int) -> None:
        rows = self.log.rows(start, end)
        self.log.remove(rows[self.born[rows] <= cutoff])

    @property
    def useless(self) -> int:
        """Rows that are gone."""
        return len(self) - self.log.live

    def restore(self, now_ms: int, slots_of: Callable[[pa.RecordBatch], Int64s]) -> None:
        """Chain the rows that former subtasks kept, by the slots of their keys. By processing time,
        those that have expired meanwhile are gone."""
        if self.life is not None and not self.event:
            by_birth = np.argsort(self.born[: len(self)], kind="stable")
            cutoff = now_ms - self.life.ms
            expired = np.searchsorted(self.born[by_birth], cutoff, side="right")
            self.log.keep(by_birth[expired:])
        self.rechain(slots_of)

    def compact(self) -> None:
        """Number the rows that are not gone anew; their slots stay."""
        rows = self.log.rows()
        slots = self.slots.array[rows]
        hashes = None if self._hashes is None else self._hashes.array[rows]
        self.log.keep(rows)
        self._next = 0
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
        if self._stamped and not self.event:
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
        if self.life is None:
            assert len(chained) == self.log.live

    def _append(
        self,
        rows: pa.RecordBatch,
        slots: Int64s,
        seen: Int64s,
        when: Int64s,
        matches: Int64s | None,
    ) -> int:
        """Store rows without chaining them; the number of the first."""
        count = rows.num_rows
        known = {SEEN: seen}
        if self._stamped:
            if len(self) and not self.event:
                when = np.maximum(when, self.born[len(self) - 1])
            known[self._born] = when
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
