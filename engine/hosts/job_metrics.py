"""The figures of a running job as one plain dict: what `JobClient.metrics()` returns.

    state, attempt, restarts, runtime_ms, last_failure
    checkpoints   completed, failed, last_id, last_duration_ms, last_size, restored_from
    operators     list of: id, name, parallelism, records_in, records_out, watermark, counters
    exchange      in_flight_bytes, peak_in_flight_bytes, bound_bytes, bytes_sent
    tasks         list of: vertex, name, subtask, state, pid, peak_rss_bytes, cpu_s,
                  opened_cpu_s (of the process when the task was open)

Counts are sums over the subtasks of the current attempt; an operator's watermark is the minimum
over its subtasks, None while one of them has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..coordinator.job_state import JobState
from ..graph.model import JobGraph


def summarise(state: JobState, job: JobGraph, runtime_ms: float) -> dict[str, Any]:
    """Put the reports of all tasks together."""
    checkpoints = state.checkpoints
    reports = dict(state.metrics)
    names = {vertex.id: vertex.name for vertex in job.vertices}
    return {
        "state": state.status.value,
        "attempt": state.attempt,
        "restarts": state.restarts,
        "runtime_ms": runtime_ms,
        "last_failure": state.last_failure,
        "checkpoints": {
            "completed": checkpoints.completed,
            "failed": checkpoints.failed,
            "last_id": checkpoints.latest_completed,
            "last_duration_ms": checkpoints.last_duration_ms,
            "last_size": checkpoints.last_size,
            "restored_from": checkpoints.restored_from,
        },
        "operators": [
            _operator(reports.values(), operator.operator_id, operator.name, vertex.parallelism)
            for vertex in job.vertices
            for operator in vertex.operators
        ],
        "exchange": _exchange(reports.values()),
        "tasks": [
            {
                "vertex": task.vertex,
                "name": names[task.vertex],
                "subtask": task.subtask,
                "state": report.get("state"),
                **report.get("process", {}),
            }
            for task, report in sorted(reports.items())
        ],
    }


def _operator(
    reports: Iterable[dict[str, Any]], operator_id: str, name: str, parallelism: int
) -> dict[str, Any]:
    mine = [r["operators"][operator_id] for r in reports if operator_id in r.get("operators", {})]
    marks = [m["watermark"] for m in mine]
    known = len(marks) == parallelism and all(mark is not None for mark in marks)
    counters: dict[str, int] = {}
    for figures in mine:
        for counter, n in figures["counters"].items():
            counters[counter] = counters.get(counter, 0) + n
    return {
        "id": operator_id,
        "name": name,
        "parallelism": parallelism,
        "records_in": sum(m["records_in"] for m in mine),
        "records_out": sum(m["records_out"] for m in mine),
        "watermark": min(marks) if known else None,
        "counters": counters,
    }


def _exchange(reports: Iterable[dict[str, Any]]) -> dict[str, int]:
    names = ("in_flight_bytes", "peak_in_flight_bytes", "bound_bytes", "bytes_sent")
    stats = [r["exchange"] for r in reports if "exchange" in r]
    return {name: sum(getattr(s, name) for s in stats) for name in names}
