"""Waking coroutines of an actor's loop from its other threads."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class LoopSignal:
    """Wakes all who wait. What they wait for is theirs to check, each time they wake.

    `wait` belongs to one loop's thread; `ring` may be called from any.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        """Of those who wait; None until somebody has."""
        self._event = asyncio.Event()
        """Replaced with each ring, so that each wakes those who wait then."""

    def ticket(self) -> asyncio.Event:
        """To be taken before checking; a ring from then on ends a wait for it."""
        self._loop = asyncio.get_running_loop()
        return self._event

    def ring(self) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()


async def wait_until(event: asyncio.Event, seconds: float | None) -> None:
    """Until the event or so many seconds (None: for ever) have passed."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
