"""Early checks of what users hand in: a mistake is an error in the line that makes it."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

from ...core.errors import ConfigurationError
from .checkpointed import CheckpointedFunction
from .user_functions import Function

if TYPE_CHECKING:
    import polars as pl


def require_function(method: str, function: Any, *kinds: type[Function]) -> Any:
    """`function` if it is an instance of one of `kinds` or a plain callable.

    Raises ConfigurationError naming the method otherwise: not callable, a function class instead of
    an instance, or a function object of another kind.
    """
    _reject_coroutines(method, function)
    if isinstance(function, kinds):
        return function
    _reject_class(method, function)
    if isinstance(function, Function) or not callable(function):
        raise ConfigurationError(
            f"{method}: expected a callable or {_names(kinds)}, got {_show(function)}"
        )
    return function


def require_instance(method: str, function: Any, *kinds: type[Function], hint: str = "") -> Any:
    """`function` if it is an instance of one of `kinds`; plain callables do not suffice."""
    if isinstance(function, kinds):
        return function
    _reject_class(method, function)
    more = f"; {hint}" if hint else ""
    raise ConfigurationError(f"{method}: expected {_names(kinds)}, got {_show(function)}{more}")


def require_batch_function(method: str, function: Any) -> Any:
    """A callable, or a class whose instances are callable and which needs no arguments."""
    if isinstance(function, type):
        if not any("__call__" in base.__dict__ for base in function.__mro__[:-1]):
            raise ConfigurationError(
                f"{method}: class {function.__qualname__} has no __call__(batch) method"
            )
        return function
    if isinstance(function, Function) or not callable(function):
        raise ConfigurationError(
            f"{method}: expected a callable taking a batch, or a class of such, got "
            f"{_show(function)}"
        )
    return function


def stateless_method(method: str, function: Function, name: str) -> Any:
    """The bound method `name` of a function object that is called without a subtask around it
    (key selectors, partitioners), so that its `open` would never run."""
    if type(function).open is not Function.open or type(function).close is not Function.close:
        raise ConfigurationError(
            f"{method}: {type(function).__qualname__} overrides open() or close(), but it is "
            "called by the exchange, outside any subtask; keep it a pure function of its arguments"
        )
    if isinstance(function, CheckpointedFunction):
        raise ConfigurationError(
            f"{method}: {type(function).__qualname__} is a CheckpointedFunction, but it is called "
            "by the exchange, outside any subtask, where there is no state"
        )
    return getattr(function, name)


def require_positive(method: str, what: str, value: object, maximum: int | None = None) -> int:
    """`value` if it is an int >= 1 (and <= maximum)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{method}: {what} must be an int of at least 1, is {value!r}")
    if maximum is not None and value > maximum:
        raise ConfigurationError(f"{method}: {what} must be at most {maximum}, is {value}")
    return value


def require_text(method: str, what: str, value: object) -> str:
    """`value` if it is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{method}: {what} must be a non-empty string, is {value!r}")
    return value


def function_name(function: Any) -> str:
    """Short text for a function in messages and `explain()`."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


_CALLED = ("map", "flat_map", "filter", "reduce", "get_key", "partition")
"""Methods of function objects that `require_function` is asked about."""


def _reject_coroutines(method: str, function: Any) -> None:
    """What an `async def` gives is a coroutine, which nobody awaits here."""
    while isinstance(function, functools.partial):
        function = function.func
    called = [function, getattr(type(function), "__call__", None)]  # noqa: B004
    if isinstance(function, Function):
        called += [getattr(function, name, None) for name in _CALLED]
    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in called):
        raise ConfigurationError(
            f"{method}: {function_name(function)} is an 'async def', whose results are awaited by "
            "nobody here: use AsyncDataStream.unordered_wait or ordered_wait, or a plain 'def'"
        )


def _reject_class(method: str, function: Any) -> None:
    if isinstance(function, type) and issubclass(function, Function):
        raise ConfigurationError(
            f"{method}: got the class {function.__qualname__}; pass an instance: "
            f"{function.__qualname__}(...)"
        )


def _names(kinds: tuple[type[Function], ...]) -> str:
    return " or ".join(f"a {kind.__name__}" for kind in kinds)


def _show(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"


def is_expression(value: Any) -> TypeGuard[pl.Expr]:
    """Whether `value` is a polars expression. A program that never imported polars has none."""
    polars = sys.modules.get("polars")
    return polars is not None and isinstance(value, polars.Expr)
