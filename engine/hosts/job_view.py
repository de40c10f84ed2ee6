"""A whole job as plain, JSON-able data: for whoever looks at it from outside, and for archives.

Made when somebody asks, from the driver's last picture of the job. Times are ms since the epoch,
durations ms. Nothing in it is a secret: configuration and failures are redacted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NotRequired, TypedDict

from ...core.ids import TaskId, VertexId
from ...core.redaction import redacted
from ...core.texts import all_encodable, encodable
from ..coordinator.history import CheckpointRecord, FailureRecord, Part, Picture, TaskRecord
from ..coordinator.job_state import JobState
from ..graph.explain import ship_name
from ..graph.model import ChainedOperator, JobGraph, JobVertex
from .flink_names import job_figures
from .job_metrics import summarise
from .key_figures import KeyFigures
from .shown_accumulators import AccumulatorView, shown_accumulators
from .shown_config import shown_config
from .task_figures import task_figures

VERSION: Final = 1
"""Of what is archived."""


class OperatorView(TypedDict):
    """`implementation`: what it runs as; `kind`, `why_not`, `remarks` as of
    `graph.implementation.Implementation`. Views of earlier versions have no such, nor
    `state_backend` (None: the job's)."""

    id: str
    name: str
    description: str
    uid: str | None
    implementation: str | None
    kind: NotRequired[str | None]
    why_not: NotRequired[str | None]
    remarks: NotRequired[list[str]]
    state_backend: NotRequired[str | None]


class InputView(TypedDict):
    source: str
    """The id of a vertex."""
    ship: str
    """The partitioner, as `HASH(key)`."""
    port: int
    tag: str | None


class VertexView(TypedDict):
    """`fixed`: why its parallelism stays as it is, where others follow a load; not there: it need
    not. `deal`: the first key group of each subtask; not there: each has as many as the others."""

    id: str
    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    operators: list[OperatorView]
    inputs: list[InputView]
    fixed: NotRequired[str]
    deal: NotRequired[list[int]]


class TaskView(TypedDict):
    """A subtask in its current attempt, or the last. `since`: when it came to each status."""

    vertex: str
    subtask: int
    status: str
    attempt: int
    since: dict[str, int]
    host: str | None
    pid: int | None
    metrics: dict[str, Any]
    """By Flink's names, as `busyTimeMsPerSecond`, and `<operator>.<name>` of its operators."""
    process: dict[str, Any]


class PartView(TypedDict):
    """One subtask's part of a checkpoint, as `coordinator.history.Part`."""

    vertex: str
    subtask: int
    acknowledged_ms: int
    size: int
    new_size: int
    sync_ms: float
    async_ms: float
    alignment_ms: float
    persisted: NotRequired[int]


class CheckpointView(TypedDict):
    """As `coordinator.history.CheckpointRecord`. `path`: its folder; None: in memory,
    discarded or never complete. What need not be there old archives do not have."""

    id: int
    status: str
    savepoint: bool
    terminal: bool
    triggered_ms: int
    ended_ms: int | None
    last_acknowledged_ms: int | None
    reason: str | None
    size: int
    new_size: int
    subtasks: int
    acknowledged: int
    path: str | None
    alignment_ms: NotRequired[float]
    persisted: NotRequired[int]
    discarded: NotRequired[bool]
    parts: list[PartView] | None


class RestoredView(TypedDict):
    id: int
    time_ms: int
    savepoint: bool


class CheckpointsView(TypedDict):
    """`history`: the newest first."""

    triggered: int
    completed: int
    failed: int
    savepoints: int
    savepoints_failed: int
    restores: int
    restored: RestoredView | None
    latest_completed: CheckpointView | None
    latest_savepoint: CheckpointView | None
    latest_failed: CheckpointView | None
    history: list[CheckpointView]


class FailureView(TypedDict):
    cause: str
    time_ms: int
    attempt: int
    vertex: str | None
    subtask: int | None
    task: str | None
    """`name (1/2)`."""
    host: str | None


class JobView(TypedDict):
    """`since`: when the job came to each status, the last time. `failures`: the newest first.
    `error`: why it failed for good. `checkpointing`: what the configuration says of it."""

    version: int
    id: str
    name: str
    status: str
    error: str | None
    attempt: int
    restarts: int
    now_ms: int
    since: dict[str, int]
    parallelism: int
    vertices: list[VertexView]
    tasks: list[TaskView]
    metrics: dict[str, Any]
    accumulators: list[AccumulatorView]
    checkpoints: CheckpointsView
    failures: list[FailureView]
    config: dict[str, str]
    parameters: dict[str, str]
    """Those of the job that functions see (`set_global_job_parameters`)."""
    checkpointing: dict[str, Any]
    keys: NotRequired[list[KeyFigures]]
    """Of vertices whose subtasks get their records by key, as far as it is known."""
    autoscaler: NotRequired[dict[str, Any]]
    """What the job's autoscaler is told (`AutoscalerConfig.plain`)."""
    autoscaling: NotRequired[list[dict[str, Any]]]
    """What it has decided that changes something, and what became of that (`steering.Act.plain`);
    the oldest first. Not there: it is not enabled."""
    shortage: NotRequired[str | None]
    """Why it runs with fewer subtasks than it is to have; None: it does not."""


def view_of(
    state: JobState,
    status: str,
    error: str | None,
    job: JobGraph,
    runtime_ms: float,
    now_ms: int,
    fixed: Mapping[VertexId, str],
) -> JobView:
    """`status` and `error`: of the job, which may be broken while `state` is not. `fixed`: of
    vertices that keep their parallelism, why."""
    picture, figures = state.history, summarise(state, job, runtime_ms)
    excluded = [encodable(one) for one in job.config.autoscaler.excluded]
    config, parameters = shown_config(job.config)
    names = {vertex.id: vertex for vertex in job.vertices}
    return {
        "version": VERSION,
        "id": state.job_id,
        "name": encodable(state.name),
        "status": status,
        "error": None if error is None else redacted(error),
        "attempt": int(state.attempt),
        "restarts": state.restarts,
        "now_ms": now_ms,
        "since": {str(name): since for name, since in picture.since.items()},
        "parallelism": job.config.parallelism,
        "vertices": all_encodable(vertex_views(job, fixed)),
        "tasks": [
            _task(task, record, state.metrics.get(task, {}), names[task.vertex])
            for task, record in picture.tasks.items()
        ],
        "metrics": all_encodable(job_figures(state, runtime_ms)),
        "accumulators": all_encodable(shown_accumulators(_accumulators(state))),
        "checkpoints": _checkpoints(state, picture, job),
        "failures": [_failure(one, names) for one in reversed(picture.failures)],
        "config": config,
        "parameters": parameters,
        "checkpointing": _checkpointing(job),
        "keys": figures["keys"],
        "autoscaler": job.config.autoscaler.plain() | {"excluded": excluded},
        "shortage": state.shortage,
    }


def vertex_views(
    job: JobGraph, fixed: Mapping[VertexId, str] = MappingProxyType({})
) -> list[VertexView]:
    """Of all vertices, in order."""
    found = [_vertex(vertex, job) for vertex in job.vertices]
    for vertex, view in zip(job.vertices, found, strict=True):
        if vertex.id in fixed:
            view["fixed"] = fixed[vertex.id]
        if vertex.deal:
            view["deal"] = list(vertex.deal)
    return found


def _vertex(vertex: JobVertex, job: JobGraph) -> VertexView:
    return {
        "id": str(vertex.id),
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "slot_sharing_group": vertex.slot_sharing_group,
        "operators": [_operator(operator) for operator in vertex.operators],
        "inputs": [
            {
                "source": str(edge.source),
                "ship": ship_name(edge.partitioner),
                "port": edge.port,
                "tag": edge.tag,
            }
            for edge in job.edges
            if edge.target == vertex.id
        ],
    }


def _operator(operator: ChainedOperator) -> OperatorView:
    made = operator.implementation
    return {
        "id": str(operator.operator_id),
        "name": operator.name,
        "description": operator.description,
        "uid": operator.uid,
        "implementation": None if made is None else made.name,
        "kind": None if made is None else made.kind,
        "why_not": None if made is None else made.why_not,
        "remarks": [] if made is None else list(made.remarks),
        "state_backend": operator.state_backend,
    }


def _task(
    task: TaskId, record: TaskRecord, report: Mapping[str, Any], vertex: JobVertex
) -> TaskView:
    process = dict(report.get("process", {}))
    return {
        "vertex": str(task.vertex),
        "subtask": task.subtask,
        "status": record.status,
        "attempt": int(record.attempt),
        "since": {str(status): since for status, since in record.since.items()},
        "host": process.get("host"),
        "pid": process.get("pid"),
        "metrics": task_figures(report, vertex),
        "process": process,
    }


def _accumulators(state: JobState) -> Iterator[tuple[str, str, Any]]:
    for task, report in sorted(state.metrics.items()):
        for named in report.get("accumulators", {}).values():
            for name, sealed in named.items():
                yield str(task.vertex), name, sealed


def _checkpoints(state: JobState, picture: Picture, job: JobGraph) -> CheckpointsView:
    figures, restored = state.checkpoints, picture.restored
    root = job.config.checkpoint.storage
    folder = None if root is None else f"{root.rstrip('/')}/{state.job_id}"

    def shown(record: CheckpointRecord | None, whole: bool = False) -> CheckpointView | None:
        return None if record is None else _checkpoint(record, folder, whole)

    return {
        "triggered": figures.triggered,
        "completed": figures.completed,
        "failed": figures.failed,
        "savepoints": figures.savepoints,
        "savepoints_failed": figures.savepoints_failed,
        "restores": picture.restores,
        "restored": None
        if restored is None
        else {
            "id": int(restored.id),
            "time_ms": restored.time_ms,
            "savepoint": restored.savepoint,
        },
        "latest_completed": shown(picture.completed),
        "latest_savepoint": shown(picture.savepoint),
        "latest_failed": shown(picture.failed),
        "history": [_checkpoint(one, folder, True) for one in reversed(picture.checkpoints)],
    }


def _checkpoint(record: CheckpointRecord, folder: str | None, whole: bool) -> CheckpointView:
    record = record.summed()
    location = record.location
    there = not record.discarded and record.status != "FAILED"
    if location is None and folder is not None and there:
        location = f"{folder}/chk-{record.id}"
    known = record.parts.copy() if isinstance(record.parts, dict) else record.parts
    return {
        "id": int(record.id),
        "status": record.status,
        "savepoint": record.is_savepoint,
        "terminal": record.terminal,
        "triggered_ms": record.triggered_ms,
        "ended_ms": record.ended_ms,
        "last_acknowledged_ms": record.last_acknowledged_ms,
        "reason": None if record.reason is None else redacted(record.reason),
        "size": record.size,
        "new_size": record.new_size,
        "subtasks": record.subtasks,
        "acknowledged": record.acknowledged,
        "path": None if location is None else redacted(location),
        "alignment_ms": record.alignment_ms,
        "persisted": record.persisted,
        "discarded": record.discarded,
        "parts": None
        if known is None or not whole
        else [_part(task, part) for task, part in sorted(known.items())],
    }


def _part(task: TaskId, part: Part) -> PartView:
    return {
        "vertex": str(task.vertex),
        "subtask": task.subtask,
        "acknowledged_ms": part.acknowledged_ms,
        "size": part.size,
        "new_size": part.new_size,
        "sync_ms": part.sync_ms,
        "async_ms": part.async_ms,
        "alignment_ms": part.alignment_ms,
        "persisted": part.persisted,
    }


def _failure(one: FailureRecord, names: Mapping[Any, JobVertex]) -> FailureView:
    task, label = one.task, None
    if task is not None:
        vertex = names[task.vertex]
        label = encodable(vertex.label(task.subtask))
    return {
        "cause": redacted(one.cause),
        "time_ms": one.time_ms,
        "attempt": int(one.attempt),
        "vertex": None if task is None else str(task.vertex),
        "subtask": None if task is None else task.subtask,
        "task": label,
        "host": one.host,
    }


def _checkpointing(job: JobGraph) -> dict[str, Any]:
    config, state = job.config.checkpoint, job.config.state
    interval = config.interval
    return {
        "interval_ms": None if interval is None else round(interval.total_seconds() * 1000),
        "timeout_ms": round(config.timeout.total_seconds() * 1000),
        "min_pause_ms": round(config.min_pause.total_seconds() * 1000),
        "max_concurrent": config.at_once,
        "tolerable_failures": config.tolerable_failures,
        "retention": config.retention.name,
        "storage": None if config.storage is None else redacted(config.storage),
        "incremental": config.incremental,
        "mode": config.mode.name,
        "unaligned": config.overtakes,
        "alignment_timeout_ms": round(config.alignment_timeout.total_seconds() * 1000),
        "state_backend": state.backend,
    }
