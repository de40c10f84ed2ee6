"""Windows by count: the n-th record of a key decides, not time. The count is keyed state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ...core.errors import ConfigurationError
from ...state.descriptors import ValueStateDescriptor
from .base import CountWindow, Trigger, Window, WindowAssigner, WindowAssignerContext
from .triggers import CountTrigger, PurgingTrigger

_SEEN = ValueStateDescriptor("__count_window_seen")
"""How many records of the current key were assigned."""


def _next_position(context: WindowAssignerContext) -> int:
    """0 for the first record of the current key, then 1, 2, ..."""
    seen = context.get_runtime_context().get_state(_SEEN)
    position: int = seen.value() or 0
    seen.update(position + 1)
    return position


@dataclass(frozen=True)
class CountTumblingWindowAssigner(WindowAssigner):
    """`window_size` records of a key, then the next; fires and forgets when full."""

    window_size: int

    def __post_init__(self) -> None:
        if self.window_size <= 0:
            raise ConfigurationError(f"a count window needs size > 0, got {self.window_size}")

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner:
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        return (CountWindow(_next_position(context) // self.window_size),)

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return PurgingTrigger.of(CountTrigger.of(self.window_size))

    def is_event_time(self) -> bool:
        return False


@dataclass(frozen=True)
class CountSlidingWindowAssigner(WindowAssigner):
    """Records `n * slide .. n * slide + size - 1` of a key; fires and forgets when full."""

    window_size: int
    window_slide: int

    def __post_init__(self) -> None:
        if self.window_size <= 0 or self.window_slide <= 0:
            raise ConfigurationError(
                f"a sliding count window needs size > 0 and slide > 0, "
                f"got size {self.window_size} and slide {self.window_slide}"
            )

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner:
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        position = _next_position(context)
        last = position // self.window_slide
        first = max(0, -(-(position - self.window_size + 1) // self.window_slide))
        return tuple(CountWindow(n) for n in range(last, first - 1, -1))

    def get_default_trigger(self, env: Any = None) -> Trigger:
        return PurgingTrigger.of(CountTrigger.of(self.window_size))

    def is_event_time(self) -> bool:
        return False
