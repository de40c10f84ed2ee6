"""How a task spends its time: at work, held up by full outputs, or with nothing to do.

Two looks at the clock per step, which handles about a batch. Between steps a task waits, or, on the
local host, other tasks of its thread work: that is idle time, too.
"""

from __future__ import annotations

from collections.abc import Callable


class TaskTimes:
    """`begin` and `end` around each step, `report` now and then. Seconds; used on the task's
    thread."""

    __slots__ = (
        "_all_backpressured",
        "_all_busy",
        "_all_idle",
        "_backpressured",
        "_began",
        "_blocked",
        "_busy",
        "_ended",
        "_now",
        "_reported",
    )

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = self._ended = self._reported = now()
        self._busy = 0.0
        """Since `_reported`; so is `_backpressured`. Together they are at most the time since."""
        self._backpressured = 0.0
        self._all_busy = self._all_backpressured = self._all_idle = 0.0
        """Milliseconds up to the last report."""
        self._blocked = False
        """Whether the last step found nothing that its outputs would take."""

    def begin(self) -> None:
        now = self._now()
        if self._blocked:
            self._backpressured += now - self._ended
        self._began = now

    def end(self, did_something: bool, blocked: bool) -> None:
        """A step is over. `blocked`: it did nothing, and outputs are full."""
        now = self._now()
        if did_something:
            self._busy += now - self._began
        elif blocked:
            self._backpressured += now - self._began
        self._ended = now
        self._blocked = blocked

    def report(self) -> dict[str, float]:
        """Milliseconds per second since the last report, and since the beginning, by Flink's names.
        Within a step: its time so far is work."""
        now = self._now()
        span = now - self._reported
        busy, held = self._busy + now - self._began, self._backpressured
        self._busy = self._backpressured = 0.0
        self._began = self._reported = now
        busy_ms = held_ms = 0.0
        if span > 0:
            busy_ms = min(1000.0, 1000.0 * busy / span)
            held_ms = min(1000.0 - busy_ms, 1000.0 * held / span)
            self._all_busy += busy_ms * span
            self._all_backpressured += held_ms * span
            self._all_idle += (1000.0 - busy_ms - held_ms) * span
        return {
            "busyTimeMsPerSecond": busy_ms,
            "backPressuredTimeMsPerSecond": held_ms,
            "idleTimeMsPerSecond": 1000.0 - busy_ms - held_ms,
            "accumulateBusyTimeMs": self._all_busy,
            "accumulateBackPressuredTimeMs": self._all_backpressured,
            "accumulateIdleTimeMs": self._all_idle,
        }
