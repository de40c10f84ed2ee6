"""What a session is given of a new job: its record, and what it is started from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..core.clock import SystemClock
from ..engine.graph.model import JobGraph
from ..engine.graph.rescaling import limited
from ..engine.graph.slots import Bundle, bundles_of, total_of
from ..engine.hosts.coordinator_answers import Rescaled
from ..engine.hosts.driver import new_job_id
from ..engine.hosts.launch import Submission
from .records import JobRecord
from .slot_pool import shape_of


def record_of(graph: JobGraph, name: str, submission: Submission) -> JobRecord:
    """Of a job that a program submits."""
    bundles, config = bundles_of(graph), graph.config
    adaptive = config.adaptive
    return JobRecord(
        submission.job_id,
        name,
        attached=bool(config.attached),
        patience_ms=round(config.slot_request_timeout.total_seconds() * 1000),
        submitted_ms=SystemClock().now_ms(),
        checkpoints=config.checkpoint.storage,
        shape="" if adaptive.enabled else shape_of(bundles, config.spread_slots),
        idle_ms=round(config.slot_idle_timeout.total_seconds() * 1000),
        least=_least(graph) if adaptive.enabled else {},
        **_taken(bundles),
    )


def rescaled(
    old: JobRecord, started_from: Submission, made: Rescaled
) -> tuple[JobRecord, Submission]:
    """Of the job that takes the place of `old` at another parallelism, under an id of its own; what
    else it is told is what that one was (`started_from`)."""
    record = JobRecord(
        new_job_id(),
        old.name,
        attached=False,
        patience_ms=old.patience_ms,
        submitted_ms=SystemClock().now_ms(),
        checkpoints=old.checkpoints,
        shape=old.shape and shape_of(made.bundles, made.spread),
        idle_ms=old.idle_ms,
        follows=old.job_id,
        least=old.least,
        **_taken(made.bundles),
    )
    return record, replace(started_from, job_id=record.job_id, payload=made.payload)


def _least(graph: JobGraph) -> dict[str, float]:
    """What the slots of an adaptive job take at its least parallelism."""
    return total_of(bundles_of(limited(graph, graph, graph.config.adaptive.min_parallelism)))


def _taken(bundles: Sequence[Bundle]) -> dict[str, Any]:
    """What its slots take, in the fields of a record."""
    others = total_of(bundles)
    return {"cpus": others.pop("CPU", 0.0), "others": others, "slots": len(bundles)}
