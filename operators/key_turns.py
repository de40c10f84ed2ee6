"""Which records of a batch find their key expired, and so begin it anew.

A batch may span more than a time to live. The records of a key up to the one that finds it expired
are one *turn*, those from there on the next. Only the first turn goes on from what is held, and
only the last one is held afterwards: whatever the number of turns, a batch is worked on in three
parts at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.arrays import Int64s
from ..core.growing import Growing
from ..state.backend import AccColumn
from ..state.column_face import SlotTable


@dataclass(frozen=True)
class Turns:
    """Of one batch. `stale`: slots that its first records begin anew. `of_rows`: the turn of each
    record, from 0; None: no key has a second one. `last`: the last turn of each record's key."""

    stale: Int64s
    of_rows: Int64s | None
    last: Int64s

    def parts(self) -> tuple[Int64s, Int64s, Int64s]:
        """The rows of first turns, of those between, and of last ones that are not the first."""
        assert self.of_rows is not None
        later = self.of_rows > 0
        ends = self.of_rows == self.last
        first, between, last = ~later, later & ~ends, later & ends
        return np.flatnonzero(first), np.flatnonzero(between), np.flatnonzero(last)

    def numbers(self, slots: Int64s) -> Int64s:
        """A number for each record, equal for those of one key and turn."""
        assert self.of_rows is not None
        return slots * (int(self.of_rows.max()) + 1) + self.of_rows


class TurnTaking:
    """Takes turns, batch by batch; every record stamps its key."""

    def __init__(self, ttl: int) -> None:
        self._ttl = ttl
        self._turn = Growing(np.int32, -1)
        """Scratch: the turn of each slot, -1 between batches."""

    def take(self, slots: Int64s, times: Int64s, stamps: Int64s) -> Turns:
        """`stamps`: of all slots; they become those after the batch."""
        from .kernels.expiry import take_turns

        if len(slots):
            self._turn.reserve(int(slots.max()) + 1)
        turn = self._turn.array
        of_rows, stale = np.empty((2, len(slots)), dtype=np.int64)
        count = take_turns(slots, times, self._ttl, stamps, turn, of_rows, stale)
        last = turn[slots].astype(np.int64)
        turn[slots] = -1
        several = bool(len(slots)) and bool(last.max())
        return Turns(stale[:count], of_rows if several else None, last)


class TurnEntries:
    """What is held of keys of which some expire within a batch: an entry for each turn. Of a key's
    first turn it is what `table` holds, of its last what `put_back` puts there. `of_rows`: the
    entry of each record."""

    def __init__(
        self, columns: Sequence[AccColumn], table: SlotTable, slots: Int64s, turns: Turns
    ) -> None:
        assert turns.of_rows is not None
        _, some, entries = np.unique(turns.numbers(slots), return_index=True, return_inverse=True)
        self.of_rows: Int64s = entries
        self._table = table
        self._slots = slots[some]
        self._lasts = turns.of_rows[some] == turns.last[some]
        firsts = turns.of_rows[some] == 0
        self._columns: dict[str, npt.NDArray[Any]] = {}
        for column in columns:
            held = np.full(len(some), column.initial, dtype=column.dtype)
            held[firsts] = table.column(column.name)[self._slots[firsts]]
            self._columns[column.name] = held

    def column(self, name: str) -> npt.NDArray[Any]:
        """As of a table."""
        return self._columns[name]

    def put_back(self) -> None:
        """Have the table hold what the last turns came to."""
        slots = self._slots[self._lasts]
        for name, held in self._columns.items():
            self._table.column(name)[slots] = held[self._lasts]
