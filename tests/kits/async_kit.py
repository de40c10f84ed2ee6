"""Asynchronous functions that tests look into. They travel by value, so that they find what is
shared with the test by import."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from strom import AsyncFunction

BEGUN = threading.Event()
RELEASE = threading.Event()
ENDED: list[int] = []


class Hangs(AsyncFunction[int, int]):
    """Its coroutines do not end by themselves."""

    async def async_invoke(self, value: int) -> list[int]:
        import async_kit as shared

        shared.BEGUN.set()
        try:
            await asyncio.sleep(3600)
        finally:
            shared.ENDED.append(value)
        return [value]


async def blocks(value: int) -> list[int]:
    """Holds up its loop."""
    import async_kit as shared

    shared.BEGUN.set()
    shared.RELEASE.wait(60)
    return [value]


async def stubborn(value: int) -> list[int]:
    """Does not let itself be cancelled."""
    import async_kit as shared

    shared.BEGUN.set()
    while not shared.RELEASE.is_set():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)
    return [value]
