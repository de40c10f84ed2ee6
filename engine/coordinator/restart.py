"""Whether and when a failed job starts again. Pure: time and randomness are passed in.

What a policy knows of the failures so far outlives the coordinator: a job that fails again and
again would never be given up, if its coordinator died now and then. (Flink begins anew.)
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from ...core.config import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from ...core.errors import ConfigurationError

Failed = Sequence[float]
"""What a policy knows of the failures so far, for another one of the same strategy; empty: there
were none."""


class RestartPolicy(Protocol):
    """The memory of one job's failures. Times are ms, never going back, but from one coordinator to
    the next, whose machines may differ a little."""

    def failed(self) -> Failed:
        """As `make_policy` takes it."""
        ...

    def on_failure(self, now_ms: int) -> int | None:
        """The job failed: how many ms to wait before starting again, None: do not."""
        ...

    def on_stable(self, now_ms: int) -> None:
        """The job reached RUNNING."""
        ...

    def why_not(self) -> str | None:
        """What to say where `on_failure` gave None; None: that none is wanted at all."""
        ...


class NoRestartPolicy:
    """Never again."""

    def failed(self) -> Failed:
        return ()

    def on_failure(self, now_ms: int) -> int | None:
        return None

    def on_stable(self, now_ms: int) -> None:
        """Changes nothing."""

    def why_not(self) -> None:
        """Nobody expects a restart."""


class FixedDelayPolicy:
    """A number of restarts for the whole life of the job."""

    def __init__(self, strategy: FixedDelayRestart, failed: Failed = ()) -> None:
        """`failed`: how often."""
        self._delay_ms = _ms(strategy.delay, "delay")
        self._attempts = strategy.attempts
        self._left = strategy.attempts - int(sum(failed))
        """Restarts still allowed; only shrinks."""

    def failed(self) -> Failed:
        return (self._attempts - self._left,) if self._left < self._attempts else ()

    def on_failure(self, now_ms: int) -> int | None:
        if self._left <= 0:
            return None
        self._left -= 1
        return self._delay_ms

    def on_stable(self, now_ms: int) -> None:
        """Changes nothing: the attempts are not given back."""

    def why_not(self) -> str:
        return f"its restart strategy allows {self._attempts} restarts in all"


class ExponentialDelayPolicy:
    """Waits longer from failure to failure, until the job has run well for a while."""

    def __init__(
        self, strategy: ExponentialDelayRestart, rng: random.Random, failed: Failed = ()
    ) -> None:
        """`failed`: the next delay."""
        if strategy.multiplier < 1 or not 0 <= strategy.jitter < 1:
            raise ConfigurationError(
                f"exponential restart needs multiplier >= 1 and 0 <= jitter < 1, has "
                f"{strategy.multiplier} and {strategy.jitter}"
            )
        self._initial_ms = _ms(strategy.initial, "initial")
        self._maximum_ms = _ms(strategy.maximum, "maximum")
        self._reset_after_ms = _ms(strategy.reset_after, "reset_after")
        self._multiplier = strategy.multiplier
        self._jitter = strategy.jitter
        self._rng = rng
        self._next_ms = float(max([self._initial_ms, *failed]))
        """The next delay before jitter; between the initial and the maximum one."""
        self._running_since: int | None = None
        """When the job last reached RUNNING, None since the failure after that."""

    def failed(self) -> Failed:
        return (self._next_ms,) if self._next_ms > self._initial_ms else ()

    def on_failure(self, now_ms: int) -> int | None:
        since, self._running_since = self._running_since, None
        if since is not None and now_ms - since >= self._reset_after_ms:
            self._next_ms = self._initial_ms
        delay = min(self._next_ms, self._maximum_ms)
        self._next_ms = min(delay * self._multiplier, self._maximum_ms)
        return round(delay * self._rng.uniform(1 - self._jitter, 1 + self._jitter))

    def on_stable(self, now_ms: int) -> None:
        self._running_since = now_ms

    def why_not(self) -> None:
        """It never gives up."""


class FailureRatePolicy:
    """Restarts while failures stay rare."""

    def __init__(self, strategy: FailureRateRestart, failed: Failed = ()) -> None:
        """`failed`: when."""
        self._allowed = strategy.failures
        self._interval_ms = _ms(strategy.interval, "interval")
        self._delay_ms = _ms(strategy.delay, "delay")
        self._failures: deque[float] = deque(failed)
        """Times of the failures within the interval before the latest one, ascending."""

    def failed(self) -> Failed:
        return tuple(self._failures)

    def on_failure(self, now_ms: int) -> int | None:
        self._failures.append(now_ms)
        while self._failures[0] < now_ms - self._interval_ms:
            self._failures.popleft()
        return self._delay_ms if len(self._failures) <= self._allowed else None

    def on_stable(self, now_ms: int) -> None:
        """Changes nothing: only the rate counts."""

    def why_not(self) -> str:
        return (
            f"its restart strategy allows {self._allowed} failures within "
            f"{self._interval_ms / 1000:g} s, and this was one more"
        )


def make_policy(
    strategy: RestartStrategy, rng: random.Random, failed: Failed = ()
) -> RestartPolicy:
    """The running policy for a configured strategy; `rng` draws the jitter. `failed`: what the one
    of the coordinator before this came to."""
    match strategy:
        case NoRestart():
            return NoRestartPolicy()
        case FixedDelayRestart():
            return FixedDelayPolicy(strategy, failed)
        case ExponentialDelayRestart():
            return ExponentialDelayPolicy(strategy, rng, failed)
        case FailureRateRestart():
            return FailureRatePolicy(strategy, failed)


def _ms(duration: timedelta, name: str) -> int:
    if duration < timedelta(0):
        raise ConfigurationError(f"restart {name} must not be negative, is {duration}")
    return int(duration.total_seconds() * 1000)
