"""The server of a session that comes back while what it needs is away."""

from __future__ import annotations

import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from strom.core.errors import ResourceError
from strom.rest.servers import session_server
from strom.rest.servers.api import Serving
from strom.rest.servers.listener import free_port
from strom.rest.servers.session_server import SessionServer, _mark
from strom.rest.servers.tokens import Tokens, keep_tokens


class Nothing:
    """A catalog whose dispatcher is away."""

    kind = "session"


@pytest.fixture(autouse=True)
def without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        gcs_address = "127.0.0.1:1"

    monkeypatch.setattr(session_server.ray, "get_runtime_context", Context)
    monkeypatch.setattr(session_server, "SessionJobs", Nothing)
    monkeypatch.setattr(session_server, "RETRY_S", 0.01)


def test_a_port_that_is_taken_for_a_while() -> None:
    """It is made all the same, and serves once it can: Ray would not make it again."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        serving = Serving(port=other.getsockname()[1])
        server = SessionServer(serving, serving)
        with pytest.raises(ResourceError, match="cannot listen on"):
            server.about()
    deadline = time.monotonic() + 60
    answered: Any = None
    while answered is None:
        assert time.monotonic() < deadline, "nobody listens"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{serving.port}/", timeout=10) as answer:
                answered = answer.status
        except OSError:
            time.sleep(0.01)
    assert server.about()["rest"].endswith(f":{serving.port}")
    server._open().close()


def test_tokens_that_are_changed_have_another_mark(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    marks = []
    for _ in range(2):
        keep_tokens(file, Tokens.fresh())
        marks.append(_mark(Serving(tokens=str(file))))
    assert marks[0] != marks[1] == _mark(Serving(tokens=str(file)))
    assert _mark(Serving()) == ""
    file.chmod(0o644)
    assert _mark(Serving(tokens=str(file))).startswith("none: others can read")


def test_a_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert free_port("127.0.0.1", other.getsockname()[1]) == 0
    chosen = free_port("127.0.0.1", 0)
    assert free_port("127.0.0.1", chosen) == chosen


def test_a_home_that_is_away_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the tokens are, or the programs."""
    failures = iter([PermissionError("/home"), OSError("/home is stale")])

    def serve(*arguments: Any, **options: Any) -> str:
        for failure in failures:
            raise failure
        return "it serves"

    monkeypatch.setattr(session_server, "serve", serve)
    server = SessionServer(Serving(), Serving())
    deadline = time.monotonic() + 60
    while server._server is None:
        assert time.monotonic() < deadline, "nobody tries again"
        time.sleep(0.001)
