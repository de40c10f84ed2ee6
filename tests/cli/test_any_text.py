"""Whatever names, messages and log lines hold: people are shown what no terminal obeys, scripts get
valid JSON, in every encoding."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import strom
from rest_kit import PlayedJobs, view_of_a_job
from strom.cli import answers, checkpoints, dashboard, doctor, jobs, logs, plan
from strom.cli.main import app
from strom.cluster.records import JobRecord
from strom.core import child_output
from strom.core.errors import ConfigurationError
from strom.core.texts import printable
from strom.diagnosis.findings import Examined
from strom.engine.hosts import job_logs, ray_host
from strom.engine.hosts.job_logs import LogPage
from strom.rest.programs.runs import JOB_LINE
from typer.testing import CliRunner

ODD = "\ud800ü\x1b[31m\n\x9b1m\u202e\x7f\r\U0001f600\U000e0001"
SHOWN = r"\ud800ü\x1b[31m\n\x9b1m\u202e\x7f\r😀\U000e0001"

ENTRY = {
    "time": "2026-01-01T00:00:00.000000Z",
    **dict.fromkeys(("level", "logger", "operator", "message", "error"), ODD),
    "extra": {ODD: ODD, "n": float("nan")},
}

METRICS = {
    "state": "RUNNING",
    "restarts": 0,
    "last_failure": f"{ODD}\nmore",
    "checkpoints": {"completed": 0, "failed": 0, "last_duration_ms": None, "last_size": None},
    "exchange": {"in_flight_bytes": 0},
    "operators": [
        {"id": "a", "name": ODD, "parallelism": 1, "records_in": 0, "records_out": 0}
        | {"watermark": None}
    ],
    "tasks": [{"vertex": "v", "name": ODD, "state": "RUNNING"}],
}


class Played:
    """An account of jobs, a client and a log, of one job called `ODD`."""

    record = JobRecord("0123456789abcdef", ODD, 1.0, 1, False, 0, 0, error=ODD)

    def __init__(self, *arguments: Any) -> None:
        pass

    def jobs(self, ended: int) -> Any:
        return [(self.record, ODD)]

    def job(self, job: str) -> Any:
        return self.record, ODD

    def archived(self, job: str) -> Any:
        return {"savepoints": [ODD]}

    def cancel(self, job: str) -> None:
        pass

    def metrics(self) -> Any:
        return METRICS

    def read(self, cursor: Any, wanted: Any) -> LogPage:
        return LogPage([ENTRY], "", False, {ODD: ODD})


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any = view_of_a_job()
    view["name"] = view["vertices"][0]["name"] = view["vertices"][0]["operators"][0]["name"] = ODD
    view["checkpoints"]["history"][0]["reason"] = ODD
    catalog = PlayedJobs()
    monkeypatch.setattr(catalog, "view", lambda job: view)
    for module in (checkpoints, plan):
        monkeypatch.setattr(module, "catalog", lambda address: catalog)
    monkeypatch.setattr(jobs, "account", Played)
    monkeypatch.setattr(job_logs, "JobLogs", Played)
    monkeypatch.setattr(logs, "_connect", lambda address: None)
    monkeypatch.setattr(strom, "attach", Played)


def texts_in(document: Any) -> str:
    """All of them, one after the other."""
    if isinstance(document, dict):
        return "".join(texts_in(one) for item in document.items() for one in item)
    if isinstance(document, list):
        return "".join(texts_in(one) for one in document)
    return document if isinstance(document, str) else ""


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize("charset", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["info", "x"],
        ["cancel", "x"],
        ["checkpoints", "x"],
        ["plan", "x"],
        ["plan", "x", "--format", "mermaid"],
        ["top", "x", "--once", "--interval", "0.1"],
        ["logs", "x"],
    ],
    ids=" ".join,
)
def test_every_command(words: list[str], charset: str) -> None:
    done = CliRunner(charset=charset).invoke(app, words)
    assert done.exit_code == 0, done.output
    text = done.stdout_bytes.decode(charset)
    shown = SHOWN.encode(charset, "backslashreplace").decode(charset)
    folded = re.sub(r"[\s│|]+", "", text)
    assert shown in text or shown in folded
    for said in (text, done.stderr_bytes.decode(charset)):
        assert re.sub(r"[\n ]", "", said).isprintable()

    done = CliRunner(charset=charset).invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    text = done.stdout_bytes.decode(charset)
    assert text.replace("\n", "").isprintable()

    def no_json(constant: str) -> Any:
        raise AssertionError(constant)

    assert ODD in texts_in(json.loads(text, parse_constant=no_json))


@pytest.mark.parametrize("charset", ["utf-8", "ascii"])
def test_errors(monkeypatch: pytest.MonkeyPatch, charset: str) -> None:
    def fails(error: Exception) -> Any:
        def account(address: Any) -> Any:
            raise error

        monkeypatch.setattr(jobs, "account", account)
        plain = CliRunner(charset=charset).invoke(app, ["list"])
        known = CliRunner(charset=charset).invoke(app, ["list", "--json"])
        assert plain.exit_code == known.exit_code
        assert ODD in json.loads(known.stdout)["error"]
        return plain.exit_code, plain.stderr_bytes.decode(charset)

    first, second = (
        printable(one).encode(charset, "backslashreplace").decode(charset)
        for one in ODD.split("\n")
    )
    code, said = fails(ConfigurationError(ODD))
    assert (code, said) == (2, f"strom: {first}\n    {second}\n")
    code, said = fails(RuntimeError(ODD))
    assert (code, said.replace("\n", "").isprintable()) == (3, True)
    assert said.startswith("Traceback")


def test_what_other_commands_show(capsys: pytest.CaptureFixture[str]) -> None:
    answers.say_table(ODD, [ODD], [[ODD]])
    doctor._say([Examined(ODD, "ok", ODD, ODD, 0.0)])
    said = capsys.readouterr().out
    assert said.count(r"\ud800ü\x1b[31m") == 6
    assert re.sub(r"[\n ]", "", said).isprintable()


def test_a_line_of_a_log_keeps_its_tabs() -> None:
    assert "a\tb\\x1b" in logs.line_of(ENTRY | {"message": "a\tb\x1b"}, False)


def test_the_line_at_submission(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, that those who look for its id find whatever the name and the encoding."""

    class Client:
        ends_with_program = True

        def get_job_id(self) -> str:
            return "0123456789abcdef"

    monkeypatch.setattr(ray_host, "on_own_cluster", lambda: False)
    line = ray_host._notice(ODD, Client())  # type: ignore[arg-type]
    assert line.startswith(f"strom: job '{SHOWN}' has the id 0123456789abcdef and ends with")
    for name in (ODD, "\U0001f600" * 5_000, "x' has the id fedcba9876543210 \n"):
        told = ray_host._notice(name, Client())  # type: ignore[arg-type]
        written = told.encode("ascii", "backslashreplace")
        found = JOB_LINE.match(written)
        assert found is not None
        assert found[1] == b"0123456789abcdef"
        assert len(written) < child_output.LINE


def test_a_page_of_a_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The file that leads there has ASCII only: the locale may have no more."""
    monkeypatch.setenv("HOME", str(tmp_path))
    read: list[bytes] = []

    def browser(address: str) -> bool:
        (leading,) = (tmp_path / ".strom").glob("*.html")
        read.append(leading.read_bytes())
        return False

    monkeypatch.setattr(dashboard.webbrowser, "open", browser)
    monkeypatch.setattr(dashboard.subprocess, "Popen", lambda *words, **how: None)
    monkeypatch.setattr(dashboard, "_removing", [])
    assert not dashboard._open(f"http://127.0.0.1/#token=t&/jobs/{ODD}")
    assert b"token=t&amp;/jobs/&#55296;&#252;" in read[0]
    assert read[0].isascii()


def test_stdout_may_be_no_text_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    answers.say_json({"a": ODD})
    answers.say(ODD)
