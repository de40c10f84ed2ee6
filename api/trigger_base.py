"""What a trigger is: it decides when a window's contents go out and when they are dropped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Protocol

from ..state.descriptors import StateDescriptor
from .functions import MetricGroup


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


class Trigger(ABC):
    """Decides per key and window. One object serves all of them: what it remembers is state.

    Timers it sets come back as `on_event_time` and `on_processing_time`. Timers with the same time
    as the window's clean-up are one timer, so a trigger may be called at times it did not ask for.
    """

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

    class OnMergeContext(TriggerContext, Protocol):
        """Given to `on_merge`; the window is the one that results."""

        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Fold the merged windows' state into the result's (list and reducing state only)."""
            ...

    @abstractmethod
    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        """After `element` was added. `timestamp`: its event time, MIN_TIMESTAMP if it has none."""

    @abstractmethod
    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult: ...

    @abstractmethod
    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult: ...

    def can_merge(self) -> bool:
        """Whether `on_merge` is implemented; merging windows need it."""
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        """Several windows have become `window`: merge state, set its timers."""
        raise TypeError(f"{type(self).__name__} does not support merging windows")

    @abstractmethod
    def clear(self, window: Any, ctx: TriggerContext) -> None:
        """The window goes away: remove its timers and state."""


TriggerContext = Trigger.TriggerContext
OnMergeContext = Trigger.OnMergeContext
