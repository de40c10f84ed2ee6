"""`env.execute(dashboard=True)` of jobs that really run, on the local host; two in a browser."""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chaos_kit import until
from dashboard_kit import Visit, endless, get, link_in
from strom import (
    ConfigurationError,
    DiscardSink,
    FixedDelayRestart,
    JobConfig,
    JobFailedError,
    ResourceError,
    StreamExecutionEnvironment,
)
from strom.api.jobs.host import open_pages
from strom.rest.servers import job_server


def opened(capsys: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    """What was printed: address, token, page."""
    return link_in(capsys.readouterr().out)


def test_a_job_of_this_program_has_pages_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    env = endless()
    client = env.execute_async("sums", dashboard=True)
    try:
        url, token, page = opened(capsys)
        (line,) = get(f"{url}/v1/jobs/overview", token)["jobs"]
        assert (line["jid"], line["name"]) == (str(client.get_job_id()), "sums")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{url}/v1/jobs/overview", None)
        assert len(get(f"{url}/v1{page}/figures", token)["vertices"]) == 2
    finally:
        client.cancel()
    until(lambda: get(f"{url}/v1{page}", token)["state"] == "CANCELED", "its end")  # they stay
    env.close()
    with pytest.raises(urllib.error.URLError):
        get(f"{url}/v1{page}", token)


def test_the_next_job_has_the_next_pages(capsys: pytest.CaptureFixture[str]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    found = []
    for name in ("first", "second"):
        env.from_collection([1, 2]).sink_to(DiscardSink())
        env.execute(name, dashboard=True)
        found.append(opened(capsys))
    (before, token, page), (url, _, _) = found
    with pytest.raises(urllib.error.URLError):
        get(f"{before}/v1{page}", token)
    assert get(f"{url}/v1/jobs/overview", found[1][1])["jobs"][0]["state"] == "FINISHED"
    env.from_collection([1]).sink_to(DiscardSink())
    env.execute("third")
    assert capsys.readouterr().out == ""
    env.close()


def test_a_host_that_tells_nothing_has_no_pages() -> None:
    class Silent:
        def get_job_id(self) -> str:
            return "0" * 16

    client: Any = Silent()
    with pytest.raises(ConfigurationError, match="Silent"):
        open_pages(client)


def test_a_job_goes_on_where_its_pages_cannot_be_served(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*arguments: object) -> None:
        raise ResourceError("no port is free")

    monkeypatch.setattr(job_server, "RestServer", taken)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).sink_to(DiscardSink())
    assert env.execute("numbers", dashboard=True).checkpoints >= 1
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "strom: no dashboard: no port is free\n")


@pytest.mark.browser
def test_a_running_job_in_a_browser(
    visit: Callable[..., Visit], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Rates, checkpoints, a savepoint, flames; then it is cancelled from the page."""
    env = endless()
    env.enable_checkpointing(300)
    env.get_checkpoint_config().set_checkpoint_storage(str(tmp_path / "checkpoints"))
    client = env.execute_async("sums", dashboard=True)
    try:
        url, token, page = opened(capsys)
        one = visit(url, f"#token={token}&{page}")
        one.page.get_by_label("Refresh").select_option("every 1 s")
        one.page.locator(".tile dd").first.filter(has_text=re.compile("[1-9].*/s")).wait_for()
        assert one.page.locator(".card").count() == 2
        one.page.get_by_role("link", name="Checkpoints", exact=True).click()
        one.page.locator(".state", has_text="completed").first.wait_for()
        one.page.get_by_role("button", name="Savepoint…").click()
        one.page.get_by_label("Folder").fill(str(tmp_path / "saved"))
        one.page.get_by_role("button", name="Take it").click()
        one.page.locator(".notice.good", has_text="savepoint-").wait_for()
        assert list((tmp_path / "saved").glob("savepoint-*"))
        one.page.get_by_role("link", name="Flame graph", exact=True).click()
        one.page.get_by_label("Threads").select_option("all")
        one.expected = ["409"]
        one.page.get_by_role("button", name="Take samples").click()
        refused = one.page.locator(".notice.error", has_text="does not permit it")
        one.page.locator(".flame").or_(refused).first.wait_for(timeout=30_000)
        if refused.count() == 0:
            assert "LocalJob" in one.text(".flame")
        one.page.get_by_role("button", name="Cancel job…").click()
        one.page.get_by_role("button", name="Cancel the job").click()
        one.page.locator(".job .state", has_text="canceled").wait_for()
    finally:
        client.cancel()
        env.close()


@pytest.mark.browser
def test_a_job_that_failed_shows_the_users_code_first(
    visit: Callable[..., Visit], capsys: pytest.CaptureFixture[str]
) -> None:
    def parsed(text: str) -> int:
        return int(text)

    env = StreamExecutionEnvironment.get_execution_environment(
        JobConfig(restart=FixedDelayRestart(attempts=1))
    )
    env.from_collection(["1", "<b>"]).map(parsed).name("parse").sink_to(DiscardSink())
    with pytest.raises(JobFailedError):
        env.execute("prices", dashboard=True)
    url, token, page = opened(capsys)
    one = visit(url, f"#token={token}&{page}/exceptions")
    frames = one.page.locator(".exception.newest .frames li")
    frames.first.wait_for()
    assert frames.last.inner_text().split()[0] == "parsed"
    assert "return int(text)" in frames.last.inner_text()
    assert one.page.locator(".exception").count() == 2
    assert "'<b>'" in one.page.locator(".exception h2").first.inner_text()
    env.close()
