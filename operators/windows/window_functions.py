"""From a window function's spec to what its slices hold."""

from __future__ import annotations

from ...api.specs.windows import BuiltinWindow, ExtremeWindow, TopNWindow, WindowFunctionSpec
from .window_aggregates import WindowAggregates, WindowContents
from .window_extremes import WindowExtremes


def make_contents(function: WindowFunctionSpec) -> WindowContents:
    """The contents of sliced windows, not yet bound."""
    match function:
        case BuiltinWindow():
            return WindowAggregates(function)
        case TopNWindow():
            from .window_top_n import WindowTopN

            return WindowTopN(function)
        case ExtremeWindow():
            return WindowExtremes(function)
    raise AssertionError(f"{type(function).__name__} runs row by row")
