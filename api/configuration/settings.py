"""`Settings`: what is set for the next job of an environment, until that asks for a `JobConfig`.

The environment, its `ExecutionConfig` and its `CheckpointConfig` all change this one object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from ...core.config import ExchangeConfig, JobConfig
from ...core.errors import ConfigurationError
from ...core.job_files import JobFiles
from ..types.durations import Interval, to_ms, to_timedelta
from .checkpoints import CheckpointConfig
from .configuration import Configuration
from .modes import RuntimeExecutionMode

NEVER: Final = timedelta(days=36_500)
"""A buffer timeout that no buffer lives to see: sent when full, or when a barrier or the end
comes."""


@dataclass
class Ignored:
    """Settings of Flink that change nothing here, and are given back."""

    closure_cleaner: bool = True
    generic_types: bool = True
    snapshot_compression: bool = False
    cancellation_interval: timedelta = timedelta(seconds=30)


@dataclass
class Settings:
    """Each is valid by itself; whether they fit together is looked at in `job_config`."""

    base: JobConfig
    """What has no field below."""
    parallelism: int
    default_parallelism: int
    """What the configuration says."""
    max_parallelism: int
    checkpoint: CheckpointConfig
    job_name: str | None = None
    """For jobs that are given none; None: the default."""
    auto_uids: bool = True
    """Whether operators may go without a uid."""
    host: str | None = None
    """The name of the host, where a configuration says so."""
    ignored: Ignored = field(default_factory=Ignored)
    configuration: Configuration = field(default_factory=Configuration)
    """All that `configure` was ever given."""
    together: Configuration = field(default_factory=Configuration)
    """Options that mean something together (`groups`), as they are: whether a configuration gave
    them or a setter, the later one counts."""
    buffers_timed: bool = True
    buffer_interval: timedelta = ExchangeConfig().buffer_timeout
    """Counts while `buffers_timed`."""

    @staticmethod
    def of(config: JobConfig) -> Settings:
        checkpoint = CheckpointConfig.of(config.checkpoint)
        parallelism = config.parallelism
        settings = Settings(config, parallelism, parallelism, config.max_parallelism, checkpoint)
        settings.set_buffer_timeout(config.exchange.buffer_timeout)
        return settings

    def job_config(self) -> JobConfig:
        """The settings as a job gets them. ConfigurationError if they do not fit together."""
        return replace(
            self.base,
            parallelism=self.parallelism,
            max_parallelism=self.max_parallelism,
            checkpoint=self.checkpoint.frozen(),
        )

    def set_default_parallelism(self, parallelism: int) -> None:
        self.parallelism = self.default_parallelism = parallelism

    def change(self, **fields: Any) -> None:
        """Of `base`."""
        self.base = replace(self.base, **fields)

    def change_exchange(self, **fields: Any) -> None:
        self.base = replace(self.base, exchange=replace(self.base.exchange, **fields))

    def add_python_file(self, file_path: str) -> None:
        path = Path(file_path.removeprefix("file://")).absolute()
        if not path.exists():
            raise ConfigurationError(f"add_python_file: there is no {path}")
        files = [file for file in self.base.python_files if file != str(path)]
        self.change(python_files=(*files, str(path)))

    def change_files(self, change: Callable[..., JobFiles], *args: Any) -> None:
        """By one of the functions of `job_files`."""
        self.change(job_files=change(self.base.job_files, *args))

    def set_buffer_timeout(self, timeout: Interval) -> None:
        """-1: a buffer is sent when it is full only; what the interval was is kept."""
        given = to_buffer_timeout(timeout)
        if given >= NEVER:
            self.time_buffers(timed=False)
        else:
            self.time_buffers(timed=True, interval=given)

    def time_buffers(self, *, timed: bool | None = None, interval: timedelta | None = None) -> None:
        """Change one half of the buffer timeout, as an option does; None: it stays."""
        self.buffers_timed = self.buffers_timed if timed is None else timed
        self.buffer_interval = self.buffer_interval if interval is None else interval
        self.change_exchange(buffer_timeout=self.buffer_interval if self.buffers_timed else NEVER)

    def check_runtime_mode(self, mode: RuntimeExecutionMode) -> None:
        """STREAMING and AUTOMATIC are one: there is nothing to set."""
        if mode is RuntimeExecutionMode.BATCH:
            raise ConfigurationError(
                "runtime mode BATCH is not there yet: STREAMING and AUTOMATIC are, which run "
                "bounded sources to their end as well"
            )


def to_buffer_timeout(timeout: Interval) -> timedelta:
    """-1: a buffer is sent when it is full only."""
    if not isinstance(timeout, bool) and timeout == -1:
        return NEVER
    return to_timedelta(timeout, "buffer_timeout")


def buffer_timeout_ms(timeout: timedelta) -> int:
    """As PyFlink gives it back."""
    return -1 if timeout >= NEVER else to_ms(timeout)
