"""When the next checkpoint of a job is due. Pure: told the time, in ms."""

from __future__ import annotations

from datetime import timedelta

from .retry import RetryPause


class Schedule:
    """Periodic checkpoints, and the pauses behind each one and behind failures.

    Invariant: `periodic` only between `start` and `stop`, and where there is an interval."""

    def __init__(self, interval: timedelta | None, pause: timedelta) -> None:
        self._interval_ms = (
            None if interval is None else max(1, int(interval.total_seconds() * 1000))
        )
        self._pause_ms = int(pause.total_seconds() * 1000)
        self._next_ms: int | None = None
        """When the next one is due, before regarding the pause. None: never."""
        self._pause_until_ms = 0
        """None before this time."""
        self._retry = RetryPause()

    @property
    def periodic(self) -> bool:
        """Whether one will be due some time."""
        return self._next_ms is not None

    def start(self, now_ms: int) -> None:
        """The first is due an interval from now."""
        if self._interval_ms is not None:
            self._next_ms = now_ms + self._interval_ms

    def stop(self) -> None:
        """None is due any more."""
        self._next_ms = None

    def now(self, now_ms: int) -> None:
        """The next is due, but for the pause."""
        self._next_ms = now_ms

    def without_pause(self, now_ms: int) -> None:
        """Whatever was before, the pause ends now."""
        self._pause_until_ms = now_ms

    def begun(self, now_ms: int) -> None:
        """One is taken: the next is due an interval later."""
        if self._next_ms is not None:
            self.start(now_ms)

    def completed(self, now_ms: int) -> None:
        """One is complete: no pause of failures is left."""
        self._retry.on_success()
        self.over(now_ms)

    def over(self, now_ms: int) -> None:
        """Something was taken that says nothing of the next one's luck, such as a savepoint."""
        self._pause_until_ms = max(self._pause_until_ms, now_ms + self._pause_ms)

    def failed(self, now_ms: int) -> None:
        """One failed: the pause is longer with each in a row (`RetryPause`)."""
        pause_ms = max(self._pause_ms, self._retry.on_failure())
        self._pause_until_ms = max(self._pause_until_ms, now_ms + pause_ms)

    def due(self, now_ms: int) -> bool:
        next_ms = self.next_ms()
        return next_ms is not None and next_ms <= now_ms

    def paused(self, now_ms: int) -> bool:
        return self._pause_until_ms > now_ms

    @property
    def pause_ends_ms(self) -> int:
        return self._pause_until_ms

    def next_ms(self) -> int | None:
        """When the next periodic one is due; None: never."""
        return None if self._next_ms is None else max(self._next_ms, self._pause_until_ms)
