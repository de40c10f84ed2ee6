"""How a job on Ray ends whose coordinator died, if it is not gone on with."""

from __future__ import annotations

from ...core.job_status import JobStatus
from .job_outcome import JobOutcome
from .job_record import Term

LEFT_NOTHING = (
    "the job's coordinator died with its node, or before the job began, and has left nothing to go "
    "on from: a job without a checkpoint storage keeps that on the node of its coordinator. Start "
    "it again from the beginning; with a storage that all nodes reach "
    "(execution.checkpointing.dir) it would have gone on"
)


def given_up(job_id: str, term: Term, why: str | None = None) -> JobOutcome:
    """How a job ends whose coordinator cannot go on."""
    why = why or f"it died {len(term.since_ms)} times within a few minutes"
    return failed(job_id, f"the job's coordinator cannot go on: {why}")


def failed(job_id: str, error: str) -> JobOutcome:
    """How it ends whose name nobody knows any more."""
    return JobOutcome(job_id, job_id, JobStatus.FAILED, error, 0.0, 0, 0, {})
