"""When a job goes on with fewer subtasks than it is to have, and when it grows again. Pure: what
there is room for (`fitting`) and the time are given, in seconds of any clock.

As in Flink's adaptive scheduler:

    before an attempt      room for all                     it starts, as soon as the slots are made
                           room for less, unchanged for     it starts with that
                           `stabilization`
                           not even for the least           it waits; the start fails after `wait`
    while the job runs     room for all                     it grows, `cooldown` after the last
                                                            change
                           more room than it has, for       it grows to that
                           `growth_stabilization`
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.adaptive_config import AdaptiveConfig


@dataclass(frozen=True)
class Wait:
    """Nothing is decided yet."""


@dataclass(frozen=True)
class Smaller:
    """Go on with this parallelism."""

    parallelism: int


@dataclass(frozen=True)
class TooLittle:
    """There is no room for the least."""


Verdict = Wait | Smaller | TooLittle


class Waiting:
    """For the slots of one attempt, which have been asked for."""

    def __init__(self, config: AdaptiveConfig, most: int, now: float) -> None:
        """`most`: the parallelism that the job has."""
        self._config = config
        self._most = most
        self._began = self._since = now
        """When it began, and since when there has been as much room as now."""
        self._seen: int | None = None

    def look(self, fitting: int | None, placed: int | None, now: float) -> Verdict:
        """The slots are not all there. `fitting`: up to the job's parallelism, in what is free and
        what its slots have; `placed`: in what they have alone. None: not even the least."""
        if fitting != self._seen:
            self._seen, self._since = fitting, now
        if now - self._began >= self._config.wait.total_seconds():
            # Where all should fit, and Ray does not find the places, it is what it has found.
            last = placed if fitting == self._most else fitting
            return TooLittle() if last is None else Smaller(last)
        if fitting is None or fitting >= self._most:
            return Wait()
        stable = now - self._since >= self._config.stabilization.total_seconds()
        return Smaller(fitting) if stable else Wait()


class Growing:
    """Of a job that runs with less than it is to have."""

    def __init__(self, config: AdaptiveConfig) -> None:
        self._config = config
        self._current = 0
        self._changed = 0.0
        """Since when it is that, or an attempt to grow failed."""
        self._seen = 0
        self._since = 0.0
        """Since when there has been as much room as now."""

    def failed(self, now: float) -> None:
        """The job did not grow."""
        self._changed = now

    def look(self, current: int, fitting: int | None, most: int, now: float) -> int | None:
        """What it is to grow to now, if it is. `fitting`: beside what it has, up to `most`."""
        if current != self._current:
            self._current, self._changed = current, now
        fitting = current if fitting is None else fitting
        if fitting != self._seen:
            self._seen, self._since = fitting, now
        if fitting <= current or now - self._changed < self._config.cooldown.total_seconds():
            return None
        patience = self._config.growth_stabilization.total_seconds()
        return fitting if fitting >= most or now - self._since >= patience else None
