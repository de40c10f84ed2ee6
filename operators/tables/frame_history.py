"""What the frames of records to come will reach back to: per key, the inputs of its last records.

With frames of the last n rows these are n - 1 records per key; with frames of a range of time those
no older than the range. With frames of all rows so far it would be everything: `running` does that.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...core.arrays import Bools, Int64s
from ...core.batch import take_column
from ...core.growing import Growing
from ...state.backend import AccColumn, KeyedStateBackend
from ...state.key_index import CompositeIndex
from ...state.ttl import Lifetime
from ..key_expiry import NEVER, KeyExpiry
from ..key_turns import Turns, TurnTaking
from .base import Layout, Records
from .expiring_keys import STORED
from .frames import Frames
from .grown import bounds, reindexed
from .kept_rows import KeptRows
from .runs import Runs

_SPARE = 1024


class FrameHistory:
    """`inputs`: aggregates and the columns they look at, in the schema of the layout given here,
    whose records are the inputs and whose event times the times that frames go by."""

    def __init__(
        self,
        layout: Layout,
        state: KeyedStateBackend,
        rows: int | None,
        range_ms: int | None,
        peers: bool,
        life: Lifetime | None,
        operator: str,
    ) -> None:
        """`life`: only of frames of rows; every record stamps its key. `operator`: its name."""
        self._layout = layout
        self._frame_rows = rows
        self._range = range_ms
        self._peers = peers
        self._stored = STORED if life is None else life.column(STORED)
        numbers = () if life is None else (AccColumn(self._stored, "int64", NEVER),)
        self._rows = KeptRows(layout, state, numbers=numbers)
        self._stamps = Growing(np.int64, NEVER)
        """When each key's last record came; each record is stored with that."""
        self._expiry: KeyExpiry | None = None
        if life is not None:
            self._expiry = KeyExpiry(life, state.time, operator, self._forget_some)
            self._turns = TurnTaking(life.ms)
        self._runs = Runs()
        self._index = CompositeIndex(layout.keys)
        self.reached = 0
        """How many rows that were held the last records were looked at with."""
        self._limit = _SPARE
        """Rows held before the next look for old ones."""
        for positions in self._rows.restored():
            self._find(positions)

    def update(
        self,
        records: Records,
        aggregates: list[tuple[Aggregate, int]],
        stamps: Int64s | None,
    ) -> list[pa.Array]:
        """The aggregates (each with the index of its input, -1 for none) for each record, in their
        order; records of a key come in order. `stamps`: the event times of the records."""
        of_rows = self._index.upsert(records.keys.columns)
        self._runs.grow(len(self._index))
        known: dict[str, Int64s] | None = None
        turns: Turns | None = None
        if self._expiry is not None:
            self._stamps.reserve(len(self._index))
            times = self._expiry.times.of(stamps, len(records))
            turns = self._turns.take(of_rows, times, self._stamps.array)
            self._empty(turns.stale)
            known = {self._stored: self._stamps.array[of_rows]}
        if turns is None or turns.of_rows is None:
            slots, owners = np.unique(of_rows, return_inverse=True)
            firsts = lasts = np.ones(len(slots), dtype=np.bool_)
        else:
            numbers = turns.numbers(of_rows)
            _, some, owners = np.unique(numbers, return_index=True, return_inverse=True)
            slots, turn = of_rows[some], turns.of_rows[some]
            firsts, lasts = turn == 0, turn == turns.last[some]
        order = np.argsort(owners, kind="stable")
        held_sizes = np.zeros(len(slots), dtype=np.int64)
        held_sizes[firsts], held = self._runs.gather(slots[firsts])
        self.reached = len(held)
        if known is not None:
            known = {name: values[order] for name, values in known.items()}
        new = self._rows.add(records, order, known)
        new_sizes = np.bincount(owners, minlength=len(slots))
        positions, new_at = _interleave(held_sizes, held, new_sizes, new)
        sizes = held_sizes + new_sizes
        times = self._times(positions)
        starts, ends = self._frames(bounds(sizes), new_at, times)
        frames = Frames(starts, ends, len(positions))
        inputs = self._rows.columns(range(len(self._layout.columns)), positions)
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        results = [
            frames.sizes() if at < 0 else frames.aggregate(aggregate, inputs[at])
            for aggregate, at in aggregates
        ]
        self._keep(slots, sizes, positions, times, lasts)
        return [take_column(result, pa.array(back)) for result in results]

    def prune(self, time: int) -> None:
        """No record up to this time comes any more: forget what no frame reaches."""
        if self._range is None or len(self._rows.table) < self._limit:
            return
        every = np.arange(len(self._index))
        sizes, held = self._runs.gather(every)
        keep = self._times(held) > time - self._range
        self._rows.release(held[~keep])
        owners = np.repeat(every, sizes)[keep]
        self._runs.replace(every, np.bincount(owners, minlength=len(every)), held[keep])
        live = self._runs.live()
        self._index = reindexed(self._index, self._layout.keys, live)
        self._runs.keep(live)
        self._limit = 2 * len(self._rows.table) + _SPARE

    def _find(self, positions: Int64s) -> None:
        """Take in restored rows, behind those taken in already."""
        found = self._index.upsert(self._rows.keys(positions))
        slots, owners = np.unique(found, return_inverse=True)
        self._runs.grow(len(self._index))
        order = np.argsort(owners, kind="stable")
        held_sizes, held = self._runs.gather(slots)
        sizes = np.bincount(owners, minlength=len(slots))
        both, _ = _interleave(held_sizes, held, sizes, positions[order])
        self._runs.replace(slots, held_sizes + sizes, both)
        if self._expiry is not None:
            self._stamps.reserve(len(self._index))
            stamps = self._rows.table.number(self._stored)[positions]
            np.maximum.at(self._stamps.array, found, stamps)

    def _forget_some(self, records: int) -> None:
        """Forget some keys whose time is over, and those without rows when they are the most."""
        assert self._expiry is not None
        count = len(self._index)
        self._runs.grow(count)
        self._stamps.reserve(count)
        gone = self._expiry.some(self._stamps.array[:count], records)
        self._empty(gone)
        self._stamps.array[gone] = NEVER
        live = np.flatnonzero(self._stamps.array[:count] != NEVER) if len(gone) else gone
        if len(gone) and count > 2 * len(live) + _SPARE:
            self._index = reindexed(self._index, self._layout.keys, live)
            self._runs.keep(live)
            self._stamps = Growing.over(self._stamps.array[live], NEVER)
            self._expiry.begin_again()

    def _empty(self, slots: Int64s) -> None:
        """Keep nothing of these keys."""
        sizes, positions = self._runs.gather(slots)
        self._rows.release(positions)
        self._runs.replace(slots, np.zeros_like(sizes), positions[:0])

    def _times(self, positions: Int64s) -> Int64s:
        if not self._layout.stamped:
            return np.zeros(len(positions), dtype=np.int64)
        return self._rows.times(positions)

    def _frames(self, edges: Int64s, new_at: Int64s, times: Int64s) -> tuple[Int64s, Int64s]:
        """Where the frames of the new rows, which are at `new_at`, start and end."""
        first = edges[:-1][np.searchsorted(edges, new_at, side="right") - 1]
        if self._range is None:
            assert self._frame_rows is not None
            return np.maximum(first, new_at - self._frame_rows + 1), new_at + 1
        from ..kernels.over import range_frames

        starts, ends = np.empty(len(new_at), np.int64), np.empty(len(new_at), np.int64)
        range_frames(edges, times, new_at, self._range, self._peers, starts, ends)
        return starts, ends

    def _keep(
        self, slots: Int64s, sizes: Int64s, positions: Int64s, times: Int64s, lasts: Bools
    ) -> None:
        """What frames to come may reach: the last rows of each key, or those young enough. `lasts`:
        which runs are of the key's last turn; they come behind its others."""
        edges = bounds(sizes)
        last = np.repeat(edges[1:] - 1, sizes)
        if self._range is None:
            assert self._frame_rows is not None
            keep = last - np.arange(len(positions)) < self._frame_rows - 1
            keep &= np.repeat(lasts, sizes)
        else:
            keep = times >= times[last] - self._range
        self._rows.release(positions[~keep])
        owners = np.repeat(np.arange(len(slots)), sizes)[keep]
        left = np.bincount(owners, minlength=len(slots))
        self._runs.replace(slots[lasts], left[lasts], positions[keep])


def _interleave(
    held_sizes: Int64s, held: Int64s, new_sizes: Int64s, new: Int64s
) -> tuple[Int64s, Int64s]:
    """Per key its held rows and then its new ones; and where the new ones are."""
    starts = bounds(held_sizes + new_sizes)[:-1]
    held_at = np.arange(len(held)) + np.repeat(starts - bounds(held_sizes)[:-1], held_sizes)
    new_at = np.arange(len(new)) + np.repeat(
        starts + held_sizes - bounds(new_sizes)[:-1], new_sizes
    )
    both = np.empty(len(held) + len(new), dtype=np.int64)
    both[held_at], both[new_at] = held, new
    return both, new_at
