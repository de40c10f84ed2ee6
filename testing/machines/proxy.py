"""A TCP proxy that makes a bad network of a good one: late, narrow, or silent.

What it swallows it has taken off its senders, and acknowledged: to them the peer is there and says
nothing, as one whose machine has vanished behind a firewall.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

CHUNK: Final = 256 << 10

HELD: Final = 64 << 20
"""Bytes on their way through, per direction of a connection: as a long fat line holds them."""


class Proxy:
    """Listens on loopback, for as long as the context lasts, and passes on to `target`, each byte
    `delay_s` seconds after it came, at most `bytes_per_s` each way of a connection."""

    def __init__(
        self, target: tuple[str, int], delay_s: float = 0.0, bytes_per_s: float | None = None
    ) -> None:
        self.target = target
        self.delay_s = delay_s
        self.bytes_per_s = bytes_per_s
        self.address = ("", 0)
        """Where it listens, once it was entered."""
        self.passed = 0
        """Bytes that have left it, all ways together."""
        self._open = asyncio.Event()
        """Not set: it swallows."""
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def swallow(self) -> None:
        """From now on nothing leaves it, either way, and nobody is told."""
        self._do(self._set(False))

    def resume(self) -> None:
        """What was swallowed leaves after all, in order."""
        self._do(self._set(True))

    def reset(self) -> None:
        """Break all connections, so that both ends know. Others may be made."""
        self._do(self._reset())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._open.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK)
        self.address = self._server.sockets[0].getsockname()[:2]

    async def _stop(self) -> None:
        self._server.close()
        await self._reset()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set(self, passes: bool) -> None:
        if passes:
            self._open.set()
        else:
            self._open.clear()

    async def _reset(self) -> None:
        for writer in self._connections:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, onward = await asyncio.open_connection(*self.target, limit=CHUNK)
        except OSError:
            writer.transport.abort()
            return
        self._connections |= {writer, onward}
        for source, sink in ((reader, onward), (there, writer)):
            task = asyncio.ensure_future(_Way(self, source, sink).run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


class _Way:
    """One direction of one connection."""

    def __init__(
        self, proxy: Proxy, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._source = source
        self._sink = sink
        self._held: deque[tuple[float, bytes]] = deque()
        """When each piece came; an empty piece is the end."""
        self._bytes = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        taking = asyncio.ensure_future(self._take())
        try:
            await self._pass_on()
        except OSError:
            pass
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            self._sink.close()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        data = b"first"
        while data:
            while self._bytes > HELD:
                self._changed.clear()
                await self._changed.wait()
            try:
                data = await self._source.read(CHUNK)
            except OSError:
                data = b""
            self._held.append((loop.time(), data))
            self._bytes += len(data)
            self._changed.set()

    async def _pass_on(self) -> None:
        loop, proxy = asyncio.get_running_loop(), self._proxy
        while True:
            while not self._held:
                self._changed.clear()
                await self._changed.wait()
            came, data = self._held.popleft()
            if (early := came + proxy.delay_s - loop.time()) > 0:
                await asyncio.sleep(early)
            await proxy._open.wait()
            if not data:
                return
            self._sink.write(data)
            await self._sink.drain()
            proxy.passed += len(data)
            self._bytes -= len(data)
            self._changed.set()
            if proxy.bytes_per_s is not None:
                await asyncio.sleep(len(data) / proxy.bytes_per_s)
