"""What is kept of jobs, and what a broken registry does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from strom.cluster.records import JobRecord, Phase
from strom.cluster.registry import Registry, leave_word
from strom.core.errors import CheckpointError, ConfigurationError, CorruptCheckpointError
from strom.core.job_status import JobStatus
from strom.engine.hosts.job_outcome import JobOutcome

RECORD = JobRecord("a1", "one", 2.0, 2, False, 300_000, 17, checkpoints="s3://b/c")
ENDED = JobOutcome("a1", "one", JobStatus.FAILED, "why", 17.0, 3, 1, {"state": "FAILED"})


@pytest.fixture(params=["local", "memory"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "registry") if request.param == "local" else f"memory://{tmp_path}"


def test_jobs_are_there_until_they_are_over(location: str) -> None:
    registry = Registry(location)
    assert list(registry.records()) == []
    registry.submit(RECORD, b"what it starts from")
    running = replace(RECORD, phase=Phase.RUNNING, status=JobStatus.RUNNING, run=3, started_ms=20)
    registry.store(running)
    again = Registry(location)
    assert list(again.records()) == [running]
    assert again.submission("a1") == b"what it starts from"
    over = replace(running, phase=Phase.ENDED, status=JobStatus.FAILED, error="why", ended_ms=30)
    again.archive(over, {"metrics": {"state": "FAILED"}})
    assert list(again.records()) == []
    assert again.history() == ["a1"]
    kept = again.ended("a1")
    assert kept == {"record": over.to_json(), "metrics": {"state": "FAILED"}}
    assert JobRecord.from_json(kept["record"]) == over
    assert again.ended("a2") is None


def test_a_submission_or_an_archiving_that_broke_off_leaves_nothing(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.submit(RECORD, b"")
    (tmp_path / "jobs" / "a1" / "record.json").unlink()
    registry.submit(replace(RECORD, job_id="b2"), b"")
    over = replace(RECORD, job_id="b2", phase=Phase.ENDED, status=JobStatus.FINISHED)
    registry.archive(over, {})
    registry.submit(replace(RECORD, job_id="b2"), b"")
    assert list(registry.records()) == []
    assert list((tmp_path / "jobs").iterdir()) == []
    assert registry.history() == ["b2"]


def test_what_is_damaged_is_named_and_stays_and_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(str(tmp_path))
    other = replace(RECORD, job_id="b2")
    registry.submit(RECORD, b"")
    registry.submit(other, b"")
    file = tmp_path / "jobs" / "a1" / "record.json"
    for text in ("{", "[]", "{}", '{"phase": "PAUSED"}'):
        file.write_text(text)
        caplog.clear()
        assert list(registry.records()) == [other]
        assert "job a1 of the registry cannot be read" in caplog.text
        assert file.exists()


def test_files_among_its_jobs_are_somebody_elses(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.submit(RECORD, b"graph")
    for name in ("cafecafecafecafe.json", ".DS_Store"):
        (tmp_path / "jobs" / name).write_text("nonsense")
    assert list(registry.records()) == [RECORD]
    assert (tmp_path / "jobs" / ".DS_Store").exists()


def test_how_a_run_ended_is_known_of_that_run(tmp_path: Path) -> None:
    registry = Registry(str(tmp_path))
    registry.submit(RECORD, b"")
    run, next_run = replace(RECORD, run=1), replace(RECORD, run=2)
    assert registry.last_word(run) is None
    leave_word(str(tmp_path), 1, ENDED)
    assert registry.last_word(run) == ENDED
    assert registry.last_word(next_run) is None
    leave_word(str(tmp_path), 1, replace(ENDED, metrics={("not", "JSON"): 1}))
    assert registry.last_word(run) == JobOutcome.kept("a1", "one", ENDED.status, "why", {})
    leave_word(str(tmp_path), 0, replace(ENDED, job_id="b2"))  # nobody knows it: nothing is left
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["a1"]
    for text in ("{", "{}", '{"run": 1, "status": "DONE", "error": null}'):
        (tmp_path / "jobs" / "a1" / "end.json").write_text(text)
        with pytest.raises(CorruptCheckpointError, match=r"jobs/a1/end\.json: no"):
            registry.last_word(run)
    registry.archive(replace(RECORD, phase=Phase.ENDED), {})
    assert registry.last_word(run) is None


def test_a_record_of_a_later_version_is_read(tmp_path: Path) -> None:
    assert JobRecord.from_json({**RECORD.to_json(), "colour": "red"}) == RECORD


def test_where_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="registry 'nix://x'"):
        Registry("nix://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot make"):
        Registry(str(tmp_path / "file" / "below"))


def test_a_storage_that_fails_for_a_moment_loses_no_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever comes next starts a job again that is over."""
    registry = Registry(str(tmp_path))
    registry.submit(RECORD, b"")
    exists, failures = Registry._exists, iter([TimeoutError("slow down")])

    def failing(registry: Registry, path: str) -> bool:
        for failure in failures:
            raise failure
        return exists(registry, path)

    monkeypatch.setattr(Registry, "_exists", failing)
    leave_word(str(tmp_path), 0, ENDED)
    assert next(failures, None) is None
    assert registry.last_word(RECORD) == ENDED
