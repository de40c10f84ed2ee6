"""Jobs as a session is told of them, and what it decides about them."""

from __future__ import annotations

from typing import Any

from strom.cluster.records import JobRecord
from strom.cluster.session import Session
from strom.core.job_status import JobStatus


def record(job_id: str, cpus: float = 1.0, **more: Any) -> JobRecord:
    known = {
        "attached": False,
        "patience_ms": 300_000,
        "submitted_ms": 0,
        "checkpoints": "file:///c",
    }
    return JobRecord(job_id, f"job {job_id}", cpus, slots=round(cpus), **{**known, **more})


def session(cpus: float = 4.0) -> Session:
    made = Session()
    made.capacity({"CPU": cpus}, 0)
    return made


def kinds(actions: list[Any]) -> list[tuple[str, str]]:
    return [(type(action).__name__, action.record.job_id) for action in actions]


def left(s: Session, job_id: str, at: int) -> list[Any]:
    """The job starts, and ends at once."""
    s.started(job_id, 0, at)
    return s.ended(job_id, 0, JobStatus.FINISHED, None, at)


def running(s: Session, job: JobRecord, now_ms: int = 0) -> None:
    s.submit(job, now_ms)
    s.started(job.job_id, 0, now_ms)
