"""Jobs in the shapes of Flink's REST: overviews, details, plan, configuration, exceptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from typing_extensions import TypedDict

from ...engine.hosts.job_view import FailureView, JobView, VertexView
from ..catalogs.catalog import ENDED, JobSummary
from .vertices import TASK_STATUSES, VertexSummary, counted, status_of, vertex_summary

JOB_STATUSES: Final = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)

Overview = TypedDict(
    "Overview",
    {
        "taskmanagers": int,
        "slots-total": int,
        "slots-available": int,
        "jobs-running": int,
        "jobs-finished": int,
        "jobs-cancelled": int,
        "jobs-failed": int,
        "flink-version": str,
        "flink-commit": str,
        "strom-version": str,
    },
)


class JobId(TypedDict):
    id: str
    status: str


class JobIds(TypedDict):
    jobs: list[JobId]


JobLine = TypedDict(
    "JobLine",
    {
        "jid": str,
        "name": str,
        "state": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "last-modification": int,
        "tasks": dict[str, int],
        "waits-for": str,
    },
)


class JobLines(TypedDict):
    jobs: list[JobLine]


class PlanInput(TypedDict):
    num: int
    id: str
    ship_strategy: str
    exchange: str


class PlanNode(TypedDict):
    id: str
    parallelism: int
    operator: str
    operator_strategy: str
    description: str
    optimizer_properties: dict[str, Any]
    inputs: list[PlanInput]
    operators: list[dict[str, Any]]


class Plan(TypedDict):
    jid: str
    name: str
    type: str
    nodes: list[PlanNode]


class PlanOfJob(TypedDict):
    plan: Plan


JobDetails = TypedDict(
    "JobDetails",
    {
        "jid": str,
        "name": str,
        "isStoppable": bool,
        "state": str,
        "job-type": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "maxParallelism": int,
        "now": int,
        "timestamps": dict[str, int],
        "vertices": list[VertexSummary],
        "status-counts": dict[str, int],
        "plan": Plan,
        "attempt": int,
        "restarts": int,
        "waits-for": str,
    },
)

ExecutionConfig = TypedDict(
    "ExecutionConfig",
    {
        "execution-mode": str,
        "restart-strategy": str,
        "job-parallelism": int,
        "object-reuse-mode": bool,
        "user-config": dict[str, str],
    },
)

JobConfigShape = TypedDict(
    "JobConfigShape",
    {
        "jid": str,
        "name": str,
        "execution-config": ExecutionConfig,
        "configuration": dict[str, str],
    },
)


class ExceptionEntry(TypedDict):
    exceptionName: str
    stacktrace: str
    timestamp: int
    taskName: str | None
    endpoint: str | None
    taskManagerId: str | None
    failureLabels: dict[str, str]
    concurrentExceptions: list[dict[str, Any]]
    attempt: int
    vertex: str | None
    subtask: int | None


class ExceptionHistory(TypedDict):
    entries: list[ExceptionEntry]
    truncated: bool


class TaskException(TypedDict):
    exception: str
    task: str | None
    location: str | None
    endpoint: str | None
    timestamp: int
    taskManagerId: str | None


Exceptions = TypedDict(
    "Exceptions",
    {
        "root-exception": str | None,
        "timestamp": int | None,
        "all-exceptions": list[TaskException],
        "truncated": bool,
        "exceptionHistory": ExceptionHistory,
    },
)


class Accumulator(TypedDict):
    name: str
    type: str
    value: str


JobAccumulators = TypedDict(
    "JobAccumulators",
    {
        "job-accumulators": list[Accumulator],
        "user-task-accumulators": list[Accumulator],
        "serialized-user-task-accumulators": dict[str, Any],
    },
)

VertexAccumulators = TypedDict(
    "VertexAccumulators", {"id": str, "user-accumulators": list[Accumulator]}
)


def job_counts(jobs: Iterable[JobSummary]) -> dict[str, int]:
    """How many jobs run (or are about to), and how the others ended; as Flink counts."""
    counts = {"running": 0, "finished": 0, "cancelled": 0, "failed": 0}
    names = {"FINISHED": "finished", "CANCELED": "cancelled", "FAILED": "failed"}
    for job in jobs:
        counts[names.get(job.status, "running")] += 1
    return counts


def job_line(job: JobSummary, now_ms: int) -> JobLine:
    end = job.end_ms if job.end_ms is not None else -1
    until = now_ms if end < 0 else end
    tasks = {status.lower(): job.tasks.get(status, 0) for status in TASK_STATUSES}
    return {
        "jid": job.id,
        "name": job.name,
        "state": job.status,
        "start-time": job.start_ms,
        "end-time": end,
        "duration": max(0, until - job.start_ms),
        "last-modification": until,
        "tasks": {"total": sum(tasks.values()), **tasks},
        "waits-for": job.waits_for,
    }


def plan_of(view: JobView) -> Plan:
    return {
        "jid": view["id"],
        "name": view["name"],
        "type": "STREAMING",
        "nodes": [_node(vertex) for vertex in view["vertices"]],
    }


def _node(vertex: VertexView) -> PlanNode:
    return {
        "id": vertex["id"],
        "parallelism": vertex["parallelism"],
        "operator": "",
        "operator_strategy": "",
        "description": vertex["name"],
        "optimizer_properties": {},
        "inputs": [
            {
                "num": number,
                "id": one["source"],
                "ship_strategy": one["ship"],
                "exchange": "pipelined_bounded",
            }
            for number, one in enumerate(vertex["inputs"])
        ],
        "operators": [dict(operator) for operator in vertex["operators"]],
    }


def job_details(view: JobView, summary: JobSummary) -> JobDetails:
    vertices = [vertex_summary(view, vertex) for vertex in view["vertices"]]
    statuses = [status_of(view, vertex["id"]) for vertex in view["vertices"]]
    line = job_line(summary, view["now_ms"])
    widest = max((vertex["max_parallelism"] for vertex in view["vertices"]), default=-1)
    return {
        "jid": view["id"],
        "name": view["name"],
        "isStoppable": summary.status not in ENDED,
        "state": summary.status,
        "job-type": "STREAMING",
        "start-time": line["start-time"],
        "end-time": line["end-time"],
        "duration": line["duration"],
        "maxParallelism": widest,
        "now": view["now_ms"],
        "timestamps": {status: view["since"].get(status, 0) for status in JOB_STATUSES},
        "vertices": vertices,
        "status-counts": counted(statuses),
        "plan": plan_of(view),
        "attempt": view["attempt"],
        "restarts": view["restarts"],
        "waits-for": summary.waits_for,
    }


def job_config(view: JobView) -> JobConfigShape:
    config = view["config"]
    return {
        "jid": view["id"],
        "name": view["name"],
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": config.get("restart", ""),
            "job-parallelism": view["parallelism"],
            "object-reuse-mode": config.get("object_reuse") == "true",
            "user-config": view["parameters"],
        },
        "configuration": config,
    }


def exceptions_of(view: JobView, most: int) -> Exceptions:
    """The newest first, at most `most`."""
    failures = view["failures"]
    told = failures[:most]
    root = failures[0] if failures and view["status"] != "FINISHED" else None
    error = view["error"] if root is None else root["cause"]
    when = view["since"].get("FAILED") if root is None else root["time_ms"]
    truncated = len(failures) > most
    return {
        "root-exception": error,
        "timestamp": when if error is not None else None,
        "all-exceptions": [
            {
                "exception": one["cause"],
                "task": one["task"],
                "location": one["host"],
                "endpoint": one["host"],
                "timestamp": one["time_ms"],
                "taskManagerId": one["host"],
            }
            for one in told
        ],
        "truncated": truncated,
        "exceptionHistory": {"entries": [_entry(one) for one in told], "truncated": truncated},
    }


def _entry(one: FailureView) -> ExceptionEntry:
    return {
        "exceptionName": _name(one["cause"]),
        "stacktrace": one["cause"],
        "timestamp": one["time_ms"],
        "taskName": None if one["task"] is None else f"{one['task']} - execution #{one['attempt']}",
        "endpoint": one["host"],
        "taskManagerId": one["host"],
        "failureLabels": {},
        "concurrentExceptions": [],
        "attempt": one["attempt"],
        "vertex": one["vertex"],
        "subtask": one["subtask"],
    }


def _name(cause: str) -> str:
    """The first line, which says what happened, as far as a list of failures shows it."""
    lines = cause.strip().splitlines()
    return lines[0][:500] if lines else ""


def job_accumulators(view: JobView) -> JobAccumulators:
    return {
        "job-accumulators": [],
        "user-task-accumulators": _accumulators(view, None),
        "serialized-user-task-accumulators": {},
    }


def vertex_accumulators(view: JobView, vertex: VertexView) -> VertexAccumulators:
    return {"id": vertex["id"], "user-accumulators": _accumulators(view, vertex["id"])}


def _accumulators(view: JobView, vertex: str | None) -> list[Accumulator]:
    return [
        {"name": one["name"], "type": one["type"], "value": one["value"]}
        for one in view["accumulators"]
        if one["vertex"] == vertex
    ]
