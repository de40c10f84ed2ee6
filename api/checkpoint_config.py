"""PyFlink's view of the checkpoint settings: setters and getters over the core's frozen ones.

Durations go in as timedeltas or milliseconds and come out as milliseconds, as in PyFlink.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from ..core import config as core
from ..core.errors import ConfigurationError
from .intervals import Interval, to_ms, to_timedelta

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
