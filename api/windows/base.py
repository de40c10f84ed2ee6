"""What a window is, what assigns records to windows, and what a trigger is: it decides when a
window's contents go out and when they are dropped.

A window is a small immutable value: hashable, picklable, compared by value. Per-window state is
kept under it, so its identity is part of every checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, runtime_checkable

from ...core.elements import MAX_TIMESTAMP
from ...state.descriptors import StateDescriptor
from ..functions.metrics import MetricGroup

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ..functions.user_functions import RuntimeContext

    T = TypeVar("T", default=Any)
    W = TypeVar("W", default=Any)
else:
    from typing import TypeVar

    T, W = TypeVar("T"), TypeVar("W")


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


class TriggerResult(Enum):
    """What happens to the window. Values are (fire, purge)."""

    CONTINUE = (False, False)
    FIRE_AND_PURGE = (True, True)
    FIRE = (True, False)
    PURGE = (False, True)

    def is_fire(self) -> bool:
        return self.value[0]

    def is_purge(self) -> bool:
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides per key and window. One object serves all of them: what it remembers is state.

    Timers it sets come back as `on_event_time` and `on_processing_time`. Timers with the same time
    as the window's clean-up are one timer, so a trigger may be called at times it did not ask for.
    """

    @runtime_checkable
    class TriggerContext(Protocol):
        """Time, timers and state of the current key and window; valid during the call only."""

        def get_current_processing_time(self) -> int: ...
        def get_current_watermark(self) -> int: ...
        def get_metric_group(self) -> MetricGroup: ...
        def register_processing_time_timer(self, time: int) -> None: ...
        def register_event_time_timer(self, time: int) -> None: ...
        def delete_processing_time_timer(self, time: int) -> None: ...
        def delete_event_time_timer(self, time: int) -> None: ...
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any: ...

    @runtime_checkable
    class OnMergeContext(TriggerContext, Protocol):
        """Given to `on_merge`; the window is the one that results."""

        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Fold the merged windows' state into the result's (list and reducing state only)."""
            ...

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int, window: W, ctx: TriggerContext
    ) -> TriggerResult:
        """After `element` was added. `timestamp`: its event time, MIN_TIMESTAMP if it has none."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult: ...

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: TriggerContext) -> TriggerResult: ...

    def can_merge(self) -> bool:
        """Whether `on_merge` is implemented; merging windows need it."""
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, window: W, ctx: OnMergeContext) -> None:
        """Several windows have become `window`: merge state, set its timers."""
        raise TypeError(f"{type(self).__name__} does not support merging windows")

    @abstractmethod
    def clear(self, window: W, ctx: TriggerContext) -> None:
        """The window goes away: remove its timers and state."""


TriggerContext = Trigger.TriggerContext

OnMergeContext = Trigger.OnMergeContext


class WindowAssigner(ABC, Generic[T, W]):
    """Says which windows a record belongs to. Immutable: what it must remember is keyed state."""

    class WindowAssignerContext(Protocol):
        """What an assigner may ask for while it assigns; state is scoped to the current key."""

        def get_current_processing_time(self) -> int: ...
        def get_runtime_context(self) -> RuntimeContext: ...

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssignerContext
    ) -> Collection[W]:
        """The windows of `element`. `timestamp`: its event time, MIN_TIMESTAMP if it has none."""

    @abstractmethod
    def get_default_trigger(self, env: Any = None) -> Trigger[T, W]:
        """The trigger used when the program sets none."""

    def get_window_serializer(self) -> Any:
        """PyFlink's. Windows are values that can be pickled: nobody asks for a serializer here."""
        return None

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by watermarks (True) or by the clock (False)."""


WindowAssignerContext = WindowAssigner.WindowAssignerContext


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can grow together."""

    class MergeCallback(Protocol):
        def merge(self, to_be_merged: Collection[Any], merge_result: Any) -> None: ...

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergeCallback) -> None:
        """Call `callback.merge(group, result)` for each group of windows that become one."""
