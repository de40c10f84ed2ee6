"""The operator for windows of the form that plan has chosen."""

from __future__ import annotations

from ...api.specs.windows import WindowSpec
from ...plan.window_forms import AT_END, Counted, Panes, Sessions, Sliced, WindowForm
from ..base import Operator
from .operator import WindowOperator


def make_window_operator(spec: WindowSpec, form: WindowForm | None = None) -> Operator:
    """Loads what the form needs, no more. `form` None: what plan would say, for operators that
    stand in no graph."""
    if form is None:
        from ...plan.windows import window

        form = window(spec).form
    match form:
        case Sliced(slicing, firing) if firing == AT_END:
            from .columnar_windows import SliceWindower

            return WindowOperator(spec, SliceWindower(slicing))
        case Sliced(slicing, firing):
            from .ticking_windows import TickingWindower

            return WindowOperator(spec, TickingWindower(slicing, firing))
        case Panes(slicing, rule):
            from .pane_windows import PaneWindower

            return WindowOperator(spec, PaneWindower(slicing, rule))
        case Counted(counting):
            from .counted_windows import CountWindower

            return WindowOperator(spec, CountWindower(counting))
        case Sessions():
            from ..sessions.window import SessionWindower

            return WindowOperator(spec, SessionWindower())
    from ..row_windows.operator import RowWindowOperator

    return RowWindowOperator(spec)
