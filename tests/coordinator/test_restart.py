"""Restart policies over time (ms)."""

from __future__ import annotations

import json
import random
from datetime import timedelta

import pytest
from strom.core.config import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from strom.core.errors import ConfigurationError
from strom.engine.coordinator.restart import make_policy


def ms(n: int) -> timedelta:
    return timedelta(milliseconds=n)


def test_no_restart() -> None:
    policy = make_policy(NoRestart(), random.Random(0))
    policy.on_stable(0)
    assert policy.on_failure(1) is None
    assert policy.why_not() is None


def test_fixed_delay_runs_out_and_is_not_given_back() -> None:
    policy = make_policy(FixedDelayRestart(2, ms(70)), random.Random(0))
    assert policy.on_failure(0) == 70
    policy.on_stable(10)
    assert policy.on_failure(10**9) == 70
    assert policy.on_failure(2 * 10**9) is None
    assert policy.why_not() == "its restart strategy allows 2 restarts in all"


def exponential(jitter: float = 0.0) -> ExponentialDelayRestart:
    return ExponentialDelayRestart(ms(100), ms(1000), 3.0, jitter, ms(5000))


def test_exponential_delay_grows_to_the_maximum() -> None:
    policy = make_policy(exponential(), random.Random(0))
    assert [policy.on_failure(t) for t in range(5)] == [100, 300, 900, 1000, 1000]


def test_exponential_delay_is_reset_by_running_long_enough() -> None:
    policy = make_policy(exponential(), random.Random(0))
    policy.on_failure(0)
    # Ran 4,999 ms: not long enough.
    policy.on_stable(1_000)
    assert policy.on_failure(5_999) == 300
    # Ran 5,000 ms: forgiven.
    policy.on_stable(10_000)
    assert policy.on_failure(15_000) == 100
    # Failed again long after, but never reached RUNNING in between.
    assert policy.on_failure(90_000) == 300


def test_jitter_is_drawn_from_the_given_source() -> None:
    policy = make_policy(exponential(0.5), random.Random(3))
    again = make_policy(exponential(0.5), random.Random(3))
    delays = [policy.on_failure(0) for _ in range(200)]
    assert delays == [again.on_failure(0) for _ in range(200)]
    later = [d for d in delays[3:] if d is not None]
    assert 500 <= min(later) < 600
    assert 1400 < max(later) <= 1500


def test_failure_rate_forgets_old_failures() -> None:
    policy = make_policy(FailureRateRestart(2, ms(1000), ms(5)), random.Random(0))
    assert policy.on_failure(0) == 5
    assert policy.on_failure(900) == 5
    # The failure at 0 is more than 1,000 ms ago.
    assert policy.on_failure(1_500) == 5
    # 900, 1,500 and 1,600 are within 1,000 ms.
    assert policy.on_failure(1_600) is None
    assert "allows 2 failures within 1 s, and this was one more" in str(policy.why_not())


@pytest.mark.parametrize(
    "strategy",
    [
        NoRestart(),
        FixedDelayRestart(5, ms(70)),
        exponential(),
        FailureRateRestart(3, ms(1000), ms(5)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_another_coordinator_goes_on_where_the_one_before_was(strategy: RestartStrategy) -> None:
    """It may die at any time; the record of it is JSON."""
    answers = []
    for seed in range(50):
        rng, now = random.Random(seed), 0
        one = make_policy(strategy, random.Random(0))
        many = make_policy(strategy, random.Random(0))
        for _ in range(12):
            now += rng.choice((10, 300, 2_000))
            if rng.random() < 0.5:
                kept = json.loads(json.dumps(many.failed()))
                many = make_policy(strategy, random.Random(0), kept)
            answers.append(one.on_failure(now))
            assert many.on_failure(now) == answers[-1], f"seed {seed}"
    assert None in answers or isinstance(strategy, ExponentialDelayRestart)
    assert not make_policy(strategy, random.Random(0)).failed()


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="multiplier"):
        make_policy(ExponentialDelayRestart(multiplier=0.5), random.Random(0))
    with pytest.raises(ConfigurationError, match="delay"):
        make_policy(FixedDelayRestart(1, ms(-1)), random.Random(0))
