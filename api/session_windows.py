"""Session windows: a record opens a window of one gap; windows that overlap or touch become one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Self

from ..core.elements import MIN_TIMESTAMP
from ..core.errors import ConfigurationError, TypeMismatchError
from .intervals import to_millis
from .triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from .window_base import (
    MergingWindowAssigner,
    TimeWindow,
    Window,
    WindowAssignerContext,
)


class SessionWindowTimeGapExtractor(ABC):
    """Derives the gap from the record. A plain function of the record serves as well."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap in milliseconds, greater than 0."""


class SessionWindowAssigner(MergingWindowAssigner):
    """Merges exactly the windows that overlap or touch."""

    def merge_windows(
        self, windows: Iterable[Any], callback: MergingWindowAssigner.MergeCallback
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class _EventTime(SessionWindowAssigner):
    def get_default_trigger(self, env: Any = None) -> Trigger:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class _ProcessingTime(SessionWindowAssigner):
    def get_default_trigger(self, env: Any = None) -> Trigger:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class _FixedGap(SessionWindowAssigner):
    gap: int

    def __post_init__(self) -> None:
        if self.gap <= 0:
            raise ConfigurationError(f"the session gap must be > 0 ms, is {self.gap}")

    @classmethod
    def with_gap(cls, size: Any) -> Self:
        return cls(to_millis(size, "session gap"))


@dataclass(frozen=True)
class _DynamicGap(SessionWindowAssigner):
    extractor: Any

    def gap_of(self, element: Any) -> int:
        """The gap after `element` in ms; TypeMismatchError unless it is greater than 0."""
        extract = getattr(self.extractor, "extract", self.extractor)
        gap = to_millis(extract(element), "session gap")
        if gap <= 0:
            raise TypeMismatchError(
                f"the session gap of a record must be > 0 ms, is {gap} for {element!r}"
            )
        return gap


def _event_session(timestamp: int, gap: int) -> tuple[TimeWindow]:
    if timestamp == MIN_TIMESTAMP:
        raise TypeMismatchError(
            "a record without timestamp reached an event-time session window: assign timestamps "
            "at the source or with assign_timestamps_and_watermarks"
        )
    return (TimeWindow(timestamp, timestamp + gap),)


class EventTimeSessionWindows(_FixedGap, _EventTime):
    """Sessions over event time."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return _event_session(timestamp, self.gap)

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> DynamicEventTimeSessionWindows:
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(_FixedGap, _ProcessingTime):
    """Sessions over the clock."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        now = context.get_current_processing_time()
        return (TimeWindow(now, now + self.gap),)

    @staticmethod
    def with_dynamic_gap(extractor: Any) -> DynamicProcessingTimeSessionWindows:
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(_DynamicGap, _EventTime):
    """Sessions over event time whose gap depends on the record."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return _event_session(timestamp, self.gap_of(element))


class DynamicProcessingTimeSessionWindows(_DynamicGap, _ProcessingTime):
    """Sessions over the clock whose gap depends on the record."""

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        now = context.get_current_processing_time()
        return (TimeWindow(now, now + self.gap_of(element)),)
