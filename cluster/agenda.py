"""What a dispatcher has to do: the session's actions, one after the other, and what goes on beside
them. Knows neither jobs nor Ray.

One coroutine carries out the actions in the order in which they were decided, so that nothing
starts before the registry says so; what may take long is spawned, and comes back as an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from ..core.failure_text import described
from .actions import Action

log = logging.getLogger("strom")


class Agenda:
    """Made on the loop that carries it out. Whatever fails is logged, and ends nothing else."""

    def __init__(self, carry: Callable[[Action], Awaitable[None]]) -> None:
        self._carry = carry
        self._actions: asyncio.Queue[Action] = asyncio.Queue()
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        """Whether nothing more is taken."""
        self.spawn(self._carry_out())

    def add(self, actions: Iterable[Action]) -> None:
        """To be done in this order, after all that came before. Whoever waits for a change looks
        again."""
        for action in () if self.closed else actions:
            self._actions.put_nowait(action)
        self.spawn(self.tell())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Goes on beside all else, until `close`."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def done(self) -> None:
        """Return when all actions are carried out."""
        await self._actions.join()

    async def close(self) -> None:
        """Take nothing more, and return when all that was taken is carried out."""
        self.closed = True
        await self.done()
        for task in list(self._tasks):
            task.cancel()

    # --- who waits for a change ------------------------------------------------------------------

    async def tell(self) -> None:
        """Something has changed."""
        async with self._changed:
            self._changed.notify_all()

    async def next_change(self, timeout: float) -> None:
        """Return after the next one, or so many seconds."""
        async with self._changed:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout)

    # --- what is carried out ---------------------------------------------------------------------

    async def _carry_out(self) -> None:
        while True:
            action = await self._actions.get()
            try:
                await self._carry(action)
            except Exception:  # what is wrong with one job is not to end all others
                log.exception("%s cannot be carried out", action)
            self._actions.task_done()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the dispatcher broke off what it did: %s", described(error), exc_info=error)
