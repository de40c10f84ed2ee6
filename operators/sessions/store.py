"""Open sessions of all keys: bounds, accumulators, and when they are due. See `kernels.sessions`.

A session is an entry of the state "sessions"; its kernel gives out the slots. What chains the
sessions of a key, and the wheel, are made anew after a restore.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, Slots
from ...core.batch import take_column
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.key_groups import key_groups_of
from ..aggregates.base import Source
from ..kernels import sessions as kernel
from ..slots.slot_aggregates import SlotAggregates
from .fired import Fired, grown
from .leaving import Leaving, due_by, dues_of

PLACES = 1024
"""Of the wheel."""
SPAN = 512
"""Places that the life of a typical record's session takes. With longer lives sessions are looked
at now and then before they are due."""
FIRST_SLOTS = 64

SESSION, OWNER = "session", "owner"
WORDS = ("start", "end", OWNER, "order", "state", None, None, None)
"""Those of a session's words that are state; see the kernel."""

_NONE = np.empty(0, dtype=np.int64)


class SessionStore:
    """Invariants: `_table` has a slot per slot ever used, initial where free; `_head` has an entry
    per known key; between calls no session is TOUCHED or MERGED."""

    def __init__(
        self,
        gap: int,
        lateness: int,
        state: KeyedStateBackend,
        keys: pa.Schema,
        aggregates: SlotAggregates,
    ) -> None:
        """`gap`: a typical one; 0 if none is known yet, and then `suit` says it."""
        self._lateness = lateness
        self._keys = keys
        self._aggregates = aggregates
        self.head = np.full(FIRST_SLOTS, -1, dtype=np.int64)
        self.control = np.array([-1, 0, 0, 0], dtype=np.int64)
        columns = [AccColumn(SESSION, "V64", None, WORDS), *aggregates.columns]
        self._table = state.entries(
            "sessions", keys, columns, OWNER, aggregates.values(), due_by(lateness)
        )
        away = self._table.away
        self._leaving = None if away is None else Leaving(away, self, lateness)
        """None where no session ever leaves."""
        self._suits = gap > 0
        """Whether the places are as wide as a gap of records wants them."""
        self._place: int
        """Of the wheel, that of the last watermark."""
        self._ring: npt.NDArray[np.int64]
        self._make_ring(gap or self._usual_length())
        if len(self._table):
            self._restore()

    def __len__(self) -> int:
        """Open sessions, but for those that are away."""
        return int(self.control[kernel.OPEN])

    @property
    def empty(self) -> bool:
        """Whether no session is open."""
        return not len(self) and (self._leaving is None or not self._leaving.some)

    def suit(self, gap: int) -> None:
        """A typical gap, of each batch; the first makes the places as wide as it wants them."""
        if not self._suits:
            self._suits = True
            self._make_ring(gap)
            self._chain(self._opened())

    def add(
        self,
        keys: pa.RecordBatch,
        times: Int64s,
        gaps: Int64s,
        inputs: list[pa.Array],
        first: int,
        watermark: int,
    ) -> tuple[npt.NDArray[np.int64], Fired | None]:
        """Fold records, numbered from `first` on: the rows that are late, and the sessions that
        have to fire because the watermark is past their end already. `gaps`: one, or one each."""
        numbers = self._table.numbers(keys)
        self.head = grown(self.head, self._table.owners)
        if self._leaving is not None:
            self._leaving.recall(numbers)
        self._make_room(len(times))
        sessions = self.sessions
        self._touch_writable(numbers, sessions)
        size = len(times)
        slots, touched = np.empty((2, size), dtype=np.int64)
        merged = np.empty(size + len(self), dtype=np.int64)
        counts = np.zeros(3, dtype=np.int64)
        kernel.assign(
            numbers,
            times,
            gaps,
            first,
            self._lateness,
            watermark,
            self._width,
            sessions,
            self.head,
            self._ring,
            self.control,
            slots,
            merged,
            touched,
            counts,
        )
        merges, touches, late = counts.tolist()
        self._table.resize(int(self.control[kernel.USED]))
        if merges:
            self._merge(merged[:merges], slots)
        late_rows = np.flatnonzero(slots == kernel.LATE) if late else _NONE
        self._fold(slots, inputs, np.arange(first, first + size), late_rows)
        fired = self._settle(touched[:touches]) if touches else None
        if merges:
            self.release(merged[:merges])
        self._tidy()
        return late_rows, fired

    def fire(self, watermark: int) -> Fired | None:
        """Sessions whose end the watermark passes, in order of time; those over are forgotten."""
        place = watermark // self._width
        places = min(PLACES, place - self._place + 1)
        firing, ending = np.empty((2, len(self)), dtype=np.int64)
        counts = np.zeros(2, dtype=np.int64)
        found = kernel.sessions_at(place - places + 1, places, self.sessions, self._ring, firing)
        self._table.touch(firing[:found])
        kernel.take_due(
            place - places + 1,
            places,
            watermark,
            self._lateness,
            self._width,
            self.sessions,
            self.head,
            self._ring,
            self.control,
            firing,
            ending,
            counts,
        )
        self._place = place
        fires, ends = counts.tolist()
        fired = self._read(self._in_order(firing[:fires])) if fires else None
        if ends:
            self.release(ending[:ends])
            self._tidy()
        return fired

    def away_due(self, watermark: int) -> bool:
        """Whether sessions are to be brought (`bring`) before `fire`."""
        return self._leaving is not None and self._leaving.due(watermark)

    def bring(self, watermark: int) -> Iterator[int]:
        """Have all sessions here that are due up to there, as many at a time as fit, in order of
        time. Each time up to when all are, at last `watermark`: those are to be fired before it
        goes on. Slots change their numbers when it does."""
        if self._leaving is None:
            return iter([watermark])
        return self._leaving.bring(watermark)

    def many_due(self, watermark: int, few: int) -> Slots | None:
        """The sessions that `fire` would fire, in order, where there are more than a few."""
        if len(self) <= few:
            return None
        due = self.due(watermark)
        return due if len(due) > few else None

    def due(self, watermark: int) -> Slots:
        """The sessions that `fire` would fire, in order."""
        place = watermark // self._width
        places = min(PLACES, place - self._place + 1)
        found = np.empty(len(self), dtype=np.int64)
        args = (place - places + 1, places, self.sessions, self._ring, found)
        return self._waiting(found[: kernel.sessions_at(*args)], watermark)

    def missing(
        self, until: Int64s, max_parallelism: int, bound: int = MAX_TIMESTAMP
    ) -> tuple[Slots, Int64s]:
        """Sessions that have not fired though it is over with them, by key group, `until` then; in
        order, and until when each. Those alone that have to fire up to `bound`."""
        slots = self._waiting(np.arange(len(self._table)), min(int(until.max()), bound))
        limits = self._limits(slots, until, max_parallelism)
        chosen = self.sessions[slots, kernel.END] - 1 <= limits
        return slots[chosen], limits[chosen]

    def forget(self, until: Int64s, max_parallelism: int, bound: int) -> None:
        """The same of sessions that have fired: they are gone, if they are over by then."""
        held = self.sessions[: len(self._table)]
        fired = np.flatnonzero(
            (held[:, kernel.OWNER] >= 0) & (held[:, kernel.STATE] == kernel.FIRED)
        )
        last = dues_of(held[fired, kernel.END], held[fired, kernel.STATE], self._lateness)
        limits = np.minimum(self._limits(fired, until, max_parallelism), bound)
        over = fired[last <= limits]
        if len(over):
            self.end(over)
            self.release(over)

    def _limits(self, slots: Slots, until: Int64s, max_parallelism: int) -> Int64s:
        """`until` of the key groups that these sessions are of."""
        keys = pa.RecordBatch.from_arrays(self._table.take_keys(slots), schema=self._keys)
        limits: Int64s = until[key_groups_of(keys, max_parallelism)]
        return limits

    def fire_some(self, slots: Slots, until: Int64s) -> Fired:
        """Sessions that `fire` has still to fire, by the watermarks `until`."""
        fired = self._read(slots)
        self._table.touch(slots)
        sessions = self.sessions
        sessions[slots, kernel.STATE] = kernel.FIRED
        last = dues_of(sessions[slots, kernel.END], sessions[slots, kernel.STATE], self._lateness)
        over = slots[last <= until]
        self.end(over)
        self.release(over)
        return fired

    def next_end(self, watermark: int) -> int:
        """When to `fire` next, none of the sessions having fired and all being due after
        `watermark`: the least end - 1, or a time before it; MAX_TIMESTAMP if none is open."""
        away = MAX_TIMESTAMP if self._leaving is None else self._leaving.soonest
        if not len(self):
            return away
        place = max(self._place, watermark // self._width)
        return min(away, kernel.next_end(place, self._width, self.sessions, self._ring))

    def enter(self, count: int) -> Slots:
        """See `Chained`, as of those that follow."""
        slots = np.empty(count, dtype=np.int64)
        kernel.take_slots(self.sessions, self.control, slots)
        self._table.resize(int(self.control[kernel.USED]))
        return slots

    def chain_more(self, slots: Slots) -> None:
        self.head = grown(self.head, self._table.owners)
        self._enter(slots)

    def end(self, slots: Slots) -> None:
        kernel.end_sessions(slots, self.sessions, self.head, self._ring, self.control)

    def renumber(self, slots: Slots) -> None:
        self.head = np.full(max(self._table.owners, FIRST_SLOTS), -1, dtype=np.int64)
        self._ring[:] = -1
        self.control[:] = -1, len(slots), 0, 0
        self._chain(np.arange(len(slots)))

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        used = len(self._table)
        owners = self.sessions[:used, kernel.OWNER]
        opened = np.flatnonzero(owners >= 0)
        assert used == self.control[kernel.USED]
        assert len(opened) == len(self)
        assert len(np.unique(owners[opened])) == self.control[kernel.KEYS]
        assert np.isin(self.sessions[opened, kernel.STATE], (kernel.WAITING, kernel.FIRED)).all()
        assert (self.head[: self._table.owners] >= 0).sum() == self.control[kernel.KEYS]
        free = np.setdiff1d(np.arange(used), opened)
        assert not self._table.column(self._aggregates.rows)[free].any()

    @property
    def sessions(self) -> npt.NDArray[np.int64]:
        """The kernel's table."""
        words: npt.NDArray[np.int64] = self._table.column(SESSION).view(np.int64)
        return words.reshape(-1, kernel.FIELDS)

    def _usual_length(self) -> int:
        """Of the sessions that former subtasks wrote: where no gap is known, what is nearest."""
        held = self.sessions[: len(self._table)]
        return int(np.median(held[:, kernel.END] - held[:, kernel.START])) if len(held) else 1

    def _make_ring(self, gap: int) -> None:
        """Empty, of places that suit this gap."""
        self._width = max(1, (gap + min(self._lateness, MAX_TIMESTAMP // 2)) // SPAN)
        self._place = MIN_TIMESTAMP // self._width
        self._ring = np.full(PLACES, -1, dtype=np.int64)

    def _restore(self) -> None:
        """Chain the sessions that former subtasks wrote, which lie in slots 0, 1, ..."""
        self._make_room(0)
        self.control[kernel.USED] = len(self._table)
        self._chain(np.arange(len(self._table)))

    def _opened(self) -> Slots:
        """The slots of open sessions."""
        return np.flatnonzero(self.sessions[: len(self._table), kernel.OWNER] >= 0)

    def _chain(self, slots: Slots) -> None:
        """Make chains and the wheel's places anew of these sessions: all that are open."""
        self._table.touch_all()
        self.head[:] = -1
        self.control[kernel.KEYS] = 0
        self.control[kernel.OPEN] = 0
        self._enter(slots)

    def _enter(self, slots: Slots) -> None:
        order = slots[np.argsort(self.sessions[slots, kernel.START], kind="stable")]
        kernel.enter(
            order,
            self._lateness,
            self._width,
            self.sessions,
            self.head,
            self._ring,
            self.control,
        )

    def _touch_writable(self, numbers: Slots, sessions: npt.NDArray[np.int64]) -> None:
        """Records of these keys come."""
        found = np.empty(4 * len(numbers), dtype=np.int64)
        count = kernel.writable(numbers, sessions, self.head, self.control, found)
        if count < 0:
            self._table.touch_all()
        else:
            self._table.touch(found[:count])

    def _make_room(self, rows: int) -> None:
        """For one more session per row, and an entry per key."""
        self.head = grown(self.head, self._table.owners)
        self._table.reserve(int(self.control[kernel.USED]) + rows)

    def _merge(self, merged: Slots, slots: Slots) -> None:
        """Move what merged sessions held to those that took them over, and rows there too."""
        targets = merged.copy()
        kernel.survivors(self.sessions, targets)
        kernel.survivors(self.sessions, slots)
        self._aggregates.merge(self._table, targets, Source((self._table, merged)))

    def _fold(self, slots: Slots, inputs: list[pa.Array], numbers: Int64s, late: Slots) -> None:
        if len(late):
            rows = np.flatnonzero(slots != kernel.LATE)
            at = pa.array(rows)
            slots, numbers = slots[rows], numbers[rows]
            inputs = [take_column(array, at) for array in inputs]
        self._aggregates.fold(self._table, slots, inputs, numbers)

    def _settle(self, touched: Slots) -> Fired | None:
        count = kernel.settle(self.sessions, touched)
        return self._read(touched[:count]) if count else None

    def _in_order(self, slots: Slots) -> Slots:
        """By end; those of one end as their bounds came about."""
        held = self.sessions[slots]
        return slots[np.lexsort((held[:, kernel.ORDER], held[:, kernel.END]))]

    def _waiting(self, slots: Slots, until: int) -> Slots:
        """Those of the slots whose sessions have to fire up to `until`, in order."""
        held = self.sessions[slots]
        due = (held[:, kernel.STATE] == kernel.WAITING) & (held[:, kernel.END] - 1 <= until)
        return self._in_order(slots[due & (held[:, kernel.OWNER] >= 0)])

    def _read(self, slots: Slots) -> Fired:
        slots, results = self._aggregates.emitted(self._table, slots)
        held = self.sessions[slots]
        return Fired(
            self._table.take_owners(held[:, kernel.OWNER]),
            held[:, kernel.START].copy(),
            held[:, kernel.END].copy(),
            results,
        )

    def release(self, slots: Slots) -> None:
        self._table.reset(slots)
        kernel.release(self.sessions, self.control, slots)

    def _tidy(self) -> None:
        """Forget keys and values that are not in use, if there are many, and let sessions leave
        where more are here than fit. Slots and keys have new numbers then."""
        self._table.tidy()
        moved = self._table.tidy_owners(int(self.control[kernel.KEYS]), self._live_keys)
        if moved is not None:
            heads = self.head[: len(moved)][moved >= 0]
            self.head = grown(heads, FIRST_SLOTS)
        if self._leaving is not None:
            self._leaving.make_room()

    def _live_keys(self) -> Slots:
        """The keys with open sessions."""
        return np.flatnonzero(self.head[: self._table.owners] >= 0)
