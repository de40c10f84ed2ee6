"""A job's figures as HTML, and how they are followed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import RenderableType
from strom import (
    ConfigurationError,
    DiscardSink,
    JobFailedError,
    JobStatus,
    StreamExecutionEnvironment,
    TransportError,
)
from strom.notebook import jobs
from strom.notebook.display import as_text
from strom.notebook.jobs import Look, follow, job_html, watch


class Client:
    """Of a job that is over after so many looks."""

    def __init__(self, looks: int = 1000) -> None:
        self.looks = looks
        self.records = 0

    def get_job_id(self) -> str:
        return "<job>"

    def get_job_status(self) -> JobStatus:
        self.looks -= 1
        return JobStatus.RUNNING if self.looks >= 0 else JobStatus.FINISHED

    def metrics(self) -> dict[str, Any]:
        self.records += 1000
        state = "RUNNING" if self.looks >= 0 else "FINISHED"
        checkpoints = {"completed": 4, "failed": 1, "last_duration_ms": 17, "last_size": 1234}
        operator = {"id": "o", "name": "<sum>", "parallelism": 2, "watermark": None}
        task = {"vertex": "v", "name": "<b>sum", "state": "running", "peak_rss_bytes": 3_000_000}
        return {
            "state": state,
            "restarts": 2,
            "last_failure": "operator '<sum>': boom\nTraceback",
            "checkpoints": checkpoints,
            "exchange": {"in_flight_bytes": 0},
            "operators": [{**operator, "records_in": self.records, "records_out": 7}],
            "tasks": [{**task, "times": {"busyTimeMsPerSecond": 250}}],
        }


class Place:
    """Keeps all that is drawn."""

    def __init__(self) -> None:
        self.html: list[str] = []
        self.text: list[str] = []

    def draw(self, html: Callable[[], str], text: Callable[[], RenderableType]) -> None:
        self.html.append(html())
        self.text.append(as_text(text()))

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


def cells(html: str) -> list[list[str]]:
    rows = ElementTree.fromstring(html).iter("tr")
    return [["".join(cell.itertext()) for cell in row] for row in rows]


def test_the_figures_of_a_job() -> None:
    client = Client()
    html = job_html(client)
    assert cells(html) == [
        ["operator", "tasks", "records in", "records out", "in/s", "out/s", "watermark", "lag"],
        ["<sum>", "2", "1,000", "7", "-", "-", "-", "-"],
        ["task", "subtasks", "busy", "held", "idle", "RSS at most", "state"],
        ["<b>sum", "1", "25%", "0%", "0%", "3 MB", "running"],
    ]
    assert "job &lt;job&gt;: RUNNING" in html
    assert "last failure: operator &#x27;&lt;sum&gt;&#x27;: boom" in html
    assert "Traceback" not in html
    assert cells(job_html(client))[1][4] != "-", "who looks again sees rates"


def test_looks_keep_no_client_alive() -> None:
    client = Client()
    job_html(client)
    gone = weakref.ref(client)
    del client
    gc.collect()
    assert gone() is None


def test_followed_until_it_is_over() -> None:
    seconds = iter(range(100))
    look, place = Look(clock=lambda: float(next(seconds))), Place()
    follow(Client(looks=3), look, place, 0.0, threading.Event())
    assert [cells(html)[1][2] for html in place.html] == ["1,000", "2,000", "3,000", "4,000"]
    rates = [cells(html)[1][4] for html in place.html]
    assert rates == ["-", "1,000", "1,000", "-"], "none at first, and none when it is over"
    assert "FINISHED" in place.html[-1]
    assert "FINISHED" in place.text[-1]


def test_a_job_that_cannot_be_asked() -> None:
    class Gone(Client):
        def get_job_status(self) -> JobStatus:
            raise JobFailedError("its <coordinator> is gone")

    place = Place()
    follow(Gone(), Look(), place, 0.0, threading.Event())
    (html,), (text,) = place.html, place.text
    assert "job &lt;job&gt;: its &lt;coordinator&gt; is gone" in html
    assert text == "job <job>: its <coordinator> is gone"
    assert job_html(Gone()) == html


def test_a_job_that_does_not_answer_for_a_while() -> None:
    class Away(Client):
        def metrics(self) -> dict[str, Any]:
            if self.looks in away:
                raise TransportError("ask again")
            return super().metrics()

    now = iter(range(0, 1 << 20, int(jobs.PATIENCE_S) // 3))
    away, place = {2, 3, 5}, Place()
    follow(Away(looks=7), Look(lambda: float(next(now))), place, 0.0, threading.Event())
    assert ["ask again" in html for html in place.html] == [n in away for n in range(6, -2, -1)]
    away, place = set(range(100)), Place()
    follow(Away(looks=50), Look(lambda: float(next(now))), place, 0.0, threading.Event())
    assert len(place.html) == 4, "not for ever"


def test_who_watches_anew_ends_the_thread_before(monkeypatch: pytest.MonkeyPatch) -> None:
    client, other, before = Client(), Client(), set(threading.enumerate())
    monkeypatch.setattr(jobs, "in_notebook", lambda: True)
    monkeypatch.setattr(jobs, "place", Place)

    def watched(client: Client, wait: bool = False) -> set[threading.Thread]:
        known = set(threading.enumerate())
        watch(client, timedelta(hours=1), wait)
        return {one for one in threading.enumerate() if one.name == "strom-show"} - known

    (first,), (second,) = watched(client), watched(other)
    (third,) = watched(client)
    first.join(60)
    assert [one.is_alive() for one in (first, second, third)] == [False, True, True]
    for one in (client, other):
        one.looks = 0
        assert watched(one, wait=True) == set()
    for thread in (second, third):
        thread.join(60)
    assert set(threading.enumerate()) <= before


def test_clients_show_their_job(capsys: pytest.CaptureFixture[str]) -> None:
    with StreamExecutionEnvironment.get_execution_environment() as env:
        env.from_collection(list(range(50))).map(abs).name("[b]numbers").sink_to(DiscardSink())
        client = env.execute_async()
        client.show(timedelta(milliseconds=20))
        shown = capsys.readouterr().out
        assert shown.count("state FINISHED") == 1, "once, where it cannot be redrawn"
        assert "[b]numbers" in shown
        client.show(wait=False)
        assert "state FINISHED" in capsys.readouterr().out
        assert cells(client._repr_html_())[2][:4] == ["[b]numbers", "1", "50", "50"]
        with pytest.raises(ConfigurationError, match="interval must be positive"):
            client.show(timedelta(0))
        with pytest.raises(ConfigurationError, match="interval must be timedelta"):
            client.show(1)  # type: ignore[arg-type]
