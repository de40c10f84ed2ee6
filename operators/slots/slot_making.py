"""What keeps and makes the results of a window over slots: aggregates, or records."""

from __future__ import annotations

from ...api.specs.windows import BuiltinWindow, TopNWindow
from .slot_aggregates import SlotAggregates
from .slot_kinds import SlotFunction


def make_slots(function: SlotFunction, prefix: str = "") -> SlotAggregates:
    """The names of its columns start with `prefix`."""
    if isinstance(function, BuiltinWindow):
        return SlotAggregates(function, prefix)
    from .slot_extremes import SlotExtremes
    from .slot_records import SlotTies, SlotTopN

    if isinstance(function, TopNWindow):
        return SlotTopN(function, prefix)
    return (SlotTies if function.ties else SlotExtremes)(function, prefix)
