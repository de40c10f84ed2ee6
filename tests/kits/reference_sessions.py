"""`sessions` in plain Python: open sessions as a list per key, no slots, no wheel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Session:
    """[start, end) of one key; `order`: number of the record that last changed the bounds;
    `members`: numbers of all its records; `touched`: has to fire now, as the watermark is past."""

    key: int
    start: int
    end: int
    order: int
    members: set[int] = field(default_factory=set)
    fired: bool = False
    touched: bool = False

    @property
    def face(self) -> tuple[int, int, int, int, tuple[int, ...]]:
        return self.key, self.start, self.end, self.order, tuple(sorted(self.members))


@dataclass
class Sessions:
    lateness: int
    open: list[Session] = field(default_factory=list)

    def assign(
        self,
        keys: Sequence[int],
        times: Sequence[int],
        gaps: Sequence[int],
        number: int,
        watermark: int,
    ) -> list[bool]:
        """Which records are late; the others become part of a session. `gaps`: one or one each."""
        gaps = gaps if len(gaps) > 1 else [*gaps] * len(keys)
        return [
            not self._add(key, time, time + gap, number + i, watermark)
            for i, (key, time, gap) in enumerate(zip(keys, times, gaps, strict=True))
        ]

    def _add(self, key: int, low: int, high: int, number: int, watermark: int) -> bool:
        near = [s for s in self.open if s.key == key and s.start <= high and s.end >= low]
        if not near and high - 1 + self.lateness <= watermark:
            return False
        start, end = min([low, *(s.start for s in near)]), max([high, *(s.end for s in near)])
        whole = Session(key, start, end, number, {number})
        for session in near:
            whole.members |= session.members
            self.open.remove(session)
        for session in near:
            if (session.start, session.end) == (start, end):
                whole.order, whole.fired = session.order, session.fired
        whole.touched = end - 1 <= watermark
        whole.fired = whole.fired and not whole.touched
        self.open.append(whole)
        return True

    def settle(self) -> list[Session]:
        """Sessions that have to fire now that a batch is over."""
        found = [s for s in self.open if s.touched]
        for session in found:
            session.touched, session.fired = False, True
        return found

    def take_due(self, watermark: int) -> tuple[list[Session], list[Session]]:
        """Sessions to fire at this watermark, and those that are over."""
        firing = [s for s in self.open if not s.fired and s.end - 1 <= watermark]
        for session in firing:
            session.fired = True
        ending = [s for s in self.open if s.end - 1 + self.lateness <= watermark]
        self.open = [s for s in self.open if s not in ending]
        return firing, ending

    def next_end(self) -> int:
        """The least end - 1 of open sessions."""
        return min(session.end - 1 for session in self.open)
