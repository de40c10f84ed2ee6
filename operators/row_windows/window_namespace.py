"""Windows as state namespaces: plain tuples, which any backend stores and any tool can read.

TimeWindow(start, end)  (start, end)
CountWindow(id)         (id,)
GlobalWindow            ("global",)
any other               the window itself
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...api.windows.base import CountWindow, GlobalWindow, TimeWindow

Namespace = Any
"""Hashable and picklable; equal exactly if the windows are."""

_GLOBAL = ("global",)


def to_namespace(window: Any) -> Namespace:
    kind = type(window)
    if kind is TimeWindow:
        return (window.start, window.end)
    if kind is CountWindow:
        return (window.id,)
    return _GLOBAL if kind is GlobalWindow else window


_time_window = lru_cache(maxsize=4096)(TimeWindow)


def to_window(namespace: Namespace) -> Any:
    """The inverse of `to_namespace`."""
    if type(namespace) is not tuple:
        return namespace
    if len(namespace) == 2:
        return _time_window(*namespace)
    return GlobalWindow.get() if namespace == _GLOBAL else CountWindow(namespace[0])
