"""What the coordinator does when a job fails, as PyFlink has it."""

from __future__ import annotations

from datetime import timedelta

from ...core.config import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from ...core.errors import ConfigurationError
from ..types.durations import Interval, to_timedelta


class RestartStrategies:
    """What the coordinator does when a job fails."""

    @staticmethod
    def no_restart() -> NoRestart:
        return NoRestart()

    @staticmethod
    def fall_back_restart() -> None:
        """What the configuration says; without a word of it exponential delay if checkpointing is
        enabled, else no restart."""
        return None

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: Interval
    ) -> FixedDelayRestart:
        """Restart at most `restart_attempts` times."""
        if restart_attempts < 0:
            raise ConfigurationError(f"restart_attempts must not be negative: {restart_attempts}")
        delay = to_timedelta(delay_between_attempts, "delay_between_attempts")
        return FixedDelayRestart(restart_attempts, delay)

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: Interval, delay_interval: Interval
    ) -> FailureRateRestart:
        """Restart while no more than `failure_rate` failures happen within `failure_interval`."""
        if failure_rate < 1:
            raise ConfigurationError(f"failure_rate must be at least 1, is {failure_rate}")
        return FailureRateRestart(
            failure_rate,
            to_timedelta(failure_interval, "failure_interval", minimum=timedelta(milliseconds=1)),
            to_timedelta(delay_interval, "delay_interval"),
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: Interval = timedelta(milliseconds=200),
        max_backoff: Interval = timedelta(minutes=1),
        backoff_multiplier: float = 2.0,
        reset_backoff_threshold: Interval = timedelta(minutes=5),
        jitter_factor: float = 0.1,
    ) -> ExponentialDelayRestart:
        """Restart for ever, waiting longer each time."""
        least = timedelta(milliseconds=1)
        initial = to_timedelta(initial_backoff, "initial_backoff", minimum=least)
        if backoff_multiplier < 1.0:
            raise ConfigurationError(f"backoff_multiplier must be >= 1, is {backoff_multiplier}")
        if not 0.0 <= jitter_factor <= 1.0:
            raise ConfigurationError(f"jitter_factor must be in 0..1, is {jitter_factor}")
        return ExponentialDelayRestart(
            initial=initial,
            maximum=to_timedelta(max_backoff, "max_backoff", minimum=initial),
            multiplier=backoff_multiplier,
            jitter=jitter_factor,
            reset_after=to_timedelta(reset_backoff_threshold, "reset_backoff_threshold"),
        )
