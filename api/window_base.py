"""What a window is, and what assigns records to windows.

A window is a small immutable value: hashable, picklable, compared by value. Per-window state is
kept under it, so its identity is part of every checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..core.elements import MAX_TIMESTAMP

if TYPE_CHECKING:
    from .functions import RuntimeContext
    from .triggers import Trigger


class Window(ABC):
    """Base of all windows."""

    __slots__ = ()

    @abstractmethod
    def max_timestamp(self) -> int:
        """The greatest timestamp (ms) that still belongs to this window."""


@dataclass(frozen=True, slots=True, order=True)
class TimeWindow(Window):
    """`[start, end)` in milliseconds since the epoch."""

    start: int
    end: int

    def max_timestamp(self) -> int:
        return self.end - 1

    def intersects(self, other: TimeWindow) -> bool:
        """Whether the two overlap or touch."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))

    @staticmethod
    def get_window_start_with_offset(timestamp: int, offset: int, window_size: int) -> int:
        """Start of the window of `window_size` that holds `timestamp`, also for negative times.

        >>> TimeWindow.get_window_start_with_offset(61_500, 0, 60_000)
        60000
        >>> TimeWindow.get_window_start_with_offset(-1, 0, 60_000)
        -60000
        """
        return timestamp - (timestamp - offset) % window_size

    @staticmethod
    def merge_windows(
        windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback
    ) -> None:
        """Report each group of several distinct windows that overlap or touch."""
        group: list[TimeWindow] = []
        cover: TimeWindow | None = None
        for window in sorted(set(windows)):
            if cover is not None and cover.intersects(window):
                cover = cover.cover(window)
                group.append(window)
                continue
            if cover is not None and len(group) > 1:
                callback.merge(group, cover)
            cover, group = window, [window]
        if cover is not None and len(group) > 1:
            callback.merge(group, cover)


@dataclass(frozen=True, slots=True)
class GlobalWindow(Window):
    """The one window that holds everything."""

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP

    @staticmethod
    def get() -> GlobalWindow:
        return _GLOBAL


_GLOBAL = GlobalWindow()


@dataclass(frozen=True, slots=True, order=True)
class CountWindow(Window):
    """The `id`-th window by count of its key; it has no end in time."""

    id: int

    def max_timestamp(self) -> int:
        return MAX_TIMESTAMP


class WindowAssignerContext(Protocol):
    """What an assigner may ask for while it assigns; state is scoped to the current key."""

    def get_current_processing_time(self) -> int: ...
    def get_runtime_context(self) -> RuntimeContext: ...


class WindowAssigner(ABC):
    """Says which windows a record belongs to. Immutable: what it must remember is keyed state."""

    @abstractmethod
    def assign_windows(
        self, element: Any, timestamp: int, context: WindowAssignerContext
    ) -> Collection[Window]:
        """The windows of `element`. `timestamp`: its event time, MIN_TIMESTAMP if it has none."""

    @abstractmethod
    def get_default_trigger(self, env: Any = None) -> Trigger:
        """The trigger used when the program sets none."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by watermarks (True) or by the clock (False)."""


class MergingWindowAssigner(WindowAssigner):
    """An assigner whose windows can grow together."""

    class MergeCallback(Protocol):
        def merge(self, to_be_merged: Collection[Any], merge_result: Any) -> None: ...

    @abstractmethod
    def merge_windows(self, windows: Iterable[Any], callback: MergeCallback) -> None:
        """Call `callback.merge(group, result)` for each group of windows that become one."""


GapFunction = Callable[[Any], int]
"""The session gap (ms) that follows a record."""
