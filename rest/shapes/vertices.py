"""Vertices and subtasks in the shapes of Flink's REST."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NotRequired

from typing_extensions import TypedDict

from ...engine.hosts.job_view import JobView, TaskView, VertexView

TASK_STATUSES: Final = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)

_OVER: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})

_WORST_FIRST: Final = (
    "FAILED",
    "CANCELING",
    "CANCELED",
    "CREATED",
    "DEPLOYING",
    "RUNNING",
    "FINISHED",
)
"""What a vertex is, if any of its subtasks is that."""

LOW: Final = 0.1
HIGH: Final = 0.5
"""Shares of its time that a subtask is held up, from which on Flink calls it so."""

NO_WATERMARK: Final = -(1 << 63)

IoMetrics = TypedDict(
    "IoMetrics",
    {
        "read-bytes": int,
        "read-bytes-complete": bool,
        "write-bytes": int,
        "write-bytes-complete": bool,
        "read-records": int,
        "read-records-complete": bool,
        "write-records": int,
        "write-records-complete": bool,
        "accumulated-backpressured-time": float,
        "accumulated-idle-time": float,
        "accumulated-busy-time": float,
    },
)

VertexSummary = TypedDict(
    "VertexSummary",
    {
        "id": str,
        "slotSharingGroupId": str,
        "name": str,
        "maxParallelism": int,
        "parallelism": int,
        "status": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "tasks": dict[str, int],
        "metrics": IoMetrics,
    },
)

Subtask = TypedDict(
    "Subtask",
    {
        "subtask": int,
        "status": str,
        "attempt": int,
        "host": str,
        "endpoint": str,
        "start-time": int,
        "start_time": int,
        "end-time": int,
        "duration": int,
        "metrics": IoMetrics,
        "taskmanager-id": str,
        "status-duration": dict[str, int],
        "other-concurrent-attempts": list[Any],
    },
)


class Vertex(TypedDict):
    id: str
    name: str
    parallelism: int
    maxParallelism: int
    now: int
    subtasks: list[Subtask]
    deal: NotRequired[list[int]]
    """The first key group of each subtask, where they are not dealt evenly. Not Flink's."""


class SubtaskTime(TypedDict):
    subtask: int
    host: str
    endpoint: str
    duration: int
    timestamps: dict[str, int]


class SubtaskTimes(TypedDict):
    id: str
    name: str
    now: int
    subtasks: list[SubtaskTime]


SubtaskPressure = TypedDict(
    "SubtaskPressure",
    {
        "subtask": int,
        "attempt-number": int,
        "backpressure-level": str,
        "backpressureLevel": str,
        "ratio": float,
        "busyRatio": float,
        "idleRatio": float,
    },
)

BackPressure = TypedDict(
    "BackPressure",
    {
        "status": str,
        "backpressure-level": str,
        "backpressureLevel": str,
        "end-timestamp": int,
        "subtasks": list[SubtaskPressure],
    },
)


class Watermark(TypedDict):
    id: str
    value: str


def tasks_of(view: JobView, vertex: str) -> list[TaskView]:
    """Its subtasks, in order."""
    return [task for task in view["tasks"] if task["vertex"] == vertex]


def counted(statuses: Iterable[str]) -> dict[str, int]:
    """How many there are of each status."""
    known = list(statuses)
    return {status: known.count(status) for status in TASK_STATUSES}


def status_of(view: JobView, vertex: str) -> str:
    """The vertex's status: that of its subtasks which is furthest from a good end."""
    found = {task["status"] for task in tasks_of(view, vertex)}
    return next((status for status in _WORST_FIRST if status in found), "CREATED")


def vertex_summary(view: JobView, vertex: VertexView) -> VertexSummary:
    tasks = tasks_of(view, vertex["id"])
    status = status_of(view, vertex["id"])
    starts = [start for task in tasks if (start := _start(task)) >= 0]
    over = bool(tasks) and all(task["status"] in _OVER for task in tasks)
    end = max((_end(task) for task in tasks), default=-1) if over else -1
    start = min(starts, default=-1)
    until = view["now_ms"] if end < 0 else end
    return {
        "id": vertex["id"],
        "slotSharingGroupId": vertex["slot_sharing_group"],
        "name": vertex["name"],
        "maxParallelism": vertex["max_parallelism"],
        "parallelism": vertex["parallelism"],
        "status": status,
        "start-time": start,
        "end-time": end,
        "duration": -1 if start < 0 else max(0, until - start),
        "tasks": counted(task["status"] for task in tasks),
        "metrics": _io(tasks),
    }


