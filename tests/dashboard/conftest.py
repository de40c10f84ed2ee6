"""A headless Chromium, a played cluster behind the real API, and pages that may not complain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import browser_kit
import pytest
from dashboard_kit import Visit, serve
from played_cluster import PlayedCluster


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser_kit.chromium() as browser:
        yield browser


@pytest.fixture
def cluster() -> PlayedCluster:
    return PlayedCluster()


@pytest.fixture
def server(cluster: PlayedCluster) -> Iterator[Any]:
    server = serve(cluster)
    yield server
    server.close()


@pytest.fixture
def visit(chromium: Any, server: Any) -> Iterator[Callable[..., Visit]]:
    """`visit(url, path, **context)`: a page of a new visitor. None may complain in its console, but
    of what the test expects (`Visit.expected`). They are closed before
    `server`, which would wait for them."""
    opened: list[tuple[Any, Visit]] = []

    def visit(url: str, path: str = "#/jobs", **context: Any) -> Visit:
        made = chromium.new_context(
            viewport=context.pop("viewport", {"width": 1440, "height": 900}),
            timezone_id="UTC",
            locale="en-GB",
            reduced_motion="reduce",
            **context,
        )
        made.set_default_timeout(10_000)
        one = Visit(made.new_page(), url)
        opened.append((made, one))
        one.go(path)
        return one

    yield visit
    complaints = [complaint for _, one in opened for complaint in one.complaints()]
    for made, _ in opened:
        made.close()
    assert not complaints
