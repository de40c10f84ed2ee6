"""A user's function as an operator runs it: one callable, and a lifecycle if it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...api.functions.checkpointed import checkpointed
from ...api.functions.methods import method_of
from ...api.functions.user_functions import Function
from ...state.backend import NoKey
from ..base import OperatorContext
from ..closing import warn_of_close
from .function_state import InitializationContext, SnapshotContext
from .runtime_context import OperatorRuntimeContext


class UserFunction:
    """`call` is the function itself or its method `method`. Opened and closed at most once. Every
    operator that has one calls `snapshot` as it prepares its own."""

    def __init__(self, function: Any, method: str) -> None:
        self.function = function
        self.call: Callable[..., Any] = method_of(function, method)
        self._opened = False
        self._subtask = 0
        self._state = checkpointed(function)
        self._operator: OperatorContext | None = None

    def other(self, method: str) -> Callable[..., Any]:
        """Another method of the function."""
        return method_of(self.function, method)

    def open(self, context: OperatorRuntimeContext) -> None:
        """Have the function initialise its state, and call its own `open`, if it has these."""
        self._opened = True
        self._subtask = context.get_index_of_this_subtask()
        if self._state is not None:
            self._operator = context.operator
            self._state.initialize_state(InitializationContext(context.operator))
        _lifecycle(self.function, "open", context)

    def snapshot(self, checkpoint_id: int) -> None:
        """Have the function put into state what it keeps beside it, if it has any. There is no
        current key then."""
        if self._state is None or self._operator is None:
            return
        keyed = self._operator.keyed_state
        key = keyed.get_current_key()
        keyed.set_current_key(NoKey())
        self._state.snapshot_state(SnapshotContext(checkpoint_id))
        keyed.set_current_key(key)

    def close(self, operator: str) -> None:
        """Call the function's own `close`, if it was opened. Never raises: an error is logged under
        the operator's name (see `warn_of_close`)."""
        if not self._opened:
            return
        self._opened = False
        try:
            _lifecycle(self.function, "close")
        except BaseException as error:
            warn_of_close(operator, self._subtask, "its function", error)


def _lifecycle(function: Any, name: str, *arguments: Any) -> None:
    """Functions have a lifecycle; callables that happen to have `open` or `close` do not."""
    if isinstance(function, Function) or not callable(function):
        method = getattr(function, name, None)
        if callable(method):
            method(*arguments)
