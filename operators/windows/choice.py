"""The operator for windows of the form that plan has chosen."""

from __future__ import annotations

from ...api.specs.windows import WindowSpec
from ...plan.window_forms import AT_END, Counted, Panes, Sessions, Sliced, WindowForm
from ..base import Operator


def make_window_operator(spec: WindowSpec, form: WindowForm | None = None) -> Operator:
    """Loads what the form needs, no more. `form` None: what plan would say, for operators that
    stand in no graph."""
    if form is None:
        from ...plan.windows import window

        form = window(spec).form
    match form:
        case Sliced(slicing, firing) if firing == AT_END:
            from .columnar_windows import ColumnarWindowOperator

            return ColumnarWindowOperator(spec, slicing)
        case Sliced(slicing, firing):
            from .ticking_windows import TickingWindowOperator

            return TickingWindowOperator(spec, slicing, firing)
        case Panes(slicing, rule):
            from .pane_windows import PaneWindowOperator

            return PaneWindowOperator(spec, slicing, rule)
        case Counted(counting):
            from .counted_windows import CountedWindowOperator

            return CountedWindowOperator(spec, counting)
        case Sessions():
            from ..sessions.window import ColumnarSessionOperator

            return ColumnarSessionOperator(spec)
    from ..row_windows.operator import RowWindowOperator

    return RowWindowOperator(spec)
