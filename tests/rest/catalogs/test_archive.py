"""The history server's catalog: what a registry holds, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rest_kit import client_of, view_of_a_job
from strom.cli import history
from strom.cli.main import app
from strom.cluster.records import JobRecord, Phase
from strom.cluster.registry import Registry
from strom.core.errors import ConfigurationError
from strom.core.job_status import JobStatus
from strom.rest.catalogs import archive as module
from strom.rest.catalogs.archive import Archive
from typer.testing import CliRunner

RECORD = JobRecord("a1", "one", 2.0, 2, False, 60_000, 500, "memory://x", Phase.ENDED)


def registry_of(folder: Path) -> Registry:
    made = Registry(str(folder))
    failed = replace(
        RECORD, status=JobStatus.FAILED, error="it broke", ended_ms=9_000, tasks={"FAILED": 3}
    )
    made.archive(failed, {}, view_of_a_job("a1", "FAILED"))
    never = replace(RECORD, job_id="b2", status=JobStatus.CANCELED, ended_ms=9_500)
    made.archive(never, {})
    return made


def test_jobs_that_are_over(tmp_path: Path) -> None:
    registry_of(tmp_path)
    with client_of(Archive(str(tmp_path))) as client:

        def get(path: str) -> Any:
            answer = client.get(f"/v1{path}")
            assert answer.status_code == 200, answer.text
            return answer.json()

        newest, first = get("/jobs/overview")["jobs"]
        assert (newest["jid"], first["jid"]) == ("b2", "a1")
        assert (first["state"], first["start-time"], first["end-time"]) == ("FAILED", 500, 9_000)
        assert first["tasks"]["failed"] == 3
        details = get("/jobs/a1")
        assert (details["state"], len(details["vertices"]), details["now"]) == ("FAILED", 2, 9_000)
        assert get("/jobs/a1/checkpoints")["counts"]["completed"] == 2
        assert get("/jobs/b2")["vertices"] == []
        assert get("/jobs/b2/exceptions")["root-exception"] is None
        overview = get("/overview")
        assert (overview["jobs-failed"], overview["taskmanagers"]) == (1, 0)
        features = get("/config")["features"]
        assert (features["web-history"], features["web-cancel"]) == (True, False)
        assert client.patch("/v1/jobs/a1").status_code == 409
        assert client.get("/v1/jobs/c3").status_code == 404


def test_a_job_that_never_ran_says_why(tmp_path: Path) -> None:
    made = registry_of(tmp_path)
    lost = replace(RECORD, job_id="c3", status=JobStatus.FAILED, ended_ms=1, error="password=hush")
    made.archive(lost, {})
    with client_of(Archive(str(tmp_path))) as client:
        found = client.get("/v1/jobs/c3/exceptions").json()
    assert (found["root-exception"], found["timestamp"]) == ("password=***", 1)


def test_each_record_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = registry_of(tmp_path)
    archive = Archive(str(tmp_path))
    read: list[str] = []
    ended = Registry.ended

    def counting(self: Registry, job_id: str) -> Any:
        read.append(job_id)
        return ended(self, job_id)

    monkeypatch.setattr(Registry, "ended", counting)
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    assert [job.id for job in archive.jobs()] == ["b2", "a1"]
    made.archive(replace(RECORD, job_id="c3", ended_ms=10_000), {})
    assert [job.id for job in archive.jobs()] == ["c3", "b2", "a1"]
    assert sorted(read) == ["a1", "b2", "c3"]
    (tmp_path / "history" / "a1.json").unlink()
    assert [job.id for job in archive.jobs()] == ["c3", "b2"]


def test_what_is_damaged_is_named_and_holds_up_nobody(tmp_path: Path) -> None:
    registry_of(tmp_path)
    (tmp_path / "history" / "c3.json").write_text("{")
    (tmp_path / "views" / "a1.json").write_text("[]")
    with client_of(Archive(str(tmp_path))) as client:
        assert len(client.get("/v1/jobs").json()["jobs"]) == 2
        answer = client.get("/v1/jobs/a1")
        assert answer.status_code == 503
        assert "a1.json" in answer.json()["errors"][0]


def test_a_folder_that_is_no_registry(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no registry"):
        Archive(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry_of(tmp_path / "registry")
    tokens = tmp_path / "tokens.json"

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(history, "until_interrupted", interrupted)
    words = ["history-server", str(tmp_path / "registry"), "--rest-port", "0", "--json"]
    done = CliRunner().invoke(app, [*words, "--rest-token-file", str(tokens)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert (found["jobs"], found["rest_tokens"]) == (2, str(tokens))
    assert found["rest"].startswith("http://127.0.0.1:")
    assert tokens.stat().st_mode & 0o777 == 0o600
    nowhere = CliRunner().invoke(app, ["history-server", str(tmp_path / "nowhere")])
    assert (nowhere.exit_code, "no registry" in nowhere.output) == (2, True)


def test_thousands_of_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a list costs does not depend on what is known of each job."""
    registry_of(tmp_path)
    text = (tmp_path / "history" / "a1.json").read_text()
    for i in range(3_000):
        job_id = f"{i:016x}"
        (tmp_path / "history" / f"{job_id}.json").write_text(text.replace('"a1"', f'"{job_id}"'))
    viewed: list[str] = []
    monkeypatch.setattr(Registry, "view", lambda self, job_id: viewed.append(job_id))
    with client_of(Archive(str(tmp_path))) as client:
        assert len(client.get("/v1/jobs/overview").json()["jobs"]) == 3_002
        monkeypatch.setattr(Registry, "ended", None)
        assert len(client.get("/v1/jobs/overview").json()["jobs"]) == 3_002
        assert viewed == []
        assert client.get(f"/v1/jobs/{7:016x}").json()["state"] == "FAILED"
    assert viewed == [f"{7:016x}"]
