"""Checkpoints in the shapes of Flink's REST.

`checkpointed_size` is what a checkpoint wrote anew, `state_size` all that it holds. Of alignment
there is the time; nothing is buffered by it. `persisted_data` is what barriers overtook.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired

import numpy as np
from typing_extensions import TypedDict

from ...engine.hosts.job_view import CheckpointView, JobView, PartView, VertexView


class Summary(TypedDict):
    min: float
    max: float
    avg: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float


class Counts(TypedDict):
    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class Summaries(TypedDict):
    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    alignment_buffered: Summary
    processed_data: Summary
    persisted_data: Summary


class Part(TypedDict):
    """What is told of all of a checkpoint, and of its part of one vertex."""

    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class VertexPart(Part):
    """Of one vertex."""


class Checkpoint(Part):
    className: str
    is_savepoint: bool
    savepointFormat: NotRequired[str]
    checkpoint_type: str
    trigger_timestamp: int
    alignment_duration: float
    """The longest of its subtasks, in ms; strom's own."""
    tasks: dict[str, VertexPart]
    """Empty when its parts are no longer known."""
    external_path: NotRequired[str]
    discarded: NotRequired[bool]
    failure_timestamp: NotRequired[int]
    failure_message: NotRequired[str]


class Restored(TypedDict):
    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str | None


class Latest(TypedDict):
    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: Restored | None


class Checkpoints(TypedDict):
    counts: Counts
    summary: Summaries
    latest: Latest
    history: list[Checkpoint]


class Externalization(TypedDict):
    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfig(TypedDict):
    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    incremental: bool


PartCheckpoint = TypedDict("PartCheckpoint", {"sync": float, "async": float})
PartSummary = TypedDict("PartSummary", {"sync": Summary, "async": Summary})


class PartAlignment(TypedDict):
    buffered: int
    processed: int
    persisted: int
    duration: float


class AlignmentSummary(TypedDict):
    buffered: Summary
    processed: Summary
    persisted: Summary
    duration: Summary


class SubtaskPart(TypedDict):
    index: int
    status: str
    ack_timestamp: NotRequired[int]
    end_to_end_duration: NotRequired[int]
    checkpointed_size: NotRequired[int]
    state_size: NotRequired[int]
    checkpoint: NotRequired[PartCheckpoint]
    alignment: NotRequired[PartAlignment]
    start_delay: NotRequired[int]
    unaligned_checkpoint: NotRequired[bool]
    aborted: NotRequired[bool]


class PartsSummary(TypedDict):
    checkpointed_size: Summary
    state_size: Summary
    end_to_end_duration: Summary
    checkpoint_duration: PartSummary
    alignment: AlignmentSummary
    start_delay: Summary


class VertexParts(VertexPart):
    summary: PartsSummary
    subtasks: list[SubtaskPart]


def summary_of(values: Sequence[float]) -> Summary:
    """Of no values: zeros, as in Flink."""
    found = list(values) or [0]
    p50, p90, p95, p99, p999 = np.quantile(found, (0.5, 0.9, 0.95, 0.99, 0.999)).tolist()
    return {
        "min": min(found),
        "max": max(found),
        "avg": sum(found) / len(found),
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "p999": p999,
    }


def checkpoints_of(view: JobView) -> Checkpoints:
    known = view["checkpoints"]
    done = [
        one for one in known["history"] if one["status"] == "COMPLETED" and not one["savepoint"]
    ]
    restored = known["restored"]
    nothing = summary_of([])
    going = sum(one["status"] == "IN_PROGRESS" for one in known["history"])
    completed = known["completed"] + known["savepoints"]
    failed = known["failed"] + known["savepoints_failed"]
    return {
        "counts": {
            "restored": known["restores"],
            "total": completed + failed + going,
            "in_progress": going,
            "completed": completed,
            "failed": failed,
        },
        "summary": {
            "checkpointed_size": summary_of([one["new_size"] for one in done]),
            "state_size": summary_of([one["size"] for one in done]),
            "end_to_end_duration": summary_of([_duration(one, view["now_ms"]) for one in done]),
            "alignment_buffered": nothing,
            "processed_data": nothing,
            "persisted_data": summary_of([one.get("persisted", 0) for one in done]),
        },
        "latest": {
            "completed": _maybe(known["latest_completed"], view),
            "savepoint": _maybe(known["latest_savepoint"], view),
            "failed": _maybe(known["latest_failed"], view),
            "restored": None
            if restored is None
            else {
                "id": restored["id"],
                "restore_timestamp": restored["time_ms"],
                "is_savepoint": restored["savepoint"],
                "external_path": None,
            },
        },
        "history": [checkpoint(one, view, tasks=False) for one in known["history"]],
    }


def _maybe(one: CheckpointView | None, view: JobView) -> Checkpoint | None:
    return None if one is None else checkpoint(one, view, tasks=False)


