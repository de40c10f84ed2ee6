"""What rescales brought: how long they took, and whether more subtasks did more."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..core.ids import VertexId

REMEMBERED: Final = 5
"""Rescales whose time counts."""

TRIED_AGAIN_S: Final = 3600.0
"""After which more subtasks are tried again where they did not help."""


@dataclass(frozen=True)
class Gain:
    """What a vertex got: capacities are records/s that it could handle, and should be able to."""

    at_s: float
    before: int
    after: int
    capacity: float
    expected: float

    def reached(self, capacity: float) -> float:
        """The part of the expected gain that is there now."""
        gained, expected = capacity - self.capacity, self.expected - self.capacity
        return gained / expected if expected > 0 else 1.0


@dataclass
class History:
    """Invariant: `times_s` are of the last REMEMBERED rescales that ended well; `gains` hold the
    last change of each vertex."""

    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    gains: dict[VertexId, Gain] = field(default_factory=dict)

    def changed(self, gains: Mapping[VertexId, Gain]) -> None:
        self.gains.update(gains)

    def restart_s(self, assumed_s: float, limit_s: float) -> float:
        """What the next rescale should take: the longest that was seen, up to the limit."""
        return min(max(self.times_s), limit_s) if self.times_s else assumed_s

    def shortfall(
        self, vertex: VertexId, now: tuple[float, int, float], threshold: float
    ) -> float | None:
        """The part of its gain that a vertex reached, if it is below the threshold and it had more
        subtasks than before lately. `now`: the time, its parallelism, its capacity."""
        at_s, parallelism, capacity = now
        last = self.gains.get(vertex)
        if last is None or last.after != parallelism or last.after <= last.before:
            return None
        if at_s - last.at_s >= TRIED_AGAIN_S:
            return None
        reached = last.reached(capacity)
        return reached if reached < threshold else None

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self.times_s) <= REMEMBERED
        assert all(gain.before != gain.after for gain in self.gains.values())
