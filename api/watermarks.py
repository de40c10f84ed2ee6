"""Where event time comes from: who stamps the records, and how far time has come.

A strategy is configuration; each subtask (or source split) builds its own runtime from it.

    slack = timedelta(seconds=4)
    WatermarkStrategy.for_bounded_out_of_orderness(slack).with_timestamp_assigner("ts")

Watermarks of `for_bounded_out_of_orderness(d)` are `greatest timestamp - d - 1`: a record is in
time if it is at most `d` older than the newest one before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..core.errors import ConfigurationError
from .types.durations import to_millis

if TYPE_CHECKING:
    import polars as pl


class TimestampAssigner(ABC):
    """Takes the event time out of a record. A plain function of two arguments serves as well."""

    @abstractmethod
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        """Milliseconds since the epoch, or a datetime. `record_timestamp` is the timestamp the
        record has already, MIN_TIMESTAMP (-2**63) if none."""


class WatermarkGenerator(ABC):
    """Custom watermarks, called for each record. One instance per subtask or source split.

    Watermarks never go back: a value below an earlier one is ignored. Its state is not part of
    checkpoints: after a restore a new instance starts.
    """

    @abstractmethod
    def on_event(self, value: Any, timestamp: int) -> int | None:
        """After each record: a watermark to send at once (behind its batch), or None."""

    def on_periodic(self) -> int | None:
        """Every `auto_watermark_interval`: the current watermark, or None."""
        return None


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """Watermark = greatest timestamp - `delay_ms` - 1."""

    delay_ms: int

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise ConfigurationError(f"the out-of-orderness must be >= 0 ms, is {self.delay_ms}")


@dataclass(frozen=True)
class NoWatermarks:
    """Event time does not advance before the end of the stream."""


@dataclass(frozen=True)
class CustomWatermarks:
    """`factory()` makes a WatermarkGenerator."""

    factory: Callable[[], WatermarkGenerator]


@dataclass(frozen=True)
class Alignment:
    """A source's splits wait while they are more than `max_drift_ms` ahead, in event time, of the
    slowest split of all sources of the group."""

    group: str
    max_drift_ms: int
    update_interval_ms: int


GeneratorConfig = BoundedOutOfOrderness | NoWatermarks | CustomWatermarks


@dataclass(frozen=True, eq=False)
class WatermarkStrategy:
    """How timestamps are assigned and watermarks made.

    timestamp_assigner: a column name, a polars expression, a `TimestampAssigner` or a function
    `(value, record_timestamp) -> ms`; None keeps the timestamps that the records have. Columns may
    be integers (ms) or timestamps of any unit and zone (rounded down to ms; without zone: UTC).
    idleness: after so much time without a record the output is idle and holds nobody back.
    alignment: of sources; see `with_watermark_alignment`.
    """

    generator: GeneratorConfig
    timestamp_assigner: str | pl.Expr | TimestampAssigner | Callable[[Any, int], int] | None = None
    idleness: timedelta | None = None
    alignment: Alignment | None = None

    @staticmethod
    def for_bounded_out_of_orderness(max_out_of_orderness: Any) -> WatermarkStrategy:
        """Records are at most `max_out_of_orderness` (timedelta, ms or PyFlink Time) late."""
        delay = to_millis(max_out_of_orderness, "max_out_of_orderness")
        return WatermarkStrategy(BoundedOutOfOrderness(delay))

    @staticmethod
    def for_monotonous_timestamps() -> WatermarkStrategy:
        """Timestamps never decrease."""
        return WatermarkStrategy(BoundedOutOfOrderness(0))

    @staticmethod
    def no_watermarks() -> WatermarkStrategy:
        """Timestamps only: event time reaches its end with the stream."""
        return WatermarkStrategy(NoWatermarks())

    @staticmethod
    def for_generator(factory: Callable[[], WatermarkGenerator]) -> WatermarkStrategy:
        """Custom watermarks; `factory` (for instance the class itself) is called once per subtask
        or split."""
        if not callable(factory):
            raise ConfigurationError(
                f"for_generator takes a function that makes a WatermarkGenerator, not {factory!r}"
            )
        return WatermarkStrategy(CustomWatermarks(factory))

    def with_timestamp_assigner(self, timestamp_assigner: Any) -> WatermarkStrategy:
        """This strategy with timestamps taken from the records; see the class."""
        return replace(self, timestamp_assigner=timestamp_assigner)

    def with_idleness(self, idle_timeout: Any) -> WatermarkStrategy:
        """This strategy, turning idle after `idle_timeout` (timedelta, ms or PyFlink Time)."""
        timeout = to_millis(idle_timeout, "idle_timeout")
        if timeout <= 0:
            raise ConfigurationError(f"the idle timeout must be > 0 ms, is {timeout}")
        return replace(self, idleness=timedelta(milliseconds=timeout))

    def with_watermark_alignment(
        self,
        watermark_group: str,
        max_allowed_watermark_drift: Any,
        update_interval: Any = timedelta(seconds=1),
    ) -> WatermarkStrategy:
        """This strategy for a source that does not run ahead: a split (a partition, a file) whose
        watermark is more than `max_allowed_watermark_drift` ahead of the least of the group is not
        read until the others have come on. So what joins or windows must keep of the fast ones is
        bounded. All sources of the job with one `watermark_group` align; an idle one, and one that
        has ended, holds nobody back. Looked at each `update_interval`. For `from_source` only."""
        if not isinstance(watermark_group, str) or not watermark_group:
            raise ConfigurationError(f"the watermark group must be a name, is {watermark_group!r}")
        if isinstance(self.generator, NoWatermarks):
            raise ConfigurationError("watermark alignment needs watermarks: no_watermarks has none")
        drift = to_millis(max_allowed_watermark_drift, "max_allowed_watermark_drift")
        interval = to_millis(update_interval, "update_interval")
        if drift < 0 or interval <= 0:
            raise ConfigurationError(
                f"watermark alignment needs a drift of 0 ms or more and an interval of more than "
                f"0 ms, has {drift} and {interval}"
            )
        return replace(self, alignment=Alignment(watermark_group, drift, interval))
