"""What happens to a window's contents when it fires: user functions, one shape of call each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ...api.functions.user_functions import ProcessAllWindowFunction, ProcessWindowFunction
from ..rows.collector import Collector
from ..rows.user_function import UserFunction
from .window_contexts import ProcessContext
from .window_namespace import to_namespace

Call = Callable[[Any, Any, Sequence[Any]], Any]
"""(key, window, contents) -> results"""


class WindowEmitter(Protocol):
    """Takes firings one by one, sends their results as batches."""

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> Iterator[Any] | None:
        """The results carry the window's greatest timestamp. What is left of them when a batch is
        there: for `more`, after `flush` and a pause."""
        ...

    def more(self, rest: Iterator[Any], window: Any) -> Iterator[Any] | None:
        """Go on with what `fire` left; likewise."""
        ...

    @property
    def full(self) -> bool:
        """Whether a batch is there, so that it is time for `flush` and a pause."""
        ...

    def clear(self, window: Any) -> None:
        """The window of the current key goes away."""
        ...

    def flush(self) -> None: ...


class PlainEmitter:
    """Sends the contents themselves (a reduction or aggregate without window function)."""

    method = "reduce or aggregate"
    """What gives the results, for letters."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def results(self, key: Any, window: Any, contents: Sequence[Any]) -> Sequence[Any]:
        return contents

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> Iterator[Any] | None:
        return self._collector.collect(contents, window.max_timestamp())

    def more(self, rest: Iterator[Any], window: Any) -> Iterator[Any] | None:
        return self._collector.collect(rest, window.max_timestamp())

    @property
    def full(self) -> bool:
        return self._collector.full

    def clear(self, window: Any) -> None:
        """Nothing is kept per window."""

    def flush(self) -> None:
        self._collector.flush()


_NO_CLEAR = (ProcessWindowFunction.clear, ProcessAllWindowFunction.clear)
"""What there is to do for a function that does not say."""


class FunctionEmitter:
    """Calls the user's window function; what it yields goes out, side outputs too."""

    def __init__(
        self, function: UserFunction, keyed: bool, context: ProcessContext, collector: Collector
    ) -> None:
        self._context = context
        self._collector = collector
        clear = getattr(function.function, "clear", None)
        self._clear = None if getattr(clear, "__func__", None) in _NO_CLEAR else clear
        self._call = _shape(function, keyed, context)
        self.method = "process" if _has_context(function.function) else "apply"

    def results(self, key: Any, window: Any, contents: Sequence[Any]) -> Any:
        """What the function gives."""
        self._context.select(window, to_namespace(window))
        return self._call(key, window, contents)

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> Iterator[Any] | None:
        results = self.results(key, window, contents)
        return self._collector.collect(results, window.max_timestamp())

    def more(self, rest: Iterator[Any], window: Any) -> Iterator[Any] | None:
        return self._collector.collect(rest, window.max_timestamp())

    @property
    def full(self) -> bool:
        return self._collector.full

    def clear(self, window: Any) -> None:
        if self._clear is not None:
            self._context.select(window, to_namespace(window))
            self._clear(self._context)

    def flush(self) -> None:
        self._collector.flush()


def window_user_function(function: Any) -> UserFunction:
    """A window function: an object with `process` or `apply`, or a callable in place of `apply`."""
    return UserFunction(function, "process" if _has_context(function) else "apply")


def _has_context(function: Any) -> bool:
    return callable(getattr(function, "process", None))


def _shape(function: UserFunction, keyed: bool, context: ProcessContext) -> Call:
    call = function.call
    if _has_context(function.function):
        if keyed:
            return lambda key, window, contents: call(key, context, contents)
        return lambda key, window, contents: call(context, contents)
    if keyed:
        return call
    return lambda key, window, contents: call(window, contents)
