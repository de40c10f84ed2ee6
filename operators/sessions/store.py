"""Open sessions of all keys: bounds, accumulators, and when they are due. See `kernels.sessions`.

Kept in arrays outside the state backend, because slots are used again; `save` puts one row per
session into a buffer before each snapshot, with its key, bounds and accumulators.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import Int64s, Slots, numpy_of
from ...core.batch import take_column
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import KeyedStateBackend
from ...state.key_groups import key_groups_of
from ..kernels import sessions as kernel
from ..slots.live_keys import LiveKeys
from ..slots.numbered_table import NumberedTable
from ..slots.slot_aggregates import SlotAggregates

PLACES = 1024
"""Of the wheel."""
SPAN = 512
"""Places that the life of a typical record's session takes. With longer lives sessions are looked
at now and then before they are due."""
FIRST_SLOTS = 64

_NONE = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Fired:
    """What sessions that fire give: key columns, bounds, results. One entry per result each."""

    keys: list[pa.Array]
    starts: Int64s
    ends: Int64s
    results: list[pa.Array]

    def __len__(self) -> int:
        return len(self.starts)


class SessionStore:
    """Invariants: `_table` has a slot per slot ever used, initial where free; `_head` has an entry
    per known key; between calls no session is TOUCHED or MERGED."""

    def __init__(
        self, gap: int, lateness: int, keys: pa.Schema, aggregates: SlotAggregates
    ) -> None:
        """`gap`: a typical one."""
        self._lateness = lateness
        self._width = max(1, (gap + min(lateness, MAX_TIMESTAMP // 2)) // SPAN)
        self._aggregates = aggregates
        self._place: int = MIN_TIMESTAMP // self._width
        """Of the wheel, that of the last watermark."""
        self._keys = LiveKeys(keys)
        self._sessions = np.full((FIRST_SLOTS, kernel.FIELDS), -1, dtype=np.int64)
        self._head = np.full(FIRST_SLOTS, -1, dtype=np.int64)
        self._ring = np.full(PLACES, -1, dtype=np.int64)
        self._control = np.array([-1, 0, 0, 0], dtype=np.int64)
        self._table = NumberedTable(self._aggregates.columns)
        fields = [*self._keys.kept]
        fields += [pa.field(name, pa.int64()) for name in ("start", "end", "order")]
        fields += [pa.field("fired", pa.bool_()), *aggregates.stored_fields()]
        self._rows = pa.schema(fields)

    def __len__(self) -> int:
        """Open sessions."""
        return int(self._control[kernel.OPEN])

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
        numbers = self._keys.numbers(keys)
        self._make_room(len(times))
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
            self._sessions,
            self._head,
            self._ring,
            self._control,
            slots,
            merged,
            touched,
            counts,
        )
        merges, touches, late = counts.tolist()
        self._table.resize(int(self._control[kernel.USED]))
        if merges:
            self._merge(merged[:merges], slots)
        late_rows = np.flatnonzero(slots == kernel.LATE) if late else _NONE
        self._fold(slots, inputs, np.arange(first, first + size), late_rows)
        fired = self._settle(touched[:touches]) if touches else None
        if merges:
            self._release(merged[:merges])
        self._tidy()
        return late_rows, fired

    def fire(self, watermark: int) -> Fired | None:
        """Sessions whose end the watermark passes, in order of time; those over are forgotten."""
        place = watermark // self._width
        places = min(PLACES, place - self._place + 1)
        firing, ending = np.empty((2, len(self)), dtype=np.int64)
        counts = np.zeros(2, dtype=np.int64)
        kernel.take_due(
            place - places + 1,
            places,
            watermark,
            self._lateness,
            self._width,
            self._sessions,
            self._head,
            self._ring,
            self._control,
            firing,
            ending,
            counts,
        )
        self._place = place
        fires, ends = counts.tolist()
        fired = self._read(self._in_order(firing[:fires])) if fires else None
        if ends:
            self._release(ending[:ends])
            self._tidy()
        return fired

    def next_end(self, watermark: int) -> int:
        """When to `fire` next, none of the sessions having fired and all being due after
        `watermark`: the least end - 1, or a time before it; MAX_TIMESTAMP if none is open."""
        if not len(self):
            return MAX_TIMESTAMP
        place = max(self._place, watermark // self._width)
        return kernel.next_end(place, self._width, self._sessions, self._ring)

    def save(self, state: KeyedStateBackend) -> None:
        """Write one row per open session."""
        slots = np.flatnonzero(self._sessions[: len(self._table), kernel.OWNER] >= 0)
        held = self._sessions[slots]
        keys = self._keys.stored(held[:, kernel.OWNER])
        columns = list(keys.columns)
        columns += [pa.array(held[:, at].copy()) for at in (kernel.START, kernel.END, kernel.ORDER)]
        columns.append(pa.array(held[:, kernel.STATE] == kernel.FIRED))
        columns += self._aggregates.stored(self._table, slots)
        rows = pa.Table.from_arrays(columns, schema=self._rows)
        buffer = state.buffer("sessions", self._rows)
        buffer.replace(0, rows, key_groups_of(keys, state.max_parallelism))

    def load(self, state: KeyedStateBackend) -> None:
        """Take over the rows that former subtasks wrote. Only at the start."""
        rows, _ = state.buffer("sessions", self._rows).get(0)
        rows = rows.sort_by("start").combine_chunks()
        if not rows.num_rows:
            return
        kept = self._keys.kept
        columns = [pa.concat_arrays(rows.column(name).chunks) for name in kept.names]
        numbers = self._keys.numbers(pa.RecordBatch.from_arrays(columns, schema=kept))
        self._make_room(len(numbers))
        starts, ends, orders = (numpy_of(rows.column(n)).copy() for n in ("start", "end", "order"))
        fired = numpy_of(rows.column("fired")).astype(np.int64)
        kernel.restore(
            numbers,
            starts,
            ends,
            orders,
            fired * kernel.FIRED,
            self._lateness,
            self._width,
            self._sessions,
            self._head,
            self._ring,
            self._control,
        )
        self._aggregates.restore(self._table, rows)

    def forget_saved(self, state: KeyedStateBackend) -> None:
        """The rows of the last snapshot are not needed any more."""
        state.buffer("sessions", self._rows).drop(0)

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        used = len(self._table)
        owners = self._sessions[:used, kernel.OWNER]
        opened = np.flatnonzero(owners >= 0)
        assert used == self._control[kernel.USED]
        assert len(opened) == len(self)
        assert len(np.unique(owners[opened])) == self._control[kernel.KEYS]
        assert np.isin(self._sessions[opened, kernel.STATE], (kernel.WAITING, kernel.FIRED)).all()
        assert (self._head[: len(self._keys)] >= 0).sum() == self._control[kernel.KEYS]
        free = np.setdiff1d(np.arange(used), opened)
        assert not self._table.column(self._aggregates.rows)[free].any()

    def _make_room(self, rows: int) -> None:
        """For one more session per row, and an entry per key."""
        self._head = _grown(self._head, len(self._keys))
        self._sessions = _grown(self._sessions, int(self._control[kernel.USED]) + rows)

    def _merge(self, merged: Slots, slots: Slots) -> None:
        """Move what merged sessions held to those that took them over, and rows there too."""
        targets = merged.copy()
        kernel.survivors(self._sessions, targets)
        kernel.survivors(self._sessions, slots)
        self._aggregates.merge(self._table, targets, lambda name: self._table.column(name)[merged])

    def _fold(self, slots: Slots, inputs: list[pa.Array], numbers: Int64s, late: Slots) -> None:
        if len(late):
            rows = np.flatnonzero(slots != kernel.LATE)
            at = pa.array(rows)
            slots, numbers = slots[rows], numbers[rows]
            inputs = [take_column(array, at) for array in inputs]
        self._aggregates.fold(self._table, slots, inputs, numbers)

    def _settle(self, touched: Slots) -> Fired | None:
        count = kernel.settle(self._sessions, touched)
        return self._read(touched[:count]) if count else None

    def _in_order(self, slots: Slots) -> Slots:
        """By end; those of one end as their bounds came about."""
        held = self._sessions[slots]
        return slots[np.lexsort((held[:, kernel.ORDER], held[:, kernel.END]))]

    def _read(self, slots: Slots) -> Fired:
        slots, results = self._aggregates.emitted(self._table, slots)
        held = self._sessions[slots]
        return Fired(
            self._keys.take(held[:, kernel.OWNER]),
            held[:, kernel.START].copy(),
            held[:, kernel.END].copy(),
            results,
        )

    def _release(self, slots: Slots) -> None:
        self._table.reset(slots)
        kernel.release(self._sessions, self._control, slots)

    def _tidy(self) -> None:
        """Forget keys and values that are not in use, if there are many."""
        self._aggregates.compact(self._table)
        if not self._keys.crowded(int(self._control[kernel.KEYS])):
            return
        used = np.flatnonzero(self._head[: len(self._keys)] >= 0)
        numbers = np.full(len(self._keys), -1, dtype=np.int64)
        numbers[used] = np.arange(len(used))
        owners = self._sessions[: len(self._table), kernel.OWNER]
        owners[owners >= 0] = numbers[owners[owners >= 0]]
        heads = self._head[used]
        self._keys.keep(used)
        self._head = _grown(heads, FIRST_SLOTS)


def _grown(array: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """The array with room for `size` entries, new ones -1."""
    if size <= len(array):
        return array
    capacity = max(size, 2 * len(array))
    longer = np.full((capacity, *array.shape[1:]), -1, dtype=np.int64)
    longer[: len(array)] = array
    return longer
