"""The operator for windows of the form that plan has chosen: one shell over the form's windower."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

from ..api.specs.windows import WindowSpec
from ..core.errors import GraphError
from ..plan.window_forms import Counted, Panes, RowByRow, Sessions, Sliced, Ticking, WindowForm
from .base import Operator
from .windows.windower import Windower

WINDOWERS: dict[type[WindowForm], tuple[str, str]] = {
    Sliced: ("windows.columnar_windows", "SliceWindower"),
    Ticking: ("windows.ticking_windows", "TickingWindower"),
    Panes: ("windows.pane_windows", "PaneWindower"),
    Counted: ("windows.counted_windows", "CountWindower"),
    Sessions: ("sessions.window", "SessionWindower"),
}
"""Form -> module of this package, and the class or factory taking the form's fields in order."""


def make_window_operator(spec: WindowSpec, form: WindowForm | RowByRow | None = None) -> Operator:
    """Loads what the form needs, no more. `form` None: what plan would say, for operators that
    stand in no graph."""
    if form is None:
        from ..plan.windows import window

        form = window(spec).form
    if isinstance(form, RowByRow):
        from .row_windows.operator import RowWindowOperator

        return RowWindowOperator(spec)
    windower = make_windower(form)
    from .windows.operator import WindowOperator

    return WindowOperator(spec, windower)


def make_windower(form: WindowForm) -> Windower:
    """The form's windower. GraphError naming a form that has none."""
    try:
        module, name = WINDOWERS[type(form)]
    except KeyError:
        raise GraphError(
            f"no windower runs the form {type(form).__name__}: name it in "
            "operators.window_choice.WINDOWERS"
        ) from None
    make = getattr(import_module(f".{module}", __package__), name)
    windower: Windower = make(*(getattr(form, field.name) for field in fields(form)))
    return windower
