"""Triggers that fire again and again while a window is open, at multiples of an interval.

The next firing time is state, and a timer per window. Firing times are aligned to the epoch, so
windows of all keys fire together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from ...core.elements import MAX_TIMESTAMP
from ...core.errors import ConfigurationError
from ...state.descriptors import ReducingStateDescriptor
from ..types.durations import to_millis
from .base import OnMergeContext, Trigger, TriggerContext, TriggerResult

_NEXT_FIRE = ReducingStateDescriptor("fire-timestamp", min)


@dataclass(frozen=True)
class _Continuous(Trigger):
    """`interval` is in milliseconds."""

    interval: int

    def __post_init__(self) -> None:
        if self.interval <= 0:
            raise ConfigurationError(
                f"{type(self).__name__} needs an interval > 0 ms, got {self.interval}"
            )

    @classmethod
    def of(cls, interval: Any) -> Self:
        return cls(to_millis(interval, "trigger interval"))

    def _following(self, time: int) -> int:
        """The first multiple of the interval after `time`."""
        return time - time % self.interval + self.interval


class ContinuousEventTimeTrigger(_Continuous):
    """Fires whenever the watermark passes a multiple of the interval, and at the window's end."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(end)
        if ctx.get_partitioned_state(_NEXT_FIRE).get() is None:
            self._schedule(self._following(timestamp), window, ctx)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        end = window.max_timestamp()
        if time == end:
            return TriggerResult.FIRE
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        at_the_end_of_time = end == MAX_TIMESTAMP == ctx.get_current_watermark()
        if not at_the_end_of_time:  # else: ticks without end; the timer at `end` closes the window
            self._schedule(self._following(time), window, ctx)
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT_FIRE)
        due = ctx.get_partitioned_state(_NEXT_FIRE).get()
        if due is not None:
            ctx.register_event_time_timer(due)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        due = state.get()
        if due is not None:
            ctx.delete_event_time_timer(due)
            state.clear()

    @staticmethod
    def _schedule(time: int, window: Any, ctx: TriggerContext) -> None:
        due = min(time, window.max_timestamp())
        ctx.get_partitioned_state(_NEXT_FIRE).add(due)
        ctx.register_event_time_timer(due)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires whenever the clock passes a multiple of the interval, and the window's last millisecond
    (of event-time windows too, by the clock); not at the end of event-time windows otherwise."""

    def on_element(
        self, element: Any, timestamp: int, window: Any, ctx: TriggerContext
    ) -> TriggerResult:
        if ctx.get_partitioned_state(_NEXT_FIRE).get() is None:
            now = ctx.get_current_processing_time()
            self._schedule(self._following(now), window, ctx, now - 1)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        if state.get() != time:
            return TriggerResult.CONTINUE
        state.clear()
        self._schedule(self._following(time), window, ctx, time)
        return TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, ctx: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Any, ctx: OnMergeContext) -> None:
        ctx.merge_partitioned_state(_NEXT_FIRE)
        due = ctx.get_partitioned_state(_NEXT_FIRE).get()
        if due is not None:
            ctx.register_processing_time_timer(due)

    def clear(self, window: Any, ctx: TriggerContext) -> None:
        state = ctx.get_partitioned_state(_NEXT_FIRE)
        due = state.get()
        if due is not None:
            ctx.delete_processing_time_timer(due)
            state.clear()

    @staticmethod
    def _schedule(time: int, window: Any, ctx: TriggerContext, over: int) -> None:
        """`over`: what is over of the clock; event-time windows may have ended before it."""
        end = window.max_timestamp()
        due = min(time, end) if end > over else time
        ctx.get_partitioned_state(_NEXT_FIRE).add(due)
        ctx.register_processing_time_timer(due)
