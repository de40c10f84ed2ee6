"""Window assigners, under PyFlink's names. Sizes are timedeltas, milliseconds or PyFlink `Time`s.

The attributes `size`, `slide`, `offset` and `gap` are milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from ..core.elements import MIN_TIMESTAMP
from ..core.errors import ConfigurationError, TypeMismatchError
from .count_windows import CountSlidingWindowAssigner, CountTumblingWindowAssigner
from .intervals import to_millis
from .session_windows import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from .triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger, Trigger
from .window_base import (
    CountWindow,
    GlobalWindow,
    MergingWindowAssigner,
    TimeWindow,
    Window,
    WindowAssigner,
    WindowAssignerContext,
)


@lru_cache(maxsize=4096)
def _tumbling(start: int, size: int) -> tuple[TimeWindow, ...]:
    return (TimeWindow(start, start + size),)


@lru_cache(maxsize=4096)
def _sliding(last_start: int, size: int, slide: int, count: int) -> tuple[TimeWindow, ...]:
    starts = range(last_start, last_start - count * slide, -slide)
    return tuple(TimeWindow(start, start + size) for start in starts)


def no_timestamp_error() -> TypeMismatchError:
    """Raised when a record without timestamp reaches an event-time window."""
    return TypeMismatchError(
        "a record without timestamp reached an event-time window: assign timestamps at the source "
        "or with assign_timestamps_and_watermarks, or use processing-time windows"
    )


@dataclass(frozen=True)
class _Tumbling(WindowAssigner):
    """Windows `[offset + n * size, offset + (n + 1) * size)`."""

    size: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or abs(self.offset) >= self.size:
            raise ConfigurationError(
                f"{type(self).__name__} needs size > 0 and |offset| < size, "
                f"got size {self.size} ms and offset {self.offset} ms"
            )

    @classmethod
    def of(cls, size: Any, offset: Any = 0) -> Self:
        return cls(to_millis(size, "window size"), to_millis(offset or 0, "window offset"))

    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        return _tumbling(timestamp - (timestamp - self.offset) % self.size, self.size)


@dataclass(frozen=True)
class _Sliding(WindowAssigner):
    """Windows `[offset + n * slide, offset + n * slide + size)`; latest first.

    With slide > size there are gaps: a record in a gap belongs to no window."""

    size: int
    slide: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.size <= 0 or self.slide <= 0 or abs(self.offset) >= self.slide:
            raise ConfigurationError(
                f"{type(self).__name__} needs size > 0, slide > 0 and |offset| < slide, got size "
                f"{self.size} ms, slide {self.slide} ms and offset {self.offset} ms"
            )

    @classmethod
    def of(cls, size: Any, slide: Any, offset: Any = 0) -> Self:
        return cls(
            to_millis(size, "window size"),
            to_millis(slide, "window slide"),
            to_millis(offset or 0, "window offset"),
        )

    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        into = (timestamp - self.offset) % self.slide
        count = -(-(self.size - into) // self.slide)
        return _sliding(timestamp - into, self.size, self.slide, max(0, count))


class TumblingEventTimeWindows(_Tumbling):
    """Fixed windows over event time."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        if timestamp == MIN_TIMESTAMP:
            raise no_timestamp_error()
        return self.windows_at(timestamp)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class TumblingProcessingTimeWindows(_Tumbling):
    """Fixed windows over the clock."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return self.windows_at(context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class SlidingEventTimeWindows(_Sliding):
    """Overlapping windows over event time."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        if timestamp == MIN_TIMESTAMP:
            raise no_timestamp_error()
        return self.windows_at(timestamp)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class SlidingProcessingTimeWindows(_Sliding):
    """Overlapping windows over the clock."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return self.windows_at(context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class GlobalWindows(WindowAssigner):
    """One window for everything; useful only with a trigger, for by default it never fires."""

    @staticmethod
    def create() -> GlobalWindows:
        return GlobalWindows()

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return (GlobalWindow.get(),)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return NeverTrigger()

    def is_event_time(self) -> bool:
        return False


__all__ = [
    "CountSlidingWindowAssigner",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "GlobalWindow",
    "GlobalWindows",
    "MergingWindowAssigner",
    "ProcessingTimeSessionWindows",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeWindow",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
    "WindowAssignerContext",
]
