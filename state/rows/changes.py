"""What changed among rows at positions since a snapshot.

    rows           their place, `__slot`        gone
    ordered        number of arrival            the numbers of those released
    not ordered    position                     the positions that were written or released
    of a log       number                       those that were marked, removed or forgotten

Numbers of arrival are never used again; a position is, and its new row replaces the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.arrays import Bools, Int64s
from ..change_bits import Bits, slots_of
from ..increments import Continuity, Since
from ..slot_changes import MOST_CHANGED, SlotChanges

_NONE = np.empty(0, np.int64)


class PositionRecord:
    """Which positions were written or released. Nothing is recorded before the first call of
    `take_changes`."""

    def __init__(self) -> None:
        self._mask: Bools | None = None

    def note(self, positions: Int64s) -> None:
        """Those beyond the known ones are new anyway."""
        mask = self._mask
        if mask is not None:
            mask[positions[positions < len(mask)]] = True

    def take_changes(self, count: int) -> Bits | None:
        """As `SlotColumns.take_changes`."""
        mask, self._mask = self._mask, np.zeros(-(-count // 64) * 64, np.bool_)
        return None if mask is None else np.packbits(mask, bitorder="little")


@dataclass(frozen=True)
class RowsDelta:
    """`positions`: those written or released, ascending. `gone`: the places whose rows count no
    more, as far as no other row has them now."""

    positions: Int64s
    gone: Int64s
    changes: tuple[Bits, int]
    """The positions once more, as `SlotColumns.freeze` takes them."""


class RowsChanges:
    """The record of one table over its snapshots."""

    def __init__(self) -> None:
        self.record = PositionRecord()
        self._changes = SlotChanges()
        self._continuity = Continuity()
        self._gone: list[Int64s] = []
        """Numbers of arrival released since the last snapshot, of rows that it has."""
        self._since: list[Int64s] = []
        """Likewise between the newest complete snapshot and the last one."""
        self._arrived = self._base_arrived = -1
        """Those of the last snapshot, and of the newest complete one, are below; -1: there is
        none."""

    def released(self, arrived: Int64s) -> None:
        """Rows with these numbers of arrival are gone."""
        if self._arrived > 0:
            self._gone.append(arrived[arrived < self._arrived])

    def advance(
        self, since: Since, end: int, used: int, arrived: int | None, whole: bool
    ) -> RowsDelta | None:
        """A snapshot of the positions below `end`, of which so many are used, is being taken; rows
        that arrived have numbers below `arrived`, None if they are not ordered. What changed since
        the snapshot that is continued; None: all is to be written, as it is if `whole`."""
        came = self._continuity.advance(since)
        if came == "unknown":
            self._changes.renumbered()
        changes = self._changes.advance(self.record, end, came != "failed")
        live, self._gone = self._gone, []
        if came == "failed":
            known = [some[some < self._base_arrived] for some in live]
            self._since = [*self._since, *known]
        else:
            self._since, self._base_arrived = live, self._arrived
        self._arrived = -1 if arrived is None else arrived
        if came == "unknown" or changes is None or whole:
            return None
        bits, known_end = changes
        positions = slots_of(bits, known_end, end)
        if arrived is None:
            gone = positions[positions < known_end]
        else:
            gone = np.concatenate([*self._since, _NONE])
        if len(positions) + len(gone) > MOST_CHANGED * used:
            return None
        return RowsDelta(positions, gone, changes)


class LogChanges:
    """The same of a log: its rows have numbers, which are their places, until it is renumbered; the
    first ones are forgotten."""

    def __init__(self) -> None:
        self.record = PositionRecord()
        self._changes = SlotChanges()
        self._continuity = Continuity()
        self._last_first = self._base_first = 0
        """The first rows of the last snapshot, and of the newest complete one."""

    def renumbered(self) -> None:
        """Numbers mean other rows from here on."""
        self._changes.renumbered()

    def advance(
        self, since: Since, first: int, count: int, live: int, whole: bool
    ) -> RowsDelta | None:
        """A snapshot of rows `first` to `count`, of which so many are not gone, is being taken. As
        of `RowsChanges`."""
        came = self._continuity.advance(since)
        if came == "unknown":
            self._changes.renumbered()
        changes = self._changes.advance(self.record, count, came != "failed")
        if came != "failed":
            self._base_first = self._last_first
        self._last_first = first
        if came == "unknown" or changes is None or whole:
            return None
        bits, known = changes
        rows = slots_of(bits, known, count)
        forgotten = np.arange(self._base_first, min(first, known))
        gone = np.union1d(rows[rows < known], forgotten)
        rows = rows[rows >= first]
        if len(rows) + len(gone) > MOST_CHANGED * live:
            return None
        return RowsDelta(rows, gone, changes)
