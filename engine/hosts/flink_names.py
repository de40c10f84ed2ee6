"""A job's figures under the names that Flink gives them, as one flat dict.

    <operator>.numRecordsIn          of an operator, summed over its subtasks: records, rates,
    <operator>.<groups>.<name>       counters, meters (their rate) and distributions (a dict)
    <subtask>.<operator>.<name>      a gauge of one subtask, likewise
    <operator>.latency.<source>      of markers from there (a dict)
    <subtask>.<task>.<name>          of one task: its time, exchange, checkpoints and process
    <name>                           of the job: restarts and checkpoints

Of operators (or tasks) that share a name each has its id behind it, as in `Map (3f2a...)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...core.ids import TaskId
from ..coordinator.job_state import JobState
from ..graph.model import JobGraph

PENDING = ("pending_records", "records_behind")
"""What sources call the records that they have still to read."""

RECORDS = ("numRecordsIn", "numRecordsOut", "numRecordsInPerSecond", "numRecordsOutPerSecond")


def flink_names(
    summary: Mapping[str, Any], state: JobState, job: JobGraph, runtime_ms: float
) -> dict[str, Any]:
    """`summary`: what `job_metrics` puts together otherwise."""
    reports = state.metrics
    figures = job_figures(state, runtime_ms)
    known = by_operator(reports)
    shared = Counter(operator["name"] for operator in summary["operators"])
    for operator in summary["operators"]:
        name = operator["name"]
        if shared[name] > 1:
            name = f"{name} ({operator['id']})"
        mine = known.get(operator["id"], {})
        figures |= _of_operator(name, operator, list(mine.values()))
    names = {vertex.id: vertex.name for vertex in job.vertices}
    shared = Counter(names.values())
    for task, report in sorted(reports.items()):
        name = names[task.vertex]
        if shared[name] > 1:
            name = f"{name} ({task.vertex})"
        for figure, value in task_figures(report).items():
            figures[f"{task.subtask}.{name}.{figure}"] = value
    return figures


def by_operator(
    reports: Mapping[TaskId, Mapping[str, Any]],
) -> dict[str, dict[int, dict[str, Any]]]:
    """What each operator's subtasks report of it, in one pass over all tasks."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for task, report in reports.items():
        for operator, figures in report.get("operators", {}).items():
            found.setdefault(operator, {})[task.subtask] = figures
    return found


def job_figures(state: JobState, runtime_ms: float) -> dict[str, Any]:
    """Those of the whole job."""
    checkpoints = state.checkpoints
    running = [one for one in state.metrics.values() if one.get("state") == "running"]
    return {
        "uptime": runtime_ms,
        "numRunningTasks": len(running),
        "numRestarts": state.restarts,
        "numberOfCompletedCheckpoints": checkpoints.completed,
        "numberOfFailedCheckpoints": checkpoints.failed,
        "numberOfInProgressCheckpoints": len(checkpoints.in_progress),
        "lastCompletedCheckpointId": checkpoints.latest_completed,
        "lastCheckpointDuration": checkpoints.last_duration_ms,
        "lastCheckpointSize": checkpoints.last_size,
    }


def operator_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Those of one operator in one subtask that strom itself keeps."""
    known = {
        "numRecordsIn": figures["records_in"],
        "numRecordsOut": figures["records_out"],
        "numRecordsInPerSecond": figures["in_rate"],
        "numRecordsOutPerSecond": figures["out_rate"],
        "currentInputWatermark": figures["input_watermark"],
        "currentOutputWatermark": figures["watermark"],
    }
    gauges = figures["gauges"]
    some = {
        "watermarkLag": figures.get("watermark_lag"),
        "stateSize": figures.get("state_size"),
        "pendingRecords": next((gauges[name] for name in PENDING if name in gauges), None),
    }
    return known | {name: value for name, value in some.items() if value is not None}


def task_figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """Those of one task."""
    figures = {**report.get("times", {}), **report.get("checkpoint", {})}
    if (exchange := report.get("exchange")) is not None:
        figures |= {
            "numBytesIn": exchange.bytes_received,
            "numBytesOut": exchange.bytes_sent,
            "numBuffersIn": exchange.buffers_received,
            "numBuffersOut": exchange.buffers_sent,
            "bytesInFlight": exchange.in_flight_bytes,
            "poolUsage": exchange.in_flight_bytes / max(1, exchange.bound_bytes),
        }
    if (process := report.get("process")) is not None:
        figures |= {
            "processCpuTime": 1000.0 * process["cpu_s"],
            "processPeakMemory": process["peak_rss_bytes"],
        }
    return figures


def _of_operator(
    name: str, operator: Mapping[str, Any], reports: list[Mapping[str, Any]]
) -> dict[str, Any]:
    built_in = [operator_figures(report) for report in reports]
    figures = {f"{name}.{key}": sum(one[key] for one in built_in) for key in RECORDS}
    whole = len(reports) == operator["parallelism"]
    for key in ("currentInputWatermark", "currentOutputWatermark"):
        marks = [one[key] for one in built_in]
        figures[f"{name}.{key}"] = min(marks) if whole and None not in marks else None
    for key, together in (("watermarkLag", max), ("stateSize", sum), ("pendingRecords", sum)):
        if values := [one[key] for one in built_in if key in one]:
            figures[f"{name}.{key}"] = together(values)
    for source, known in operator["latencies"].items():
        figures[f"{name}.latency.{source}"] = known
    for counter, count in operator["counters"].items():
        figures[f"{name}.{counter}"] = count
    for meter, both in operator["meters"].items():
        figures[f"{name}.{meter}"] = both["rate"]
    for distribution, known in operator["distributions"].items():
        figures[f"{name}.{distribution}"] = known
    for gauge, by_subtask in operator["gauges"].items():
        for subtask, value in by_subtask.items():
            figures[f"{subtask}.{name}.{gauge}"] = value
    return figures
