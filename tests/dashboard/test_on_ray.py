"""The dashboard on a real Ray: of a job without a session, and of a session; `strom dashboard`."""

from __future__ import annotations

import json
import re
import stat
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_kit import endless, get, link_in
from shared_ray import ray_of
from strom.cli import dashboard
from strom.cli.main import app
from strom.cluster import dispatcher_client
from strom.core.errors import JobFailedError
from strom.rest.servers import session_server
from strom.rest.servers.api import Serving
from strom.rest.servers.tokens import tokens_in
from typer.testing import CliRunner

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with ray_of(4):
        yield


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Path]:
    """The file with its tokens."""
    dispatcher_client.start(str(tmp_path / "registry"), ready=0)
    file = tmp_path / "tokens.json"
    tokens_in(file)
    session_server.start(Serving(port=0, tokens=str(file)))
    yield file
    session_server.stop()
    dispatcher_client.stop()


def test_a_job_without_a_session(capsys: pytest.CaptureFixture[str]) -> None:
    """Its flame graph is of the process that runs the task, which is not this one."""
    env = endless("ray")
    client = env.execute_async("sums", dashboard=True)
    try:
        url, token, page = link_in(capsys.readouterr().out)
        job = f"{url}/v1{page}"
        until(lambda: get(job, token)["state"] == "RUNNING")
        until(lambda: get(f"{job}/figures", token)["vertices"][1]["read-records"])
        figures = get(f"{job}/figures", token)
        assert figures["memory"]["processes"] >= 2
        assert figures["memory"]["rss"] > 50 << 20
        vertex = figures["vertices"][1]["id"]
        assert re.search("TaskRunner|SYS_PTRACE", flames(f"{job}/vertices/{vertex}", token))
        # Nobody looks from its end until its coordinator is gone: the page stays.
        client.cancel()
        until(lambda: is_gone(client))
        assert get(job, token)["state"] == "CANCELED"
    finally:
        client.cancel()
        env.close()


def test_a_session_is_where_the_link_leads(
    session: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = endless("ray")
    client = env.execute_async("sums", dashboard=True)
    try:
        url, token, page = link_in(capsys.readouterr().out)
        about = session_server.about()
        assert about is not None
        assert url == about["rest"]
        assert token == tokens_in(session).operate
        until(lambda: get(f"{url}/v1{page}", token)["state"] == "RUNNING")

        said = strom("dashboard", "--no-open")
        assert f"the dashboard: {url}/#/jobs" in said
        assert str(session) in said
        assert token not in said
        told = json.loads(strom("dashboard", str(client.get_job_id()), "--json"))
        assert told == {"url": f"{url}/#{page}", "tokens": str(session)}

        asked: list[str] = []
        monkeypatch.setenv("HOME", str(session.parent))
        monkeypatch.setattr(
            dashboard.webbrowser, "open", lambda url: bool(asked.append(url)) or True
        )
        assert f"opened: {url}/#/jobs" in strom("dashboard")
        (leading,) = asked
        file = Path(leading.removeprefix("file://"))
        assert f"{url}/#token={token}&amp;/jobs" in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        client.cancel()
        env.close()


def test_no_session_has_no_dashboard() -> None:
    found = CliRunner().invoke(app, ["dashboard", "--no-open"])
    assert found.exit_code == 2
    assert "strom cluster start" in found.stderr


def is_gone(client: Any) -> bool:
    try:
        client.view()
    except JobFailedError:
        return True
    return False


def flames(vertex: str, token: str) -> str:
    """What a flame graph shows, or why there is none: not every machine permits it."""
    try:
        return json.dumps(get(f"{vertex}/flamegraph", token))
    except urllib.error.HTTPError as error:
        return error.read().decode()


def strom(*arguments: str) -> str:
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 0, found.output
    return found.stdout


def until(holds: Callable[[], Any]) -> None:
    import time

    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
