"""What is called of what a program gives as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.errors import TypeMismatchError
from .user_functions import Function


def method_of(function: Any, method: str) -> Callable[..., Any]:
    """The method of this name of a function object; a callable itself. TypeMismatchError for what
    is neither."""
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
