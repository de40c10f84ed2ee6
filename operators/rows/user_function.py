"""A user's function as an operator runs it: one callable, and a lifecycle if it has one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ...api.functions.user_functions import Function, RuntimeContext
from ...core.errors import TypeMismatchError

_log = logging.getLogger(__name__)


class UserFunction:
    """`call` is the function itself or its method `method`. Opened and closed at most once."""

    def __init__(self, function: Any, method: str) -> None:
        self.function = function
        self.call: Callable[..., Any] = _resolve(function, method)
        self._opened = False

    def open(self, context: RuntimeContext) -> None:
        """Call the function's own `open`, if it has one."""
        self._opened = True
        _lifecycle(self.function, "open", context)

    def close(self, operator: str) -> None:
        """Call the function's own `close`, if it was opened. Never raises: an error is logged under
        the operator's name, for nothing can be done about it any more."""
        if not self._opened:
            return
        self._opened = False
        try:
            _lifecycle(self.function, "close")
        except Exception:
            _log.warning("operator '%s': closing its function failed", operator, exc_info=True)


def _resolve(function: Any, method: str) -> Callable[..., Any]:
    if isinstance(function, type) and issubclass(function, Function):
        raise TypeMismatchError(
            f"{function.__name__} is a class: pass an instance, {function.__name__}(...)"
        )
    bound = getattr(function, method, None)
    if callable(bound) and (isinstance(function, Function) or not callable(function)):
        return bound  # type: ignore[no-any-return]
    if callable(function):
        return function  # type: ignore[no-any-return]
    raise TypeMismatchError(f"{function!r} is not callable and has no method '{method}'")


def _lifecycle(function: Any, name: str, *arguments: Any) -> None:
    """Functions have a lifecycle; callables that happen to have `open` or `close` do not."""
    if isinstance(function, Function) or not callable(function):
        method = getattr(function, name, None)
        if callable(method):
            method(*arguments)
