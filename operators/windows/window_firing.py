"""Which assigners cut time into slices, and which triggers sliced windows fire by.

For the others see `pane_windows`: a CountTrigger fires between two records of a batch, and a
trigger that purges before a window ends takes records out of that window but not out of those it
shares them with; slices can do neither.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...api.specs.windows import WindowSpec
from ...api.windows.base import WindowAssigner
from ...api.windows.continuous_triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
)
from ...api.windows.time_windows import (
    CumulateEventTimeWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from ...api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger
from .slices import CumulateSlicing, Slicing


@dataclass(frozen=True)
class Firing:
    """When windows fire: at their end only, or at multiples of `interval` ms, of event time or of
    the clock, as well."""

    interval: int | None = None
    by_clock: bool = False


AT_END = Firing()


def slicing_of(assigner: WindowAssigner) -> Slicing | None:
    """How the assigner's windows are cut; None if they are not."""
    match assigner:
        case TumblingEventTimeWindows() | TumblingProcessingTimeWindows():
            return Slicing(assigner.size, assigner.size, assigner.offset)
        case SlidingEventTimeWindows() | SlidingProcessingTimeWindows():
            return Slicing(assigner.size, assigner.slide, assigner.offset)
        case CumulateEventTimeWindows():
            return CumulateSlicing(assigner.max_size, assigner.step, assigner.offset)
    return None


def firing_of(spec: WindowSpec) -> Firing | None:
    """When the spec's windows fire; None if slices cannot do it exactly."""
    event_time = spec.assigner.is_event_time()
    trigger = spec.trigger or spec.assigner.get_default_trigger(None)
    purging = isinstance(trigger, PurgingTrigger)
    if isinstance(trigger, PurgingTrigger):
        trigger = trigger.nested_trigger
    match trigger:
        case EventTimeTrigger() if event_time:
            # A window that fires but once is cleared then anyway.
            return None if purging and spec.allowed_lateness_ms else AT_END
        case ProcessingTimeTrigger() if not event_time:
            return AT_END
        case ContinuousEventTimeTrigger() if event_time and not purging:
            return Firing(trigger.interval)
        case ContinuousProcessingTimeTrigger() if not purging:
            return Firing(trigger.interval, by_clock=True)
    return None
