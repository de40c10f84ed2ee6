"""A job's figures under the names that Flink gives them, as one flat dict.

    <operator>.numRecordsIn          of an operator, summed over its subtasks: records, rates,
    <operator>.<groups>.<name>       counters, meters (their rate) and distributions (a dict)
    <subtask>.<operator>.<name>      a gauge of one subtask, likewise
    <subtask>.<task>.<name>          what one task does with its time
    <name>                           of the job: restarts and checkpoints

Of operators (or tasks) that share a name each has its id behind it, as in `Map (3f2a...)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...core.ids import TaskId
from ..graph.model import JobGraph

RECORDS = ("numRecordsIn", "numRecordsOut", "numRecordsInPerSecond", "numRecordsOutPerSecond")


def flink_names(
    summary: Mapping[str, Any], reports: Mapping[TaskId, Mapping[str, Any]], job: JobGraph
) -> dict[str, Any]:
    """`summary`: what `job_metrics` puts together otherwise."""
    figures = job_figures(summary)
    shared = Counter(operator["name"] for operator in summary["operators"])
    for operator in summary["operators"]:
        name = operator["name"]
        if shared[name] > 1:
            name = f"{name} ({operator['id']})"
        mine = [
            report["operators"][operator["id"]]
            for report in reports.values()
            if operator["id"] in report.get("operators", {})
        ]
        figures |= _of_operator(name, operator, mine)
    names = {vertex.id: vertex.name for vertex in job.vertices}
    shared = Counter(names.values())
    for task, report in sorted(reports.items()):
        name = names[task.vertex]
        if shared[name] > 1:
            name = f"{name} ({task.vertex})"
        for figure, value in report.get("times", {}).items():
            figures[f"{task.subtask}.{name}.{figure}"] = value
    return figures


def job_figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the whole job."""
    checkpoints = summary["checkpoints"]
    return {
        "uptime": summary["runtime_ms"],
        "numRestarts": summary["restarts"],
        "numberOfCompletedCheckpoints": checkpoints["completed"],
        "numberOfFailedCheckpoints": checkpoints["failed"],
        "lastCompletedCheckpointId": checkpoints["last_id"],
        "lastCheckpointDuration": checkpoints["last_duration_ms"],
        "lastCheckpointSize": checkpoints["last_size"],
    }


def operator_figures(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Those of one operator in one subtask that strom itself keeps."""
    return {
        "numRecordsIn": figures["records_in"],
        "numRecordsOut": figures["records_out"],
        "numRecordsInPerSecond": figures["in_rate"],
        "numRecordsOutPerSecond": figures["out_rate"],
        "currentInputWatermark": figures["input_watermark"],
        "currentOutputWatermark": figures["watermark"],
    }


def _of_operator(
    name: str, operator: Mapping[str, Any], reports: list[Mapping[str, Any]]
) -> dict[str, Any]:
    built_in = [operator_figures(report) for report in reports]
    figures = {f"{name}.{key}": sum(one[key] for one in built_in) for key in RECORDS}
    whole = len(reports) == operator["parallelism"]
    for key in ("currentInputWatermark", "currentOutputWatermark"):
        marks = [one[key] for one in built_in]
        figures[f"{name}.{key}"] = min(marks) if whole and None not in marks else None
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
