"""Paths that may take long get threads of their own, so that a dozen of them hold up no other path:
all the rest of the API shares the forty of the framework."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

P = ParamSpec("P")
T = TypeVar("T")


def apart(most: int) -> Callable[[Callable[P, T]], Callable[P, Awaitable[T]]]:
    """Decorates the function of a path. `most`: so many of it run at once, and others wait without
    holding a thread."""

    def decorate(function: Callable[P, T]) -> Callable[P, Awaitable[T]]:
        rooms: RunVar[CapacityLimiter] = RunVar(f"strom-rest {function.__name__}")
        """Of each event loop."""

        @functools.wraps(function)
        async def on_a_thread(*arguments: P.args, **options: P.kwargs) -> T:
            room = rooms.get(None)
            if room is None:
                room = CapacityLimiter(most)
                rooms.set(room)
            call = functools.partial(function, *arguments, **options)
            return await to_thread.run_sync(call, limiter=room)

        return on_a_thread

    return decorate
