"""What takes long holds up no other path."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from anyio import to_thread
from rest_kit import SOURCE, PlayedJobs
from strom.rest.paths.flame_graphs import FlameGraphs
from strom.rest.servers.api import guarded, make_app

PATH = f"/v1/jobs/0123456789abcdef/vertices/{SOURCE}/flamegraph"
LATE_S = 60.0


def client_in_loop() -> httpx.AsyncClient:
    transport = httpx.ASGITransport(guarded(make_app(PlayedJobs())))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


def test_many_flame_graphs_leave_threads_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Semaphore(0), threading.Event()
    on: list[int] = []

    def of(self: FlameGraphs, tasks: Any, kind: str) -> Any:
        on.append(1)
        begun.release()
        assert go.wait(LATE_S)
        return {"endTimestamp": 1, "data": {"name": "root", "value": 0, "children": []}}

    monkeypatch.setattr(FlameGraphs, "of", of)

    async def scene() -> list[int]:
        async with client_in_loop() as client:
            asked = [asyncio.ensure_future(client.get(PATH)) for _ in range(60)]
            try:
                for _ in range(4):
                    assert await asyncio.to_thread(begun.acquire, timeout=LATE_S)
                async with asyncio.timeout(LATE_S):
                    assert (await client.get("/v1/jobs")).status_code == 200
                assert len(on) == 4
            finally:
                go.set()
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert asyncio.run(scene()) == [200] * 60


def test_the_page_needs_no_thread() -> None:
    async def scene() -> None:
        limiter = to_thread.current_default_thread_limiter()
        for _ in range(int(limiter.total_tokens)):
            limiter.acquire_on_behalf_of_nowait(object())
        async with client_in_loop() as client, asyncio.timeout(LATE_S):
            for path in ("/", "/static/app/main.js", "/v1/config"):
                assert (await client.get(path)).status_code == 200

    asyncio.run(scene())
