"""Which window functions run over slots; loads no kernels. `slot_making` makes what runs them."""

from __future__ import annotations

from typing import TypeGuard

from ...api.specs.windows import COLUMN_FUNCTIONS, BuiltinWindow, ExtremeWindow, TopNWindow

SlotFunction = BuiltinWindow | ExtremeWindow | TopNWindow


def runs_on_slots(function: object) -> TypeGuard[SlotFunction]:
    """Whether the window asks for built-in aggregates or for records."""
    return isinstance(function, COLUMN_FUNCTIONS)