def checkpoint(one: CheckpointView, view: JobView, tasks: bool = True) -> Checkpoint:
    """`tasks`: with its parts, vertex by vertex, as far as they are known."""
    kind = "SAVEPOINT" if one["savepoint"] else "CHECKPOINT"
    found: Checkpoint = {
        "className": one["status"].lower(),
        "id": one["id"],
        "status": one["status"],
        "is_savepoint": one["savepoint"],
        "checkpoint_type": kind,
        "trigger_timestamp": one["triggered_ms"],
        "latest_ack_timestamp": _known(one["last_acknowledged_ms"]),
        "checkpointed_size": one["new_size"],
        "state_size": one["size"],
        "end_to_end_duration": _duration(one, view["now_ms"]),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": one.get("persisted", 0),
        "num_subtasks": one["subtasks"],
        "num_acknowledged_subtasks": one["acknowledged"],
        "alignment_duration": one.get("alignment_ms")
        or max((p["alignment_ms"] for p in one["parts"] or ()), default=0.0),
        "tasks": {},
    }
    if one["savepoint"]:
        found["savepointFormat"] = "CANONICAL"
    if one["status"] == "COMPLETED":
        found["external_path"] = one["path"] or "<checkpoint-not-externally-addressable>"
        found["discarded"] = one.get("discarded", False)
    if one["status"] == "FAILED":
        found["failure_timestamp"] = _known(one["ended_ms"])
        found["failure_message"] = one["reason"] or ""
    if tasks and one["parts"] is not None:
        found["tasks"] = {v["id"]: vertex_part(one, v) for v in view["vertices"]}
    return found


def vertex_part(one: CheckpointView, vertex: VertexView) -> VertexPart:
    """Of a checkpoint whose parts are known."""
    parts = _parts(one, vertex)
    latest = max((part["acknowledged_ms"] for part in parts), default=-1)
    return {
        "id": one["id"],
        "status": one["status"],
        "latest_ack_timestamp": latest,
        "checkpointed_size": sum(part["new_size"] for part in parts),
        "state_size": sum(part["size"] for part in parts),
        "end_to_end_duration": -1 if latest < 0 else max(0, latest - one["triggered_ms"]),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": sum(part.get("persisted", 0) for part in parts),
        "num_subtasks": vertex["parallelism"],
        "num_acknowledged_subtasks": len(parts),
    }


def vertex_parts(one: CheckpointView, vertex: VertexView) -> VertexParts:
    parts = {part["subtask"]: part for part in _parts(one, vertex)}
    nothing = summary_of([])
    known = list(parts.values())

    def summed(name: Any) -> Summary:
        return summary_of([part[name] for part in known])  # type: ignore[literal-required]

    return {
        **vertex_part(one, vertex),
        "summary": {
            "checkpointed_size": summed("new_size"),
            "state_size": summed("size"),
            "end_to_end_duration": summary_of(
                [max(0, part["acknowledged_ms"] - one["triggered_ms"]) for part in known]
            ),
            "checkpoint_duration": {"sync": summed("sync_ms"), "async": summed("async_ms")},
            "alignment": {
                "buffered": nothing,
                "processed": nothing,
                "persisted": summary_of([part.get("persisted", 0) for part in known]),
                "duration": summed("alignment_ms"),
            },
            "start_delay": nothing,
        },
        "subtasks": [_subtask(i, parts.get(i), one) for i in range(vertex["parallelism"])],
    }


def _subtask(index: int, part: PartView | None, one: CheckpointView) -> SubtaskPart:
    if part is None:
        return {"index": index, "status": "pending_or_failed"}
    return {
        "index": index,
        "status": "completed",
        "ack_timestamp": part["acknowledged_ms"],
        "end_to_end_duration": max(0, part["acknowledged_ms"] - one["triggered_ms"]),
        "checkpointed_size": part["new_size"],
        "state_size": part["size"],
        "checkpoint": {"sync": part["sync_ms"], "async": part["async_ms"]},
        "alignment": {
            "buffered": 0,
            "processed": 0,
            "persisted": part.get("persisted", 0),
            "duration": part["alignment_ms"],
        },
        "start_delay": 0,
        "unaligned_checkpoint": part.get("persisted", 0) > 0,
        "aborted": one["status"] == "FAILED",
    }


def checkpoint_config(view: JobView) -> CheckpointConfig | None:
    """None where the job takes no checkpoints but the last one."""
    config = view["checkpointing"]
    if not config or config["interval_ms"] is None:
        return None
    retention = config["retention"]
    return {
        "mode": config.get("mode", "EXACTLY_ONCE").lower(),
        "interval": config["interval_ms"],
        "timeout": config["timeout_ms"],
        "min_pause": config["min_pause_ms"],
        "max_concurrent": config["max_concurrent"],
        "externalization": {
            "enabled": config["storage"] is not None and retention != "NO_EXTERNALIZED_CHECKPOINTS",
            "delete_on_cancellation": retention != "RETAIN_ON_CANCELLATION",
        },
        "state_backend": config["state_backend"],
        "checkpoint_storage": config["storage"] or "memory of the coordinator",
        "unaligned_checkpoints": config.get("unaligned", False),
        "tolerable_failed_checkpoints": config["tolerable_failures"],
        "aligned_checkpoint_timeout": config.get("alignment_timeout_ms", 0),
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "incremental": config["incremental"],
    }


def _parts(one: CheckpointView, vertex: VertexView) -> list[PartView]:
    return [part for part in one["parts"] or () if part["vertex"] == vertex["id"]]


def _duration(one: CheckpointView, now_ms: int) -> int:
    end = one["ended_ms"] if one["ended_ms"] is not None else now_ms
    return max(0, end - one["triggered_ms"])


def _known(time_ms: int | None) -> int:
    return -1 if time_ms is None else time_ms