def vertex_details(view: JobView, vertex: VertexView) -> Vertex:
    details: Vertex = {
        "id": vertex["id"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "maxParallelism": vertex["max_parallelism"],
        "now": view["now_ms"],
        "subtasks": [subtask_details(view, task) for task in tasks_of(view, vertex["id"])],
    }
    if "deal" in vertex:
        details["deal"] = vertex["deal"]
    return details


def subtask_details(view: JobView, task: TaskView) -> Subtask:
    host = task["host"] or "(unassigned)"
    start, end = _start(task), _end(task)
    until = view["now_ms"] if end < 0 else end
    return {
        "subtask": task["subtask"],
        "status": task["status"],
        "attempt": task["attempt"],
        "host": host,
        "endpoint": host,
        "start-time": start,
        "start_time": start,
        "end-time": end,
        "duration": -1 if start < 0 else max(0, until - start),
        "metrics": _io([task]),
        "taskmanager-id": manager_of(task),
        "status-duration": _durations(task, view["now_ms"]),
        "other-concurrent-attempts": [],
    }


def manager_of(task: TaskView) -> str:
    """The process that runs it, by what Flink calls a task manager: `host:pid`."""
    return "(unassigned)" if task["host"] is None else f"{task['host']}:{task['pid']}"


def subtask_times(view: JobView, vertex: VertexView) -> SubtaskTimes:
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "now": view["now_ms"],
        "subtasks": [
            {
                "subtask": task["subtask"],
                "host": task["host"] or "(unassigned)",
                "endpoint": task["host"] or "(unassigned)",
                "duration": subtask_details(view, task)["duration"],
                "timestamps": {s: task["since"].get(s, 0) for s in TASK_STATUSES},
            }
            for task in tasks_of(view, vertex["id"])
        ],
    }


def back_pressure(view: JobView, vertex: VertexView) -> BackPressure:
    subtasks = [_pressure(task) for task in tasks_of(view, vertex["id"])]
    worst = _level(max((one["ratio"] for one in subtasks), default=0.0))
    return {
        "status": "ok",
        "backpressure-level": worst,
        "backpressureLevel": worst,
        "end-timestamp": view["now_ms"],
        "subtasks": subtasks,
    }


def watermarks(view: JobView, vertex: VertexView) -> list[Watermark]:
    return [
        {
            "id": f"{task['subtask']}.currentInputWatermark",
            "value": str(NO_WATERMARK if mark is None else mark),
        }
        for task in tasks_of(view, vertex["id"])
        for mark in (task["metrics"].get("currentInputWatermark"),)
    ]


def _pressure(task: TaskView) -> SubtaskPressure:
    figures = task["metrics"] if task["status"] == "RUNNING" else {}
    held = figures.get("backPressuredTimeMsPerSecond", 0.0) / 1000
    return {
        "subtask": task["subtask"],
        "attempt-number": task["attempt"],
        "backpressure-level": _level(held),
        "backpressureLevel": _level(held),
        "ratio": held,
        "busyRatio": figures.get("busyTimeMsPerSecond", 0.0) / 1000,
        "idleRatio": figures.get("idleTimeMsPerSecond", 0.0) / 1000,
    }


def _level(ratio: float) -> str:
    return "ok" if ratio <= LOW else "low" if ratio <= HIGH else "high"


def _start(task: TaskView) -> int:
    return task["since"].get("DEPLOYING", -1)


def _end(task: TaskView) -> int:
    return task["since"].get(task["status"], -1) if task["status"] in _OVER else -1


def _durations(task: TaskView, now_ms: int) -> dict[str, int]:
    """How long it has been in each status that it came to; -1: in none such."""
    found = dict.fromkeys(("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING"), -1)
    steps = sorted(task["since"].items(), key=lambda step: step[1])
    for i, (status, since) in enumerate(steps):
        until = steps[i + 1][1] if i + 1 < len(steps) else now_ms
        if status in found:
            found[status] = max(0, until - since)
    return found


def _io(tasks: list[TaskView]) -> IoMetrics:
    """Sums. Bytes that come in nobody counts."""
    known = [task["metrics"] for task in tasks if task["metrics"]]
    whole = len(known) == len(tasks)

    def total(name: str) -> Any:
        return sum(figures.get(name) or 0 for figures in known)

    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": total("numBytesOut"),
        "write-bytes-complete": whole,
        "read-records": total("numRecordsIn"),
        "read-records-complete": whole,
        "write-records": total("numRecordsOut"),
        "write-records-complete": whole,
        "accumulated-backpressured-time": total("accumulateBackPressuredTimeMs"),
        "accumulated-idle-time": total("accumulateIdleTimeMs"),
        "accumulated-busy-time": total("accumulateBusyTimeMs"),
    }
