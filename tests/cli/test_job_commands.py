"""What `strom plan`, `checkpoints` and `rescale` make of what a catalog tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rest_kit import PlayedJobs, view_of_a_job
from strom.autoscaling.steering import Act, Outcome
from strom.autoscaling.verdicts import Decision, Reason, Verdict
from strom.cli import autoscale, checkpoints, plan, rescale
from strom.cli.main import app
from strom.core.ids import VertexId
from strom.rest.catalogs.catalog import Refused
from typer.testing import CliRunner

JOB = "0123456789abcdef"


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> PlayedJobs:
    played = PlayedJobs()
    for module in (autoscale, checkpoints, plan, rescale):
        monkeypatch.setattr(module, "catalog", lambda address: played)
    return played


def said(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


@pytest.mark.usefixtures("jobs")
def test_checkpoints() -> None:
    text = said("checkpoints", JOB)
    lines = [line.replace("│", "").split() for line in text.splitlines()]
    (done,) = [line for line in lines if line[:2] == ["2", "checkpoint"]]
    assert done[2:] == [
        *("COMPLETED", "1970-01-01", "00:00:02", "200", "ms", "400", "4,000", "3", "of", "3"),
        "s3://bucket/chk-2",
    ]
    assert "declined by sums (2/2)" in text
    assert "1 complete, 1 failed; 1 savepoints, 0 failed; restored 1 times" in text
    assert "latest savepoint: 3, s3://bucket/savepoint-3" in text
    assert "restored from: checkpoint 2, 1970-01-01 00:00:03 UTC" in text
    known = json.loads(said("checkpoints", JOB, "--json"))
    assert [(one["id"], one["kind"], one["status"]) for one in known["history"]] == [
        (4, "checkpoint", "IN_PROGRESS"),
        (3, "savepoint", "COMPLETED"),
        (2, "checkpoint", "COMPLETED"),
        (1, "checkpoint", "FAILED"),
    ]
    assert (known["job_id"], known["restored"]["id"]) == (JOB, 2)
    assert known["history"][0]["duration_ms"] == 1_000  # until now
    assert "parts" not in known["latest_completed"]
    assert len(json.loads(said("checkpoints", JOB, "--json", "--limit", "1"))["history"]) == 1


def test_plans_of_jobs(jobs: PlayedJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any = view_of_a_job(JOB)
    told = {"kind": "rows", "why_not": "it is Python", "remarks": ["odd"], "state_backend": "x"}
    view["vertices"][1]["operators"][0].update(told)
    monkeypatch.setattr(jobs, "view", lambda job: view)
    assert said("plan", JOB).splitlines() == [
        "job graph 'sums': 2 nodes",
        "1  Source: numbers  [source, parallelism 1]",
        "2  sums  [sink, parallelism 2]",
        "   ├─ from 1 by HASH(k)",
        "   ├─ rows: kernel",
        "   │     not faster: it is Python",
        "   │     odd",
        "   └─ keyed state: x",
    ]
    assert "HASH(k)" in said("plan", JOB, "--format", "mermaid")
    found = json.loads(said("plan", JOB, "--json"))
    assert (found["job_id"], found["status"], found["nodes"][1]["kind"]) == (JOB, "RUNNING", "sink")
    made = found["nodes"][1]["operators"][0]["implementation"]
    assert made == {"kind": "rows", "name": "kernel", "why_not": "it is Python", "remarks": ["odd"]}


def test_what_the_autoscaler_of_a_job_has_decided(jobs: PlayedJobs) -> None:
    assert said("autoscale", JOB, "--last").startswith("no autoscaler looks at the job")
    assert json.loads(said("autoscale", JOB, "--last", "--json")) == {
        "enabled": False,
        "decisions": [],
    }
    jobs.views[JOB]["autoscaling"] = []
    assert said("autoscale", JOB, "--last") == "nothing was to be changed yet\n"
    verdicts = (
        Verdict(VertexId("a"), "Map", Reason.UP, 1, 4, 210_000, 0, 80_000, 2.63, 0.66),
        Verdict(VertexId("b"), "odd\x1b[31m", Reason.FITS, 2, 2),
    )
    decision = Decision(0.0, verdicts)
    acts = [
        Act(decision, 1_000, Outcome.DECLINED, "a savepoint is being taken", times=3),
        Act(decision, 9_000, Outcome.DONE, ended_ms=10_000),
    ]
    jobs.views[JOB]["autoscaling"] = [act.plain() for act in acts]
    why = (
        "    Map: 1 -> 4: 210,000/s are to be handled, one subtask does 80,000/s: 263 % used, "
        "then 66 %"
    )
    assert said("autoscale", JOB, "--last").splitlines() == [
        "1970-01-01 00:00:01 UTC, declined (3 times): a savepoint is being taken",
        why,
        "1970-01-01 00:00:09 UTC, done",
        why,
    ]
    found = json.loads(said("autoscale", JOB, "--last", "--json"))
    assert [one["outcome"] for one in found["decisions"]] == ["DECLINED", "DONE"]


def test_rescaling_a_job_that_goes_on(jobs: PlayedJobs) -> None:
    told = f"job {JOB} goes on after 340 ms; Map: 2 to 3, while 6 tasks went on\n"
    assert said("rescale", JOB, "3") == told
    found = json.loads(said("rescale", JOB, "4", "--operator", "a", "--operator", "b", "--json"))
    widths = {"job_id": JOB, "before": {"Map": 2}, "after": {"Map": 3}}
    assert found == {
        **widths,
        "silence_ms": 340,
        "stopped_tasks": 4,
        "held_tasks": 0,
        "kept_tasks": 6,
    }
    assert "already" in said("rescale", JOB, "2")
    assert jobs.asked[-2] == ("rescale_live", JOB, {"a": 4, "b": 4})
    assert said("rescale", JOB, "101", code=2) == "strom: it has 100 key groups\n"
    assert "not for --savepoint" in said(
        "rescale", JOB, "3", "--operator", "a", "--savepoint", code=2
    )


def test_rescaling_by_load(jobs: PlayedJobs) -> None:
    assert said("rescale", JOB, "3", "--balance").splitlines() == [
        f"job {JOB} goes on after 340 ms; Map: 2 to 3, while 6 tasks went on",
        "Map: its busiest subtask had 62% of the records, and is to have 50% (one key group has "
        "50%)",
    ]
    found = json.loads(said("rescale", JOB, "4", "--operator", "a", "--balance", "--json"))
    assert found["balance"] == {
        "Map": {"before": 0.625, "after": 0.5, "limit": "one key group has 50%"}
    }
    assert jobs.asked[-1] == ("rescale_live", JOB, {"a": 4}, "balance")
    assert "deal of key groups already" in said("rescale", JOB, "2", "--balance")
    assert "not for --savepoint" in said("rescale", JOB, "3", "--balance", "--savepoint", code=2)


def test_rescaling(jobs: PlayedJobs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    moved = json.loads(said("rescale", JOB, "3", "--directory", "s3://b/s", "--json"))
    assert moved["was"] == JOB
    assert moved["job_id"] in said("rescale", JOB, "3", "--savepoint")
    monkeypatch.chdir(tmp_path)
    said("rescale", JOB, "3", "--directory", "sp")
    assert [one for one in jobs.asked if one[0] == "rescale"] == [
        ("rescale", JOB, 3, "s3://b/s"),
        ("rescale", JOB, 3, None),
        ("rescale", JOB, 3, str(tmp_path / "sp")),
    ]

    def no(*arguments: Any) -> Any:
        raise Refused("not now")

    monkeypatch.setattr(jobs, "rescale", no)
    assert said("rescale", JOB, "3", "--savepoint", code=2) == "strom: not now\n"
    assert said("rescale", JOB, "0", code=2)
