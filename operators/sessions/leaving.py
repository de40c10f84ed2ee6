"""Sessions that leave the kernel's table for the state's away entries, and come back.

A key leaves with all its sessions, so that a record which comes for it finds all it may extend or
join. It is back before the kernel sees a record of it, or a watermark that one of its sessions is
due at: the kernel never knows of sessions that are away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...core.arrays import Bools, Int64s, Slots
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.away import AwayEntries, Brought, Due, first_due
from ..kernels import sessions as kernel


class Chained(Protocol):
    """What is asked of the store: its arrays as they are now, and to make them anew."""

    @property
    def sessions(self) -> npt.NDArray[np.int64]: ...
    @property
    def head(self) -> npt.NDArray[np.int64]: ...
    @property
    def control(self) -> npt.NDArray[np.int64]: ...

    def enter(self, count: int) -> Slots:
        """Slots for so many sessions."""
        ...

    def chain_more(self, slots: Slots) -> None:
        """The sessions there, of keys that have no others, are open."""
        ...

    def end(self, slots: Slots) -> None:
        """These are not open any more."""
        ...

    def release(self, slots: Slots) -> None:
        """These are free."""
        ...

    def renumber(self, slots: Slots) -> None:
        """The sessions there, which are all, are in slots 0, 1, ... now, and have new owners."""
        ...


def dues_of(ends: Int64s, states: Int64s, lateness: int) -> Int64s:
    """When sessions are to be looked at: to fire, or to be forgotten if they have fired."""
    ends = ends - 1
    last = np.where(ends <= MAX_TIMESTAMP - lateness, ends + lateness, MAX_TIMESTAMP)
    dues: Int64s = np.where(states == kernel.FIRED, last, ends)
    return dues


def due_by(lateness: int) -> Due:
    """The same of sessions as state has them."""
    return lambda sessions: dues_of(sessions["end"], sessions["state"], lateness)


class Leaving:
    """The sessions of one store that are away."""

    def __init__(self, away: AwayEntries, chained: Chained, lateness: int) -> None:
        self._away = away
        self._chained = chained
        self._lateness = lateness

    @property
    def soonest(self) -> int:
        """No session that is away is due before; MAX_TIMESTAMP if none is away."""
        return self._away.soonest

    @property
    def some(self) -> bool:
        """Whether sessions are away."""
        return self._away.keys_away > 0

    def recall(self, numbers: Slots) -> None:
        """Have the sessions of these keys here."""
        if self._away.keys_away:
            strangers = np.unique(numbers[self._chained.head[numbers] < 0])
            self._come(self._away.take(strangers))

    def due(self, watermark: int) -> bool:
        """Whether a session that is away is due, or may be."""
        return self._away.keys_away > 0 and self._away.soonest <= watermark

    def bring(self, watermark: int) -> Iterator[int]:
        """Bring all that is due up to there, as much at a time as fits, in order of time. Each time
        up to when all is here: that is to be acted on before the next comes."""
        until = MIN_TIMESTAMP
        while until < watermark and self.due(watermark):
            until = self._away.bound(until, watermark)
            self._come(self._away.take_due(until))
            yield until
            self.make_room(until)
        if until < watermark:
            yield watermark

    def make_room(self, acted: int = MIN_TIMESTAMP) -> None:
        """Let keys go that are more than the state may hold, but for those due up to `acted`."""
        open_, keys = self._counts()
        count = self._away.leaving(keys, open_)
        if count > 0:
            self._go(self._away.idle(count, self._may_leave), acted)
            open_, keys = self._counts()
        if self._away.sparse(keys, open_):
            slots = np.flatnonzero(self._chained.sessions[:, kernel.OWNER] >= 0)
            used = int(self._chained.control[kernel.USED])
            slots = slots[slots < used]
            self._away.compact(slots)
            self._chained.renumber(slots)

    def _counts(self) -> tuple[int, int]:
        """Sessions that are here, and their keys."""
        control = self._chained.control
        return int(control[kernel.OPEN]), int(control[kernel.KEYS])

    def _may_leave(self, start: int, stop: int) -> Bools:
        there: Bools = self._chained.head[start:stop] >= 0
        return there

    def _come(self, brought: Brought) -> None:
        if len(brought):
            slots = self._chained.enter(len(brought))
            self._away.put(slots, brought)
            self._chained.chain_more(slots)

    def _go(self, numbers: Slots, acted: int) -> None:
        chained = self._chained
        sessions = chained.sessions
        found = np.empty(int(chained.control[kernel.OPEN]), dtype=np.int64)
        count = kernel.sessions_of(numbers, sessions, chained.head, found)
        slots = found[:count]
        if acted > MIN_TIMESTAMP and count:
            numbers, slots = self._not_due(numbers, slots, acted)
        if len(numbers):
            chained.end(slots)
            self._away.leave(numbers, slots)
            chained.release(slots)

    def _not_due(self, numbers: Slots, slots: Slots, acted: int) -> tuple[Slots, Slots]:
        """Those keys of which nothing is due, and their sessions."""
        held = self._chained.sessions[slots]
        counts = np.diff(
            np.append(np.flatnonzero(np.diff(held[:, kernel.OWNER], prepend=-1)), len(held))
        )
        dues = dues_of(held[:, kernel.END], held[:, kernel.STATE], self._lateness)
        later = first_due(dues, counts) > acted
        return numbers[later], slots[np.repeat(later, counts)]
