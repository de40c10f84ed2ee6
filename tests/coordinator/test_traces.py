"""Spans out of what a job master hears and asks, told by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strom.checkpoint.coordinator_types import CheckpointStatistics
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.core.ids import Attempt, CheckpointId, TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import CancelAll, DeployAll, LoadLatest, StoreCheckpoint
from strom.engine.coordinator.job_state import JobState
from strom.engine.coordinator.traces import Span, TraceRecorder
from strom.engine.messages import CheckpointAcknowledged, CheckpointDeclined

TASK = TaskId(0, 0)  # type: ignore[arg-type]
ATTEMPT = Attempt(0)
SEVEN = CheckpointId(7)
MANIFEST = Manifest("j", "job", SEVEN, 100, (), ())


class Job:
    """A recorder, and the job as it tells it."""

    def __init__(self, status: JobStatus = JobStatus.RUNNING) -> None:
        self.recorder = TraceRecorder({TASK: "Map (1/1)"})
        nothing = CheckpointStatistics()
        self.state = JobState("j", "job", status, ATTEMPT, 0, 1, 1, nothing, None, {})

    def event(
        self, at: int, name: str = "on_tick", args: Any = (), actions: Any = (), **changes: Any
    ) -> list[Span]:
        """Its changes: of the statistics of checkpoints, or else of the job; `cause`: of its last
        failure."""
        before = self.state
        of_checkpoints = {k: v for k, v in changes.items() if hasattr(before.checkpoints, k)}
        others = {k: v for k, v in changes.items() if k not in of_checkpoints}
        if "cause" in others:
            others["last_failure"] = others.pop("cause")
        statistics = replace(before.checkpoints, **of_checkpoints)
        self.state = replace(before, checkpoints=statistics, **others)
        return self.recorder.observe(name, args, before, self.state, actions, at)


def times(span: Span) -> list[tuple[str, float, float | None]]:
    """The span's, and those within it, from the outside in."""
    found = [(span.name, span.start_ms, span.end_ms)]
    for child in span.children:
        found += times(child)
    return found


def acknowledged(**took: float) -> CheckpointAcknowledged:
    return CheckpointAcknowledged(TASK, ATTEMPT, SEVEN, SubtaskSnapshot(TASK), **took)


def test_a_checkpoint_with_its_tasks() -> None:
    job = Job()
    assert job.event(100, in_progress=(SEVEN,)) == []
    told = acknowledged(alignment_ms=10, sync_ms=2, async_ms=30)
    assert job.event(150, "on_report", [told]) == []
    assert job.event(151, actions=[StoreCheckpoint(MANIFEST)]) == []
    (span,) = job.event(160, in_progress=(), completed=1, latest_completed=SEVEN, last_size=9)
    assert times(span) == [
        ("checkpoint 7", 100, 160),
        ("Map (1/1)", 108, 150),
        ("alignment", 108, 118),
        ("sync", 118, 120),
        ("async", 120, 150),
        ("publish", 151, 160),
    ]
    assert span.error is None
    assert span.attributes == {"checkpoint.id": 7, "job.attempt": 0, "checkpoint.bytes": 9}


def test_one_that_fails_says_why_and_the_next_begins_at_once() -> None:
    job = Job()
    job.event(100, in_progress=(SEVEN,))
    declined = CheckpointDeclined(TASK, ATTEMPT, SEVEN, "no disk")
    eight = CheckpointId(8)
    (span,) = job.event(
        120, "on_report", [declined], in_progress=(eight,), failed=1, last_failure="no disk"
    )
    assert (span.error, span.end_ms) == ("no disk", 120)
    assert span.attributes["declined.by"] == "Map (1/1)"
    assert job.event(125, "on_report", [acknowledged()]) == [], "of the one before"
    (span,) = job.event(130, in_progress=(), completed=1, latest_completed=eight)
    assert times(span) == [("checkpoint 8", 120, 130)]


def test_a_start() -> None:
    job = Job(JobStatus.CREATED)
    job.event(0, "start", actions=[LoadLatest()])
    job.event(10, actions=[DeployAll(ATTEMPT, None)])
    job.event(40, "on_deployed")
    (span,) = job.event(60, status=JobStatus.RUNNING)
    assert times(span) == [
        ("start", 0, 60),
        ("load", 0, 10),
        ("deploy", 10, 40),
        ("restore", 40, 60),
    ]


def test_a_recovery_that_fails_once_more_on_the_way() -> None:
    job = Job()
    restarting = {"status": JobStatus.RESTARTING, "cause": "boom"}
    job.event(0, actions=[CancelAll(ATTEMPT)], restarts=1, **restarting)
    job.event(20, "on_all_stopped")
    job.event(50, actions=[LoadLatest()])
    job.event(60, actions=[DeployAll(Attempt(1), None)])
    job.event(70, actions=[CancelAll(Attempt(1))], restarts=2, cause="again")
    job.event(80, "on_all_stopped", actions=[LoadLatest()])
    job.event(90, actions=[DeployAll(Attempt(2), None)])
    job.event(95, "on_deployed")
    (span,) = job.event(100, status=JobStatus.RUNNING, attempt=Attempt(2), restored_from=SEVEN)
    assert times(span) == [
        ("recovery", 0, 100),
        ("stop", 0, 20),
        ("wait", 20, 50),
        ("load", 50, 60),
        ("deploy", 60, 70),
        ("stop", 70, 80),
        ("load", 80, 90),
        ("deploy", 90, 95),
        ("restore", 95, 100),
    ]
    assert span.attributes == {
        "failure": "again",
        "restart": 2,
        "job.attempt": 2,
        "restored.from": 7,
    }


def test_what_is_open_at_the_end_is_told_unfinished() -> None:
    job = Job()
    job.event(0, in_progress=(SEVEN,))
    (span,) = job.recorder.close(5, "the job is CANCELED")
    assert (span.end_ms, span.error) == (5, "the job is CANCELED")
    assert job.recorder.close(6, "again") == []
