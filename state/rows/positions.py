"""Positions that are given out and taken back, while snapshots still read what lies at them.

A position that was in use when the positions were frozen is not given out again before the freeze
is over: its reader is done, or has been dropped. Until then it is in limbo. So what lies there need
not be copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import ref

import numpy as np

from ...core.arrays import Bools, Int64s

Positions = Int64s

_NONE: Positions = np.empty(0, dtype=np.int64)


class FrozenPositions:
    """Which positions were in use at a point in time."""

    def __init__(self, end: int, unused: list[Positions]) -> None:
        self._end = end
        self._unused = unused
        self._mask: Bools | None = None
        self.over = False
        """Set by the reader when it needs them no more."""

    def in_use(self, positions: Positions) -> Bools:
        """Which of these were in use."""
        mask = self._used()
        known = positions < self._end
        if known.all():
            return mask[positions]
        return known & mask[np.where(known, positions, 0)] if self._end else known

    def all(self) -> Positions:
        """All that were in use, ascending. Any thread may ask."""
        return np.flatnonzero(self._used())

    def _used(self) -> Bools:
        if self._mask is None:
            mask = np.ones(self._end, dtype=np.bool_)
            for some in self._unused:
                mask[some] = False
            self._mask = mask
        return self._mask


@dataclass(frozen=True)
class _Limbo:
    """What was released since a freeze, and was in use then."""

    frozen: ref[FrozenPositions]
    waiting: list[Positions] = field(default_factory=list)

    @property
    def over(self) -> bool:
        frozen = self.frozen()
        return frozen is None or frozen.over


class PositionPool:
    """Invariants: `_free` and the positions in limbo are distinct and below `end`, all others below
    it are in use. `_free` is a stack of arrays, which nobody writes; each is more than twice as
    large as the next, so there are few."""

    def __init__(self) -> None:
        self.end = 0
        """Positions ever given out are below it."""
        self._free: list[Positions] = []
        self._limbos: list[_Limbo] = []
        """Of the freezes that are not over, the oldest first."""
        self._unused = 0

    def __len__(self) -> int:
        """Positions in use."""
        return self.end - self._unused

    def take(self, count: int) -> Positions:
        """So many positions: those that came free last, then new ones, which are ascending."""
        parts: list[Positions] = []
        wanted = count
        while wanted and self._free:
            some = self._free.pop()
            if len(some) > wanted:
                self._free.append(some[:-wanted])
                some = some[-wanted:]
            parts.append(some)
            wanted -= len(some)
        self._unused -= count - wanted
        if wanted:
            parts.append(np.arange(self.end, self.end + wanted))
            self.end += wanted
        return parts[0] if len(parts) == 1 else np.concatenate([*parts, _NONE])

    def release(self, positions: Positions) -> Positions:
        """These, distinct, are not in use any more. Returns those that nobody reads any more, some
        of them released earlier: they are given out from now on."""
        self._unused += len(positions)
        came = self.reclaim()
        limbo = next((one for one in reversed(self._limbos) if not one.over), None)
        frozen = None if limbo is None else limbo.frozen()
        if limbo is None or frozen is None:
            positions = positions.copy()
        else:
            # What was not in use at the last freeze was not at any before it that is not over: it
            # would have been in limbo, and not given out since.
            read = frozen.in_use(positions)
            limbo.waiting.append(positions[read])
            positions = positions[~read]
        self._give(positions)
        return np.concatenate([came, positions]) if len(came) else positions

    def reclaim(self) -> Positions:
        """Those of which the freezes are over since."""
        came: list[Positions] = []
        while self._limbos and self._limbos[0].over:
            came += self._limbos.pop(0).waiting
        if not came:
            return _NONE
        positions = np.concatenate(came)
        self._give(positions)
        return positions

    def freeze(self) -> FrozenPositions:
        """Those in use now, until the result is `over` or dropped."""
        waiting = [some for limbo in self._limbos for some in limbo.waiting]
        frozen = FrozenPositions(self.end, [*self._free, *waiting])
        self._limbos.append(_Limbo(ref(frozen)))
        return frozen

    def used(self) -> Positions:
        """All in use, ascending."""
        return self._now().all()

    def validate(self) -> None:
        """Assert the invariants."""
        unused = [*self._free, *(some for limbo in self._limbos for some in limbo.waiting)]
        listed = np.concatenate([*unused, _NONE])
        assert len(np.unique(listed)) == len(listed) == self._unused
        assert not len(listed) or (listed.min() >= 0 and listed.max() < self.end)

    def _now(self) -> FrozenPositions:
        waiting = [some for limbo in self._limbos for some in limbo.waiting]
        return FrozenPositions(self.end, [*self._free, *waiting])

    def _give(self, positions: Positions) -> None:
        if len(positions):
            self._free.append(positions)
        while len(self._free) > 1 and len(self._free[-2]) <= 2 * len(self._free[-1]):
            last = self._free.pop()
            self._free[-1] = np.concatenate([self._free[-1], last])
