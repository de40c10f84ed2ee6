"""Windows over time, under PyFlink's names, and the one global window. Sizes are timedeltas,
milliseconds or PyFlink `Time`s; the attributes `size`, `slide`, `max_size`, `step` and `offset` are
milliseconds.

An assigner says which windows a record has at a time; `OverEventTime` and `OverProcessingTime` say
which time that is, what fires the windows, and what ends them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from ...core.elements import MIN_TIMESTAMP
from ...core.errors import ConfigurationError, TypeMismatchError
from ..types.durations import to_millis
from .base import (
    GlobalWindow,
    TimeWindow,
    Trigger,
    Window,
    WindowAssigner,
    WindowAssignerContext,
)
from .triggers import EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger


class TimeWindowAssigner(WindowAssigner):
    """Assigns by a time."""

    @abstractmethod
    def windows_of(self, element: Any, time: int) -> Collection[Window]:
        """The windows of `element` at `time` (ms)."""


class OverEventTime(TimeWindowAssigner):
    """By the record's timestamp; watermarks end the windows."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        if timestamp == MIN_TIMESTAMP:
            raise no_timestamp_error()
        return self.windows_of(element, timestamp)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class OverProcessingTime(TimeWindowAssigner):
    """By the clock, when the record arrives; the clock ends the windows."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return self.windows_of(element, context.get_current_processing_time())

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


def no_timestamp_error() -> TypeMismatchError:
    """Raised when a record without timestamp reaches an event-time window."""
    return TypeMismatchError(
        "a record without timestamp reached an event-time window: assign timestamps at the source "
        "or with assign_timestamps_and_watermarks, or use processing-time windows"
    )


def window_millis(offset: Any, **lengths: Any) -> list[int]:
    """The lengths of a window and then its offset (None: 0) in ms; their names are for messages."""
    named = [to_millis(length, f"window {name}") for name, length in lengths.items()]
    return [*named, to_millis(offset or 0, "window offset")]


@lru_cache(maxsize=4096)
def _tumbling(start: int, size: int) -> tuple[TimeWindow, ...]:
    return (TimeWindow(start, start + size),)


@lru_cache(maxsize=4096)
def _sliding(last_start: int, size: int, slide: int, count: int) -> tuple[TimeWindow, ...]:
    starts = range(last_start, last_start - count * slide, -slide)
    return tuple(TimeWindow(start, start + size) for start in starts)


@lru_cache(maxsize=4096)
def _cumulating(start: int, first_end: int, max_size: int, step: int) -> tuple[TimeWindow, ...]:
    return tuple(TimeWindow(start, end) for end in range(first_end, start + max_size + 1, step))


class _FixedWindows(TimeWindowAssigner):
    """Windows that depend on nothing but the time."""

    @abstractmethod
    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        """The windows of a timestamp (ms)."""

    def windows_of(self, element: Any, time: int) -> tuple[TimeWindow, ...]:
        return self.windows_at(time)


@dataclass(frozen=True)
class _Tumbling(_FixedWindows):
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
        return cls(*window_millis(offset, size=size))

    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        return _tumbling(timestamp - (timestamp - self.offset) % self.size, self.size)


@dataclass(frozen=True)
class _Sliding(_FixedWindows):
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
        return cls(*window_millis(offset, size=size, slide=slide))

    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        into = (timestamp - self.offset) % self.slide
        count = -(-(self.size - into) // self.slide)
        return _sliding(timestamp - into, self.size, self.slide, max(0, count))


class TumblingEventTimeWindows(_Tumbling, OverEventTime):
    """Fixed windows over event time."""


class TumblingProcessingTimeWindows(_Tumbling, OverProcessingTime):
    """Fixed windows over the clock."""


class SlidingEventTimeWindows(_Sliding, OverEventTime):
    """Overlapping windows over event time."""


class SlidingProcessingTimeWindows(_Sliding, OverProcessingTime):
    """Overlapping windows over the clock."""


@dataclass(frozen=True)
class CumulateEventTimeWindows(_FixedWindows, OverEventTime):
    """Windows over event time that grow by `step` up to `max_size`, then start anew (Flink SQL's
    CUMULATE): early results of a long window at every step, each a window of its own. They are
    `[s, s + step)`, `[s, s + 2 * step)`, ... `[s, s + max_size)` for each
    `s = offset + n * max_size`; shortest first.

    >>> day = CumulateEventTimeWindows.of(max_size=6, step=2)
    >>> [(w.start, w.end) for w in day.windows_at(3)]
    [(0, 4), (0, 6)]
    """

    max_size: int
    step: int
    offset: int = 0

    def __post_init__(self) -> None:
        if self.step <= 0 or self.max_size <= 0 or self.max_size % self.step:
            raise ConfigurationError(
                "CumulateEventTimeWindows needs step > 0 and max_size a multiple of it, got "
                f"max_size {self.max_size} ms and step {self.step} ms"
            )
        if abs(self.offset) >= self.max_size:
            raise ConfigurationError(
                f"CumulateEventTimeWindows needs |offset| < max_size, got offset {self.offset} ms "
                f"and max_size {self.max_size} ms"
            )

    @classmethod
    def of(cls, max_size: Any, step: Any, offset: Any = 0) -> Self:
        return cls(*window_millis(offset, max_size=max_size, step=step))

    def windows_at(self, timestamp: int) -> tuple[TimeWindow, ...]:
        into = (timestamp - self.offset) % self.max_size
        first_end = timestamp - into + (into // self.step + 1) * self.step
        return _cumulating(timestamp - into, first_end, self.max_size, self.step)


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
