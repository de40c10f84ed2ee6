"""Columnar operators for windows that slices of time do not serve: sessions, windows by count, and
windows of time whose triggers count or purge."""

from __future__ import annotations

from ...api.specs.windows import WindowSpec
from ...api.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger, PurgingTrigger
from ...core.keys import FunctionKey
from ..base import Operator
from ..sessions.gaps import SESSIONS
from ..slots.slot_kinds import runs_on_slots


def make_unsliced_window(spec: WindowSpec) -> Operator | None:
    """The operator for this spec; None when it needs the row path (other windows, triggers or
    functions, aggregates that keep many values per key, keys that are Python functions)."""
    if isinstance(spec.key, FunctionKey) or not runs_on_slots(spec.function):
        return None
    if isinstance(spec.assigner, SESSIONS):
        return _sessions(spec)
    from .counted_windows import CountedWindowOperator, counting_of

    counting = counting_of(spec)
    if counting is not None:
        return CountedWindowOperator(spec, counting)
    from .pane_windows import make_pane_window

    return make_pane_window(spec)


def _sessions(spec: WindowSpec) -> Operator | None:
    """Sessions fire at their end; a trigger that purges then changes nothing but for late
    records."""
    from ..sessions.window import ColumnarSessionOperator

    trigger = spec.trigger or spec.assigner.get_default_trigger(None)
    event_time = spec.assigner.is_event_time()
    if isinstance(trigger, PurgingTrigger) and not (event_time and spec.allowed_lateness_ms):
        trigger = trigger.nested_trigger
    at_end = isinstance(trigger, EventTimeTrigger if event_time else ProcessingTimeTrigger)
    return ColumnarSessionOperator(spec) if at_end else None
