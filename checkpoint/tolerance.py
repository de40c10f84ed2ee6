"""How many checkpoints may fail in a row, and what is said of those that do.

What fails for the same cause again and again, as on a full disk, is said once. Pure, and a part of
the checkpoint coordinator.
"""

from __future__ import annotations

from ..core.ids import CheckpointId
from .coordinator_types import FailJob, Say
from .retry import Causes


class Tolerance:
    """Of one job."""

    def __init__(self, tolerable: int) -> None:
        """`tolerable`: so many may fail in a row."""
        self._tolerable = tolerable
        self._in_a_row = 0
        """Failed since the last completed one or restart; at most `tolerable` while running."""
        self._causes = Causes()

    def begin(self) -> None:
        """An attempt begins."""
        self._in_a_row = 0

    def completed(self) -> None:
        """A checkpoint has."""
        self._in_a_row = 0
        self._causes.forget()

    def failed(self, n: CheckpointId, reason: str) -> list[FailJob | Say]:
        """Checkpoint `n` failed by itself: what is to be done, or to be said, if anything."""
        self._in_a_row += 1
        count = f"{self._in_a_row} in a row, " if self._in_a_row > 1 else ""
        text = f"checkpoint {n} failed: {reason}"
        allowed = f"{count}tolerable_failures is {self._tolerable}"
        is_new = self._causes.is_new(reason)
        if self._in_a_row > self._tolerable:
            return [FailJob(f"{text} ({allowed})")]
        if is_new:
            quiet = "until one completes, others that fail for this cause are not logged"
            return [Say(f"{text} ({allowed}; {quiet})")]
        return []
