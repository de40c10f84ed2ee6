"""Paths that read vertices and subtasks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query

from ..shapes.jobs import VertexAccumulators, vertex_accumulators
from ..shapes.metrics import (
    Aggregated,
    Metric,
    aggregated,
    metrics_of,
    task_metrics,
    vertex_metrics,
)
from ..shapes.vertices import (
    BackPressure,
    Subtask,
    SubtaskTimes,
    Watermark,
    back_pressure,
    subtask_details,
    subtask_times,
    tasks_of,
    vertex_details,
    watermarks,
)
from ..shapes.vertices import Vertex as VertexShape
from .flame_graphs import FlameGraph, FlameGraphs, Kind
from .jobs import Get, Kinds, aggregations
from .long_work import apart
from .parameters import Common, Task, Vertex, View

router = APIRouter(prefix="/jobs/{jobid}/vertices/{vertexid}", tags=["vertices"])


@router.get("")
def vertex(view: View, vertex: Vertex) -> VertexShape:
    """A vertex: a chain of operators, and its subtasks."""
    return vertex_details(view, vertex)


@router.get("/metrics")
def metrics_of_vertex(view: View, vertex: Vertex, get: Get = None) -> list[Metric]:
    """Of all subtasks, each name with the subtask in front."""
    return metrics_of(vertex_metrics(tasks_of(view, vertex["id"])), get)


@router.get("/watermarks")
def watermarks_of_vertex(view: View, vertex: Vertex) -> list[Watermark]:
    return watermarks(view, vertex)


@router.get("/backpressure")
def backpressure(view: View, vertex: Vertex) -> BackPressure:
    """What its subtasks do with their time."""
    return back_pressure(view, vertex)


@router.get("/subtasktimes")
def subtasktimes(view: View, vertex: Vertex) -> SubtaskTimes:
    """When its subtasks came to each status."""
    return subtask_times(view, vertex)


@router.get("/accumulators")
def accumulators_of_vertex(view: View, vertex: Vertex) -> VertexAccumulators:
    """Merged over its subtasks."""
    return vertex_accumulators(view, vertex)


@router.get("/flamegraph")
@apart(4)
def flamegraph(
    view: View,
    vertex: Vertex,
    api: Common,
    kind: Annotated[Kind, Query(alias="type")] = "FULL",
    subtask: Annotated[int | None, Query(alias="subtaskindex", ge=0, le=1 << 20)] = None,
) -> FlameGraph:
    """What its processes do, sampled for two seconds: for who may operate, as that looks into
    them."""
    tasks = tasks_of(view, vertex["id"])
    wanted = [task for task in tasks if subtask is None or task["subtask"] == subtask]
    graphs: FlameGraphs = api.flames
    return graphs.of(wanted, kind)


@router.get("/subtasks/metrics")
def metrics_of_subtasks(
    view: View,
    vertex: Vertex,
    get: Get = None,
    agg: Kinds = None,
    subtasks: Annotated[
        str | None, Query(max_length=4_000, description="Numbers and ranges: 0,3-5; else all.")
    ] = None,
) -> list[Aggregated]:
    """Metrics of several subtasks taken together."""
    kinds = aggregations(agg)
    wanted = _subtasks(subtasks, vertex["parallelism"])
    tasks = [task for task in tasks_of(view, vertex["id"]) if task["subtask"] in wanted]
    return aggregated([task_metrics(task) for task in tasks], get, kinds)


@router.get("/subtasks/{subtaskindex}")
def subtask(view: View, task: Task) -> Subtask:
    """One subtask, in its current attempt."""
    return subtask_details(view, task)


@router.get("/subtasks/{subtaskindex}/metrics")
def metrics_of_subtask(task: Task, get: Get = None) -> list[Metric]:
    return metrics_of(task_metrics(task), get)


def _subtasks(wanted: str | None, parallelism: int) -> set[int]:
    if wanted is None:
        return set(range(parallelism))
    found: set[int] = set()
    for part in wanted.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(end.isascii() and end.isdigit() and len(end) < 10 for end in ends):
            raise HTTPException(400, "subtasks: numbers and ranges, such as 0,3-5")
        found |= set(range(int(ends[0]), min(int(ends[1]), parallelism - 1) + 1))
    return found
