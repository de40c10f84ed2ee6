"""Picks the operator for a window spec: kernels where they apply, else row by row."""

from __future__ import annotations

from ..api.specs import BuiltinWindow, ExtremeWindow, WindowSpec
from .base import Operator


def make_window_operator(spec: WindowSpec) -> Operator:
    """Built-in functions over event-time windows with the default trigger run on columns."""
    if isinstance(spec.function, (BuiltinWindow, ExtremeWindow)):
        from .columnar_windows import make_columnar_window

        columnar = make_columnar_window(spec)
        if columnar is not None:
            return columnar
    from .row_windows import RowWindowOperator

    return RowWindowOperator(spec)
