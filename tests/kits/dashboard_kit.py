"""The dashboard as it is used: served, found by what programs say, and visited with a browser."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from strom import DiscardSink, JobConfig, StreamExecutionEnvironment
from strom.connectors.datagen import DataGenSource
from strom.rest.servers.api import guarded, make_app
from strom.rest.servers.guard import Access
from strom.rest.servers.listener import RestServer

LINK = re.compile(r"strom: dashboard of job (\w+): (http://[\d.]+:\d+)/#(?:token=([\w-]+)&)?(\S+)")


def link_in(said: str) -> tuple[str, str, str]:
    """What a program says of its job's dashboard: address, token ('': it needs none), page."""
    found = LINK.search(said)
    assert found is not None, said
    assert found[4] == f"/jobs/{found[1]}"
    return found[2], found[3] or "", found[4]


def get(url: str, token: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
        return json.load(answer)


def endless(host: str = "local", **settings: Any) -> StreamExecutionEnvironment:
    """A program of two vertices with two subtasks each, which runs until it is cancelled."""
    config = JobConfig(**settings)
    env = StreamExecutionEnvironment.get_execution_environment(config, host=host)
    env.set_parallelism(2)
    source = DataGenSource(_numbers, rate=2_000)
    pairs = env.from_source(source).map(lambda one: (one["key"], one["value"])).name("pairs")
    sums = pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    sums.name("sums").sink_to(DiscardSink()).name("out")
    return env


def _numbers(start: int, n: int) -> list[dict[str, int]]:
    return [{"key": i % 7, "value": i} for i in range(start, start + n)]


def serve(catalog: Any, access: Access | None = None, port: int = 0) -> RestServer:
    """The API and the dashboard of `catalog`, on loopback."""
    return RestServer(guarded(make_app(catalog, access)), port=port)


class Visit:
    """A page in a browser (playwright's), and what its console said."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.expected: list[str] = []
        """Parts of complaints that the test provokes."""
        self._said: list[str] = []
        page.on("pageerror", lambda error: self._said.append(f"raised: {error}"))
        page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self._said.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def complaints(self) -> list[str]:
        return [one for one in self._said if not any(part in one for part in self.expected)]

    def go(self, path: str) -> None:
        """`path`: what is behind the address, `#/jobs/...`."""
        self.page.goto(f"{self.url}/{path}")
        self.page.locator("h1").wait_for()

    def refresh(self) -> None:
        """A round of questions now; it is over when this returns."""
        self.page.evaluate(
            "async () => {"
            "  const polling = await import('/static/app/polling.js');"
            "  await polling.answered();"
            "  await polling.refreshAfter();"
            "  await polling.answered();"
            "}"
        )

    def text(self, selector: str = "main") -> str:
        found: str = self.page.locator(selector).inner_text()
        return found
