"""What follows a commit that failed: another try and when, another attempt of the job, or its end.

passes     RetryableCommitError, and what `core.transient` knows: tried again in place, after
           pauses that double, within the limits of the configuration; behind these the job
           fails
final      CommitError and what else says that it is not `recoverable`, missing permissions,
           files that are gone: the job fails at once
unknown    all else fails the task: the restart strategy says whether another writer, which
           begins with new connections, is to try
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import Enum

from ...core.commit_config import CommitConfig
from ...core.errors import RetryableCommitError, StromError
from ...core.transient import is_transient

_MOST_CAUSES = 8


class Verdict(Enum):
    """On an error of a commit."""

    PASSES = "passes"
    FINAL = "final"
    UNKNOWN = "unknown"


def verdict(error: BaseException) -> Verdict:
    """
    >>> verdict(TimeoutError()), verdict(PermissionError()), verdict(ValueError())
    (<Verdict.PASSES: 'passes'>, <Verdict.FINAL: 'final'>, <Verdict.UNKNOWN: 'unknown'>)
    """
    if not isinstance(error, Exception):
        return Verdict.UNKNOWN
    causes = list(_causes(error))
    if any(isinstance(one, StromError) and not one.recoverable for one in causes):
        return Verdict.FINAL
    if isinstance(error, RetryableCommitError) or is_transient(error):
        return Verdict.PASSES
    if any(isinstance(one, (PermissionError, FileNotFoundError)) for one in causes):
        return Verdict.FINAL
    return Verdict.UNKNOWN


def is_fenced(error: BaseException) -> bool:
    """Whether it says that another has taken over."""
    return any(isinstance(one, StromError) and one.fenced for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if found is None:
            return
        yield found
        found = found.__cause__


class CommitTries:
    """The tries of one commit after the other; pure.

    >>> tries = CommitTries(CommitConfig(retries=3), seed="", draw=lambda: 1.0)
    >>> [tries.after(TimeoutError(), now_ms) for now_ms in (0, 200, 600, 1400)]
    [200, 600, 1400, None]
    >>> tries.made, tries.lasted_ms(1400)
    (4, 1400)
    """

    def __init__(
        self, config: CommitConfig, seed: str, draw: Callable[[], float] | None = None
    ) -> None:
        """`seed`: who commits, so that not all come at once, and a run can be repeated. `draw`: a
        number from 0 to 1; None: by the seed."""
        self._config = config
        self._draw = draw or random.Random(seed).random
        self.made = 0
        """Tries that failed since the last success; at most one more than there are retries."""
        self._began_ms = 0
        """When the first of them failed."""

    def after(self, error: BaseException, now_ms: int) -> int | None:
        """A try failed: when the next one is due (ms); None: there is none."""
        if not self.made:
            self._began_ms = now_ms
        self.made += 1
        config = self._config
        if verdict(error) is not Verdict.PASSES or self.made > config.retries:
            return None
        delay_s = config.delay.total_seconds() * 2.0 ** min(self.made - 1, 40)
        delay_s = min(delay_s, config.longest_delay.total_seconds())
        due = now_ms + max(1, round(delay_s * 1000.0 * (0.5 + 0.5 * self._draw())))
        if due - self._began_ms > config.timeout.total_seconds() * 1000.0:
            return None
        return due

    def succeeded(self) -> None:
        """The next failure is the first of another commit."""
        self.made = 0

    def lasted_ms(self, now_ms: int) -> int:
        """Since the first failure."""
        return now_ms - self._began_ms if self.made else 0
