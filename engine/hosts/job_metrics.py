"""The figures of a running job as one plain dict: what `JobClient.metrics()` returns.

    state, attempt, restarts, runtime_ms, last_failure, rescales
    shortage      None, or why it runs with fewer subtasks than it is to have
    last_rescale  None, or before, after (parallelisms by chain), checkpoint_id, silence_ms,
                  stopped_tasks, held_tasks, kept_tasks; balance, by chain whose key groups were
                  dealt by load: before, after, limit
    checkpoints   completed, failed, in_progress, last_id, last_duration_ms, last_size,
                  restored_from, and what the tasks of the attempt read: restored_bytes,
                  restored_local_bytes of copies on their machines
    operators     list of: id, name, parallelism, records_in, records_out, watermark, counters;
                  of the functions' metrics by name: gauges (by subtask), meters (count, rate) and
                  distributions (count, sum, min, max, mean, p50, p75, p95, p99); latencies: the
                  same in ms by source, of its markers
    exchange      in_flight_bytes, peak_in_flight_bytes, bound_bytes, bytes_sent
    tasks         list of: vertex, name, subtask, state, pid, peak_rss_bytes, cpu_s,
                  opened_cpu_s (of the process when the task was open), times (what it did with
                  its time, by Flink's names: busyTimeMsPerSecond ...)
    keys          list of: vertex, name, skew, loads, heaviest, hot; see `key_figures`
    metrics       the same figures under Flink's names, see `flink_names`
    autoscaling   what the job's autoscaler has decided, see `own_rescales`; None: it has none

Counts are sums over the subtasks of the current attempt; an operator's watermark is the minimum
over its subtasks, None while one of them has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ...operators.user_metrics import merged_distribution
from ..coordinator.job_state import JobState
from ..coordinator.rescale_figures import RescaleFigures
from ..graph.model import JobGraph
from .flink_names import by_operator, flink_names
from .key_figures import key_figures


def summarise(state: JobState, job: JobGraph, runtime_ms: float) -> dict[str, Any]:
    """Put the reports of all tasks together."""
    summary = _summary(state, job, runtime_ms)
    summary["metrics"] = flink_names(summary, state, job, runtime_ms)
    return summary


def accumulators_of(state: JobState) -> list[tuple[str, str, Any]]:
    """(name, operator, parcel) of all subtasks' accumulators, for `accumulator_results`."""
    return [
        (name, str(operator), sealed)
        for _, report in sorted(state.metrics.items())
        for operator, named in report.get("accumulators", {}).items()
        for name, sealed in named.items()
    ]


def _summary(state: JobState, job: JobGraph, runtime_ms: float) -> dict[str, Any]:
    checkpoints = state.checkpoints
    reports = dict(state.metrics)
    figures = by_operator(reports)
    sources = {o.operator_id: o.name for vertex in job.vertices for o in vertex.operators}
    names = {vertex.id: vertex.name for vertex in job.vertices}
    return {
        "state": state.status.value,
        "attempt": state.attempt,
        "restarts": state.restarts,
        "runtime_ms": runtime_ms,
        "last_failure": state.last_failure,
        "rescales": state.rescales,
        "last_rescale": _rescale(state.last_rescale),
        "shortage": state.shortage,
        "checkpoints": {
            "completed": checkpoints.completed,
            "failed": checkpoints.failed,
            "in_progress": len(checkpoints.in_progress),
            "last_id": checkpoints.latest_completed,
            "last_duration_ms": checkpoints.last_duration_ms,
            "last_size": checkpoints.last_size,
            "restored_from": checkpoints.restored_from,
            "savepoints": checkpoints.savepoints,
            "savepoints_failed": checkpoints.savepoints_failed,
            **_restored(reports.values()),
        },
        "operators": [
            _operator(
                figures.get(operator.operator_id, {}),
                operator.operator_id,
                sources,
                vertex.parallelism,
            )
            for vertex in job.vertices
            for operator in vertex.operators
        ],
        "exchange": _exchange(reports.values()),
        "keys": key_figures(reports, job),
        "tasks": [
            {
                "vertex": task.vertex,
                "name": names[task.vertex],
                "subtask": task.subtask,
                "state": report.get("state"),
                "times": report.get("times", {}),
                **report.get("process", {}),
            }
            for task, report in sorted(reports.items())
        ],
    }


def _rescale(figures: RescaleFigures | None) -> dict[str, Any] | None:
    if figures is None:
        return None
    return {
        "before": dict(figures.before),
        "after": dict(figures.after),
        "checkpoint_id": figures.checkpoint_id,
        "silence_ms": figures.silence_ms,
        "stopped_tasks": figures.stopped_tasks,
        "held_tasks": figures.held_tasks,
        "kept_tasks": figures.kept_tasks,
        "balance": {name: asdict(one) for name, one in figures.balance.items()},
    }


def _restored(reports: Iterable[dict[str, Any]]) -> dict[str, int]:
    read = [report["restore"] for report in reports if "restore" in report]
    local = sum(one["local_bytes"] for one in read)
    remote = sum(one["remote_bytes"] for one in read)
    return {"restored_bytes": local + remote, "restored_local_bytes": local}


def _operator(
    by_subtask: Mapping[int, dict[str, Any]],
    operator_id: str,
    names: Mapping[Any, str],
    parallelism: int,
) -> dict[str, Any]:
    mine = list(by_subtask.values())
    marks = [m["watermark"] for m in mine]
    known = len(marks) == parallelism and all(mark is not None for mark in marks)
    counters: dict[str, int] = {}
    for figures in mine:
        for counter, n in figures["counters"].items():
            counters[counter] = counters.get(counter, 0) + n
    return {
        "id": operator_id,
        "name": names[operator_id],
        "parallelism": parallelism,
        "records_in": sum(m["records_in"] for m in mine),
        "records_out": sum(m["records_out"] for m in mine),
        "watermark": min(marks) if known else None,
        "counters": counters,
        "gauges": _gauges(by_subtask),
        "meters": {name: _meter(meters) for name, meters in _named(mine, "meters").items()},
        "distributions": {
            name: merged_distribution(parts)
            for name, parts in _named(mine, "distributions").items()
        },
        "latencies": {
            names[source]: merged_distribution(parts)
            for source, parts in _named(mine, "latencies").items()
        },
    }


def _gauges(by_subtask: Mapping[int, dict[str, Any]]) -> dict[str, dict[int, Any]]:
    """By name and subtask: what gauges say of their subtasks cannot be summed."""
    gauges: dict[str, dict[int, Any]] = {}
    for subtask, figures in sorted(by_subtask.items()):
        for name, value in (figures["gauges"] | figures.get("user_gauges", {})).items():
            gauges.setdefault(name, {})[int(subtask)] = value
    return gauges


def _meter(meters: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "count": sum(meter["count"] for meter in meters),
        "rate": sum(meter["rate"] for meter in meters),
    }


def _named(reports: list[dict[str, Any]], kind: str) -> dict[str, list[Any]]:
    """The subtasks' metrics of a kind, by name."""
    named: dict[str, list[Any]] = {}
    for report in reports:
        for name, figures in report.get(kind, {}).items():
            named.setdefault(name, []).append(figures)
    return named


def _exchange(reports: Iterable[dict[str, Any]]) -> dict[str, int]:
    names = ("in_flight_bytes", "peak_in_flight_bytes", "bound_bytes", "bytes_sent")
    stats = [r["exchange"] for r in reports if "exchange" in r]
    return {name: sum(getattr(s, name) for s in stats) for name in names}
