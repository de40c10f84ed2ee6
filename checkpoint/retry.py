"""What follows a checkpoint that failed and is tried again: how long to wait, and what to say.

Pure: the coordinator knows the time, and adds the pause to it.
"""

from __future__ import annotations

import re
from typing import Final

FIRST_MS: Final = 50
"""The pause after the first failure. Each further one doubles it."""

LONGEST_MS: Final = 10_000
"""No pause is longer: this is how late a job notices that a full disk has room again."""

_NUMBERS: Final = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")
_MOST: Final = 100
_LONG: Final = 400


class RetryPause:
    """The pause after failures in a row, over all restarts: 50 ms, 100 ms, 200 ms to 10 s.

    >>> pause = RetryPause()
    >>> [pause.on_failure() for _ in range(4)]
    [50, 100, 200, 400]
    >>> pause.on_success()
    >>> pause.on_failure()
    50
    """

    def __init__(self) -> None:
        self._next_ms = FIRST_MS
        """From FIRST_MS to LONGEST_MS."""

    def on_failure(self) -> int:
        """A checkpoint failed: ms until the next one may be tried."""
        pause_ms = self._next_ms
        self._next_ms = min(2 * pause_ms, LONGEST_MS)
        return pause_ms

    def on_success(self) -> None:
        """A checkpoint completed."""
        self._next_ms = FIRST_MS


class Causes:
    """The causes of failure that have been said since the last success. Causes that differ only
    in numbers (a checkpoint's folder, a subtask, a temporary name) are one.

    >>> causes = Causes()
    >>> causes.is_new("chk-7/f: no space"), causes.is_new("chk-8/f: no space")
    (True, False)
    """

    def __init__(self) -> None:
        self._said: set[str] = set()
        """At most _MOST, the first _LONG characters of each: it does not grow for ever."""

    def is_new(self, cause: str) -> bool:
        """Whether to say it; from now on it counts as said."""
        kind = _NUMBERS.sub("#", cause[:_LONG])
        if kind in self._said or len(self._said) >= _MOST:
            return False
        self._said.add(kind)
        return True

    def forget(self) -> None:
        """A checkpoint completed: the next failure is news, whatever its cause."""
        self._said.clear()
