"""Picks the operator for a window spec: kernels where they apply, else row by row."""

from __future__ import annotations

from ...api.specs.windows import COLUMN_FUNCTIONS, WindowSpec
from ..base import Operator


def make_window_operator(spec: WindowSpec) -> Operator:
    """Built-in functions run on columns where windows are slices of time, sessions or by count."""
    if isinstance(spec.function, COLUMN_FUNCTIONS):
        from .columnar_windows import make_columnar_window
        from .unsliced_windows import make_unsliced_window

        columnar = make_columnar_window(spec) or make_unsliced_window(spec)
        if columnar is not None:
            return columnar
    from ..row_windows.operator import RowWindowOperator

    return RowWindowOperator(spec)
