"""When a sink closes a file and starts the next one, and how its files are named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from ...api.types.durations import to_ms, to_timedelta
from ...core.errors import ConfigurationError

_LEAST = timedelta(milliseconds=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class RollingPolicy:
    """Limits of one file: rows, bytes, age, and time since its last record (ms); None: no limit.

    Every checkpoint ends all files, whatever their limits. Times are looked at when records come,
    once per check interval: a file that gets none needs no end before the checkpoint's.
    """

    rows: int | None = None
    part_size: int | None = None
    rollover_ms: int | None = None
    inactivity_ms: int | None = None

    def __post_init__(self) -> None:
        limits = {"roll_rows": self.rows, "roll_bytes (part_size)": self.part_size}
        wrong = [
            f"{name} is {limit}"
            for name, limit in limits.items()
            if limit is not None and limit < 1
        ]
        if wrong:
            raise ConfigurationError(
                f"the limits of a file must be at least 1: {', '.join(wrong)} (roll_rows and "
                "roll_bytes of a FileSink, part_size of a RollingPolicy)"
            )

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 << 20,
        rollover_interval: timedelta | float = _MINUTE,
        inactivity_interval: timedelta | float = _MINUTE,
    ) -> RollingPolicy:
        """By size in bytes, age, and time without records; times as timedeltas or in ms."""
        return RollingPolicy(
            part_size=part_size,
            rollover_ms=interval_ms(rollover_interval, "rollover_interval"),
            inactivity_ms=interval_ms(inactivity_interval, "inactivity_interval"),
        )

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """One file per subtask, bucket and checkpoint."""
        return RollingPolicy()

    def full(self, rows: int, size: int) -> bool:
        """Whether a file of so many rows and bytes is closed."""
        return (self.rows is not None and rows >= self.rows) or (
            self.part_size is not None and size >= self.part_size
        )

    def stale(self, opened_ms: int, written_ms: int, now_ms: int) -> bool:
        """Whether a file is closed that was opened and last written to at these times."""
        return (self.rollover_ms is not None and now_ms - opened_ms >= self.rollover_ms) or (
            self.inactivity_ms is not None and now_ms - written_ms >= self.inactivity_ms
        )


@dataclass(frozen=True)
class OutputFileConfig:
    """How published files are called: `<part_prefix>-...<part_suffix>`. part_suffix None: as the
    format says, `.parquet` for instance; of row formats nothing."""

    part_prefix: str = "part"
    part_suffix: str | None = None

    def __post_init__(self) -> None:
        if not self.part_prefix or self.part_prefix.startswith((".", "_")):
            raise ConfigurationError(
                f"the prefix of part files must not be empty or begin with a dot or underscore, is "
                f"{self.part_prefix!r}: readers would not see the files"
            )
        if "/" in f"{self.part_prefix}{self.part_suffix or ''}":
            raise ConfigurationError(
                "the prefix and suffix of part files must not have a slash in them, are "
                f"{self.part_prefix!r} and {self.part_suffix!r}: folders are a BucketAssigner's"
            )

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        return OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        return self.part_prefix

    def get_part_suffix(self) -> str | None:
        return self.part_suffix


class OutputFileConfigBuilder:
    """PyFlink's way to make an `OutputFileConfig`."""

    def __init__(self) -> None:
        self._prefix = "part"
        self._suffix: str | None = None

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        return OutputFileConfig(self._prefix, self._suffix)


def interval_ms(value: timedelta | float, what: str) -> int:
    """A duration a user wrote, of at least a millisecond."""
    return to_ms(to_timedelta(value, what, minimum=_LEAST))
