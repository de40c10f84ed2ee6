"""Which window functions `slot_aggregates` can run; loads no kernels."""

from __future__ import annotations

from typing import TypeGuard

from ..api.specs import BuiltinWindow, ExtremeWindow

SlotFunction = BuiltinWindow | ExtremeWindow

KINDS = (
    *("count", "sum", "min", "max", "mean", "first", "last"),
    *("variance", "stddev", "arg_min", "arg_max"),
)
"""Aggregates that are a fixed number of values. The others keep many per key."""


def runs_on_slots(function: object) -> TypeGuard[SlotFunction]:
    """Whether all that the window asks for is of such kinds."""
    if isinstance(function, ExtremeWindow):
        return not function.ties
    if not isinstance(function, BuiltinWindow):
        return False
    return all(aggregate.kind in KINDS for _, aggregate in function.aggregates)
