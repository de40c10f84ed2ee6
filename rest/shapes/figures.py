"""A job's live figures, vertex by vertex, in one answer: what a dashboard asks for again and again.

Flink's paths tell the same a vertex at a time, which are a hundred requests for a hundred vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from typing_extensions import TypedDict

from ...engine.hosts.job_view import JobView, TaskView, VertexView
from ...engine.hosts.key_figures import HotKey, KeyFigures
from ...engine.hosts.task_figures import operator_labels
from .metrics import skew_of

SHARES: Final = {
    "busy": "busyTimeMsPerSecond",
    "backpressured": "backPressuredTimeMsPerSecond",
    "idle": "idleTimeMsPerSecond",
}

VertexFigures = TypedDict(
    "VertexFigures",
    {
        "id": str,
        "read-records": int,
        "write-records": int,
        "in-per-second": float,
        "out-per-second": float,
        "busy": float | None,
        "busy-max": float | None,
        "backpressured": float | None,
        "backpressured-max": float | None,
        "idle": float | None,
        "watermark": int | None,
        "skew": float | None,
        "key-skew": float | None,
        "hot-keys": list[HotKey],
    },
)


class Memory(TypedDict):
    """Of the processes that run the job's tasks: bytes, now and at most."""

    rss: int
    peak: int
    processes: int


Figures = TypedDict(
    "Figures",
    {
        "now": int,
        "vertices": list[VertexFigures],
        "in-flight-bytes": int,
        "memory": Memory,
    },
)


def figures_of(view: JobView) -> Figures:
    """Rates are those of the last minute, shares 0..1 of what the last reports span: the mean of
    the subtasks, and the most of one. `key-skew`: records by key of the subtask that gets most,
    over the mean one."""
    keys = {one["vertex"]: one for one in view.get("keys", [])}
    tasks: dict[str, list[TaskView]] = {}
    for task in view["tasks"]:
        tasks.setdefault(task["vertex"], []).append(task)
    read = {one["source"] for vertex in view["vertices"] for one in vertex["inputs"]}
    return {
        "now": view["now_ms"],
        "vertices": [
            _vertex(
                vertex,
                tasks.get(vertex["id"], []),
                vertex["id"] not in read,
                keys.get(vertex["id"]),
            )
            for vertex in view["vertices"]
        ],
        "in-flight-bytes": sum(t["metrics"].get("inFlightBytes") or 0 for t in view["tasks"]),
        "memory": _memory(view["tasks"]),
    }


def _vertex(
    vertex: VertexView, tasks: Sequence[TaskView], is_last: bool, keys: KeyFigures | None
) -> VertexFigures:
    """What a source reads, and what a sink takes, counts as its records out and in."""
    metrics = [task["metrics"] for task in tasks]
    labels = operator_labels((one["id"], one["name"]) for one in vertex["operators"])
    first, last = (labels[vertex["operators"][at]["id"]] for at in (0, -1))

    def total(name: str, operator: str | None = None) -> Any:
        return sum(
            one.get(name if operator is None else f"{operator}.{name}") or 0 for one in metrics
        )

    def taken(suffix: str) -> Any:
        """Of a source, what it has read; of all others, what came to them."""
        if vertex["inputs"]:
            return total(f"numRecordsIn{suffix}")
        return total(f"numRecordsOut{suffix}", first)

    def given(suffix: str) -> Any:
        """Of a sink, what it has taken; of all others, what they passed on."""
        sent = total(f"numRecordsOut{suffix}")
        return total(f"numRecordsIn{suffix}", last) if is_last and not sent else sent

    found: dict[str, Any] = {}
    for share, name in SHARES.items():
        each = [one[name] / 1000 for one in metrics if name in one]
        found[share] = sum(each) / len(each) if each else None
        found[f"{share}-max"] = max(each, default=None)
    marks = [one.get("currentInputWatermark") for one in metrics]
    if not vertex["inputs"]:
        marks = [one.get(f"{last}.currentOutputWatermark") for one in metrics]
    known = bool(marks) and None not in marks
    name = "numRecordsIn" if vertex["inputs"] else "numRecordsOut"
    return {
        "id": vertex["id"],
        "read-records": taken(""),
        "write-records": given(""),
        "in-per-second": taken("PerSecond"),
        "out-per-second": given("PerSecond"),
        "busy": found["busy"],
        "busy-max": found["busy-max"],
        "backpressured": found["backpressured"],
        "backpressured-max": found["backpressured-max"],
        "idle": found["idle"],
        "watermark": min(mark for mark in marks if mark is not None) if known else None,
        "skew": skew_of([one.get(name) or 0 for one in metrics]),
        "key-skew": None if keys is None else keys["skew"],
        "hot-keys": [] if keys is None else keys["hot"],
    }


def _memory(tasks: Sequence[TaskView]) -> Memory:
    processes = {
        (task["host"], task["pid"]): task["process"] for task in tasks if task["pid"] is not None
    }
    return {
        "rss": sum(one.get("rss_bytes", 0) for one in processes.values()),
        "peak": sum(one.get("peak_rss_bytes", 0) for one in processes.values()),
        "processes": len(processes),
    }
