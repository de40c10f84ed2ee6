"""PyFlink's view of a job's settings: checkpoints (setters and getters over the core's frozen ones)
and restarts. Durations go in as timedeltas or milliseconds and come out as milliseconds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from ...core import config as core
from ...core.config import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart, NoRestart
from ...core.errors import ConfigurationError
from ..types.durations import Interval, to_ms, to_timedelta

_MILLISECOND = timedelta(milliseconds=1)


class CheckpointConfig:
    """Belongs to one environment; `value` is what the job will be given."""

    def __init__(self, value: core.CheckpointConfig) -> None:
        self.value = value

    def is_checkpointing_enabled(self) -> bool:
        return self.value.interval is not None

    def get_checkpoint_interval(self) -> int | None:
        """Milliseconds, None while checkpointing is not enabled."""
        interval = self.value.interval
        return None if interval is None else to_ms(interval)

    def set_checkpoint_interval(self, checkpoint_interval: Interval) -> CheckpointConfig:
        interval = to_timedelta(checkpoint_interval, "checkpoint_interval", minimum=_MILLISECOND)
        self.value = replace(self.value, interval=interval)
        return self

    def disable_checkpointing(self) -> CheckpointConfig:
        """Only the terminal commit of sinks is left."""
        self.value = replace(self.value, interval=None)
        return self

    def get_checkpoint_timeout(self) -> int:
        return to_ms(self.value.timeout)

    def set_checkpoint_timeout(self, checkpoint_timeout: Interval) -> CheckpointConfig:
        timeout = to_timedelta(checkpoint_timeout, "checkpoint_timeout", minimum=_MILLISECOND)
        self.value = replace(self.value, timeout=timeout)
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        return to_ms(self.value.min_pause)

    def set_min_pause_between_checkpoints(
        self, min_pause_between_checkpoints: Interval
    ) -> CheckpointConfig:
        pause = to_timedelta(min_pause_between_checkpoints, "min_pause_between_checkpoints")
        self.value = replace(self.value, min_pause=pause)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        return self.value.tolerable_failures

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> CheckpointConfig:
        if tolerable_checkpoint_failure_number < 0:
            raise ConfigurationError(
                "tolerable_checkpoint_failure_number must not be negative, is "
                f"{tolerable_checkpoint_failure_number}"
            )
        self.value = replace(self.value, tolerable_failures=tolerable_checkpoint_failure_number)
        return self

    def get_checkpoint_storage(self) -> str | None:
        """An fsspec URL or path; None: checkpoints stay in the coordinator's memory."""
        return self.value.storage

    def set_checkpoint_storage(self, storage: str | None) -> CheckpointConfig:
        self.value = replace(self.value, storage=None if storage is None else str(storage))
        return self

    def get_num_retained_checkpoints(self) -> int:
        return self.value.retained

    def set_num_retained_checkpoints(self, retained: int) -> CheckpointConfig:
        if retained < 1:
            raise ConfigurationError(f"at least 1 checkpoint is retained, not {retained}")
        self.value = replace(self.value, retained=retained)
        return self


class RestartStrategies:
    """What the coordinator does when a job fails."""

    @staticmethod
    def no_restart() -> NoRestart:
        return NoRestart()

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
