"""The two times a window can go by: that of the record, and that of the clock.

An assigner says which windows a record has at a time; these bases say which time that is, what
fires the windows, and what ends them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection
from typing import Any

from ..core.elements import MIN_TIMESTAMP
from ..core.errors import TypeMismatchError
from .intervals import to_millis
from .triggers import EventTimeTrigger, ProcessingTimeTrigger, Trigger
from .window_base import Window, WindowAssigner, WindowAssignerContext


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
