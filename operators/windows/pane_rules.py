"""Which triggers need panes (see `pane_windows`), and when those fire."""

from __future__ import annotations

from dataclasses import dataclass

from ...api.specs.windows import WindowSpec
from ...api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from ...api.windows.triggers import CountTrigger, EventTimeTrigger, PurgingTrigger
from .counted_windows import Counting


@dataclass(frozen=True)
class PaneRule:
    """When panes fire: at every `count`-th record, or by time: at multiples of `interval` ms, of
    event time or of the clock, and at the window's end. Those that fire by time are purged."""

    count: int | None = None
    purge: bool = True
    interval: int | None = None
    by_clock: bool = False

    @property
    def counting(self) -> Counting:
        """What fires between records; where time fires, each late record does."""
        count = self.count or 1
        return Counting(count, count, self.purge)


def rule_of(spec: WindowSpec) -> PaneRule | None:
    """When the spec's windows fire; None where slices or only the row path can do it."""
    trigger, purge = spec.trigger, False
    while isinstance(trigger, PurgingTrigger):
        trigger, purge = trigger.nested_trigger, True
    event_time = spec.assigner.is_event_time()
    match trigger:
        case CountTrigger(count):
            return PaneRule(count, purge)
        case EventTimeTrigger() if purge and event_time:
            return PaneRule()
        case ContinuousEventTimeTrigger(interval) if purge and event_time:
            return PaneRule(interval=interval)
        case ContinuousProcessingTimeTrigger(interval) if purge:
            return PaneRule(interval=interval, by_clock=True)
    return None
