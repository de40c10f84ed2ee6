"""The operator for windows of the form that plan has chosen: one shell over the form's windower."""

from __future__ import annotations

from ...api.specs.windows import WindowSpec
from ...plan.window_forms import AT_END, Counted, Panes, RowByRow, Sessions, Sliced, WindowForm
from ..base import Operator
from .windower import Windower


def make_window_operator(spec: WindowSpec, form: WindowForm | None = None) -> Operator:
    """Loads what the form needs, no more. `form` None: what plan would say, for operators that
    stand in no graph."""
    if form is None:
        from ...plan.windows import window

        form = window(spec).form
    if isinstance(form, RowByRow):
        from ..row_windows.operator import RowWindowOperator

        return RowWindowOperator(spec)
    from .operator import WindowOperator

    return WindowOperator(spec, _windower(form))


def _windower(form: Sliced | Panes | Counted | Sessions) -> Windower:
    match form:
        case Sliced(slicing, firing) if firing == AT_END:
            from .columnar_windows import SliceWindower

            return SliceWindower(slicing)
        case Sliced(slicing, firing):
            from .ticking_windows import TickingWindower

            return TickingWindower(slicing, firing)
        case Panes(slicing, rule):
            from .pane_windows import PaneWindower

            return PaneWindower(slicing, rule)
        case Counted(counting):
            from .counted_windows import CountWindower

            return CountWindower(counting)
    from ..sessions.window import SessionWindower

    return SessionWindower()
