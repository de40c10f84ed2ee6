"""What a user's function emits: it is what it was at that moment, whatever is done to it later.

Functions reuse objects: they fill one row again and again, or clear a buffer that they have given
away. So what can change is copied when it is emitted, before the function goes on. The hot loops
ask themselves what nearly all records are, values of a type in `FIXED` and tuples of such, and call
the function of `keeper` for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...api.functions.user_functions import OutputTag
from ...core.config import JobConfig
from ...state.copies import kept, kept_values

Keep = Callable[[Any], Any]


def keeper(config: JobConfig) -> Keep:
    """What keeps one emitted value as it is. With `object_reuse` functions promise not to change
    what they have emitted, and it is the value itself."""
    return _same if config.object_reuse else _kept_or_aside


def list_keeper(config: JobConfig) -> Callable[[list[Any]], list[Any]]:
    """Likewise of a list, which is not changed itself either."""
    return _same if config.object_reuse else kept_values


def _same(value: Any) -> Any:
    return value


def _kept_or_aside(value: Any) -> Any:
    """Also what goes to a side output, with its tag."""
    if type(value) is tuple and len(value) == 2 and isinstance(value[0], OutputTag):
        return value[0], kept(value[1])
    return kept(value)
