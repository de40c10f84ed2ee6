"""Early checks of asynchronous functions and of what goes with them."""

from __future__ import annotations

import inspect
from typing import Any

from ...core.errors import ConfigurationError
from .async_functions import NO_RETRY_STRATEGY, AsyncRetryStrategy
from .checkpointed import CheckpointedFunction
from .validation import require_batch_function


def require_retries(method: str, strategy: Any) -> AsyncRetryStrategy[Any] | None:
    """The strategy; None for one that never retries."""
    if strategy is None or strategy is NO_RETRY_STRATEGY:
        return None
    if not isinstance(strategy, AsyncRetryStrategy):
        raise ConfigurationError(
            f"{method}: expected an AsyncRetryStrategy, got {strategy!r}; "
            "AsyncRetryStrategy.fixed_delay(...) makes one"
        )
    return strategy


def require_coroutines(method: str, function: Any) -> Any:
    """An AsyncFunction, or an `async def` of one record."""
    if isinstance(function, type):
        name = function.__qualname__
        raise ConfigurationError(f"{method}: got the class {name}; pass an instance: {name}(...)")
    invoke = getattr(function, "async_invoke", None)
    name = type(function).__qualname__
    if invoke is None and not _is_async(function):
        raise ConfigurationError(
            f"{method}: expected an AsyncFunction or an 'async def' of one record, got "
            f"{function!r} ({name})"
        )
    if invoke is not None and not inspect.iscoroutinefunction(invoke):
        raise ConfigurationError(
            f"{method}: method 'async_invoke' of class {name} must be declared as 'async def'"
        )
    _require_plain_timeout(method, function, name)
    return function


def require_batch_coroutines(method: str, function: Any) -> Any:
    """An `async def` of one batch, or a class with an async `__call__` that needs no arguments."""
    require_batch_function(method, function)
    of_class = isinstance(function, type)
    called = function.__call__ if of_class else function
    name = function.__qualname__ if of_class else type(function).__qualname__
    if not _is_async(called):
        raise ConfigurationError(
            f"{method}: {function!r} is no coroutine function: declare it (of a class its "
            "__call__) as 'async def', or use map_batches"
        )
    _require_plain_timeout(method, function, name)
    return function


def _is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine."""
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _require_plain_timeout(method: str, function: Any, name: str) -> None:
    _refuse_state(method, function, name)
    if inspect.iscoroutinefunction(getattr(function, "timeout", None)):
        raise ConfigurationError(
            f"{method}: method 'timeout' of class {name} must be a plain 'def': it gives results "
            "at once"
        )


def _refuse_state(method: str, function: Any, name: str) -> None:
    """What is asked when a checkpoint comes is neither before nor behind it, so there is no moment
    for a function's own state."""
    kind = function if isinstance(function, type) else type(function)
    if issubclass(kind, CheckpointedFunction):
        raise ConfigurationError(
            f"{method}: {name} is a CheckpointedFunction, but requests run beside the checkpoints, "
            "and have no state: keep it in a function ahead of this one or behind it"
        )
