"""Columnar operators for windows that are no slices of time: sessions, and windows by count."""

from __future__ import annotations

from ..api.specs import WindowSpec
from ..api.triggers import EventTimeTrigger
from ..api.windows import EventTimeSessionWindows
from ..core.keys import FunctionKey
from .base import Operator
from .slot_kinds import runs_on_slots


def make_unsliced_window(spec: WindowSpec) -> Operator | None:
    """The operator for this spec; None when it needs the row path (other windows, triggers or
    functions, aggregates that keep many values per key, keys that are Python functions)."""
    if isinstance(spec.key, FunctionKey) or not runs_on_slots(spec.function):
        return None
    if isinstance(spec.assigner, EventTimeSessionWindows):
        return _sessions(spec)
    from .counted_windows import CountedWindowOperator, counting_of

    counting = counting_of(spec)
    return None if counting is None else CountedWindowOperator(spec, counting)


def _sessions(spec: WindowSpec) -> Operator | None:
    from .sessions.window import ColumnarSessionOperator

    if spec.trigger is not None and not isinstance(spec.trigger, EventTimeTrigger):
        return None
    return ColumnarSessionOperator(spec)
