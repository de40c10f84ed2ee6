"""How often a call to a storage is tried, and how long to wait in between.

Pure: who calls knows the errors and waits. The pauses double, and each is drawn from its second
half: tasks that were throttled together do not come back together.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ..core.transient import is_transient


@dataclass(frozen=True)
class AttemptPolicy:
    """`most` attempts; pauses of `first_ms`, twice that and so on, `longest_ms` at most. As it is:
    six attempts within about three seconds."""

    most: int = 6
    first_ms: int = 100
    longest_ms: int = 5_000


class Attempts:
    """The attempts of one call.

    >>> attempts = Attempts(AttemptPolicy(most=3), draw=lambda: 1.0)
    >>> [attempts.after(TimeoutError()) for _ in range(3)]
    [100.0, 200.0, None]
    >>> Attempts(AttemptPolicy()).after(PermissionError()) is None
    True
    """

    def __init__(self, policy: AttemptPolicy, draw: Callable[[], float] = random.random) -> None:
        """`draw`: a number from 0 to 1, any as likely as any other."""
        self._policy = policy
        self._draw = draw
        self.made = 0
        """Attempts that failed; at most `policy.most`."""

    def after(self, error: BaseException) -> float | None:
        """An attempt failed: ms until the next one, None if there is none."""
        self.made += 1
        if self.made >= self._policy.most or not is_transient(error):
            return None
        whole = float(min(self._policy.first_ms << self.made - 1, self._policy.longest_ms))
        return whole * (0.5 + 0.5 * self._draw())
