"""`/v1/jobs/<id>/logs`: pages of what a job has said."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rest_kit import PlayedJobs, client_of
from starlette.testclient import TestClient
from strom.logs import files

JOB = "0123456789abcdef"


def line(second: int, **more: Any) -> dict[str, Any]:
    told = {"time": f"2030-01-01T00:00:{second:02}.000000Z", "level": "INFO", "logger": "x"}
    return {**told, "message": f"m{second}", **more}


def sealed(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(files, "logs_root", lambda: tmp_path)
    folder = files.LogFolder(JOB, None).path
    said = [line(n, operator="even" if n % 2 == 0 else "odd", subtask=n % 3) for n in range(10)]
    text = "".join(json.dumps(one) + "\n" for one in said)
    (folder / "task-1-1.000001.jsonl").write_text(text)
    with client_of(PlayedJobs()) as client:
        yield client


def page(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.get(f"/v1/jobs/{JOB}/logs", params=asked)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_pages(client: TestClient) -> None:
    first = page(client, limit=4)
    assert [one["message"] for one in first["entries"]] == ["m0", "m1", "m2", "m3"]
    assert first["more"]
    rest = page(client, cursor=first["cursor"])
    assert [one["message"] for one in rest["entries"]] == ["m4", "m5", "m6", "m7", "m8", "m9"]
    assert (rest["more"], rest["missing"]) == (False, {})
    assert page(client, cursor=rest["cursor"])["entries"] == []


def test_filters_and_the_end(client: TestClient) -> None:
    even = page(client, operator="even", subtask=1)
    assert [one["message"] for one in even["entries"]] == ["m4"]
    assert [one["message"] for one in page(client, tail=2)["entries"]] == ["m8", "m9"]
    assert page(client, level="error")["entries"] == []
    late = page(client, since="2030-01-01T01:00:08+01:00")
    assert [one["message"] for one in late["entries"]] == ["m8", "m9"]


def test_what_no_encoding_takes_is_shown_as_its_escape(tmp_path: Path, client: TestClient) -> None:
    odd = json.dumps(line(20, message="caf\udce9", extra={"na\udce9me": ["\udce9"]})) + "\n"
    (tmp_path / JOB / "task-2-1.000001.jsonl").write_text(odd)
    (shown,) = page(client, tail=1)["entries"]
    assert (shown["message"], shown["extra"]) == ("caf\\udce9", {"na\\udce9me": ["\\udce9"]})


def test_what_is_archived_of_a_job_whose_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "logs_root", lambda: tmp_path)
    jobs = PlayedJobs()
    jobs.kept_lines = [line(n, message="caf\udce9") for n in range(3)]
    with client_of(jobs) as client:
        over = client.get("/v1/jobs/fedcba9876543210/logs?tail=2").json()
        assert [one["message"] for one in over["entries"]] == ["caf\\udce9"] * 2
        assert page(client)["entries"] == [], "this one runs"
        jobs.views[JOB]["config"]["logging.directory"] = str(tmp_path / "disk")
        folder = files.LogFolder(JOB, str(tmp_path / "disk")).path
        (folder / "task-1-1.000001.jsonl").write_text(json.dumps(line(1)) + "\n")
        folder.unlink()
        assert [one["message"] for one in page(client)["entries"]] == ["m1"]


def test_what_is_refused(client: TestClient) -> None:
    for asked in (
        {"cursor": "nonsense"},
        {"level": "LOUD"},
        {"limit": 0},
        {"limit": 1 << 20},
        {"since": "x"},
        {"since": "0001-01-01T00:00+14:00"},
        {"cursor": sealed('{"f": {"x": Infinity}}')},
        {"cursor": sealed("[" * 100_000)},
    ):
        assert client.get(f"/v1/jobs/{JOB}/logs", params=asked).status_code in (400, 422)
    assert client.get("/v1/jobs/0000000000000000/logs").status_code == 404
