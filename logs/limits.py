"""How many lines one place may say: the first ones of each second, and how many there were more.

Pure: the time is given. A loop over records that logs each would fill disks, and drown what others
say; but what comes first, and that more came, is never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Final

WINDOW_S: Final = 1.0

MOST_PLACES: Final = 4_096
"""So many places are watched; of more, one that suppressed nothing is forgotten."""


@dataclass
class _Window:
    since: float
    taken: int
    dropped: int = 0
    told: Any = None
    """What to say the suppressed lines with, of the first of them."""


class RateLimit:
    """`limit`: lines of one place in `WINDOW_S` seconds; 0: any number.

    Invariant: `_dropping` windows have suppressed lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._windows: dict[Hashable, _Window] = {}
        self._dropping = 0

    def admits(self, place: Hashable, now: float, tell: Callable[[], Any]) -> bool:
        """Whether a line may be said now. `tell` is called for the first that may not: what it
        gives `suppressed` has. Whoever calls has said before what `turned` gives."""
        if not self._limit:
            return True
        window = self._windows.get(place)
        if window is None or (now - window.since >= WINDOW_S and not window.dropped):
            self._windows[place] = _Window(now, 1)
            if len(self._windows) > MOST_PLACES:
                self._forget()
            return True
        if window.taken < self._limit:
            window.taken += 1
            return True
        if not window.dropped:
            window.told = tell()
            self._dropping += 1
        window.dropped += 1
        return False

    @property
    def pending(self) -> bool:
        """Whether lines were suppressed that nobody was told of."""
        return self._dropping > 0

    def turned(self, place: Hashable, now: float) -> tuple[int, Any] | None:
        """As `suppressed`, of one place."""
        window = self._windows.get(place)
        if window is None or not window.dropped or now - window.since < WINDOW_S:
            return None
        del self._windows[place]
        self._dropping -= 1
        return window.dropped, window.told

    def suppressed(self, now: float | None) -> Iterator[tuple[int, Any]]:
        """How many lines of a place were suppressed in a window that is over (`now` None: in any),
        with what `tell` gave; each once."""
        if not self._dropping:
            return
        for place, window in list(self._windows.items()):
            if window.dropped and (now is None or now - window.since >= WINDOW_S):
                del self._windows[place]
                self._dropping -= 1
                yield window.dropped, window.told

    def _forget(self) -> None:
        """The place that began first, of those of which there is nothing to be told."""
        for place, window in self._windows.items():
            if not window.dropped:
                del self._windows[place]
                return
