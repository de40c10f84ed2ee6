"""A job's view as the autoscaler takes it: what it is made of, and its figures at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...autoscaling.samples import Sample, Totals
from ...autoscaling.shape import Edge, Shape, Ship, Vertex
from ...core.ids import VertexId
from .job_view import InputView, JobView, TaskView, VertexView
from .task_figures import operator_labels

_SHIPS: Final[dict[str, Ship]] = {"FORWARD": "forward", "BROADCAST": "broadcast"}

BUSY: Final = "accumulateBusyTimeMs"
HELD: Final = "accumulateBackPressuredTimeMs"


def shape_of(view: JobView) -> Shape:
    """Of a job as its program planned it. Operators that it gave a parallelism of their own keep
    that, as in every rescale. How many partitions a source has nobody says, so key groups limit it
    as all others."""
    return Shape(
        tuple(_vertex(vertex, view["parallelism"]) for vertex in view["vertices"]),
        tuple(
            Edge(id, VertexId(one["source"]), VertexId(target["id"]), _ship(one))
            for id, target, one in _inputs(view)
        ),
    )


def sample_of(view: JobView) -> Sample:
    """Without vertices of which some subtask has not said anything yet. Times are those of the
    view's clock."""
    tasks: dict[str, list[TaskView]] = {}
    for task in view["tasks"]:
        tasks.setdefault(task["vertex"], []).append(task)
    loads = {one["vertex"]: one["loads"] for one in view.get("keys", [])}
    vertices = {
        VertexId(vertex["id"]): totals
        for vertex in view["vertices"]
        if (totals := _totals(vertex, tasks.get(vertex["id"], []), loads.get(vertex["id"])))
    }
    edges = {id: _sent(target, one, tasks) for id, target, one in _inputs(view)}
    return Sample(view["now_ms"] / 1000, view["attempt"], vertices, edges)


def _inputs(view: JobView) -> Iterator[tuple[int, VertexView, InputView]]:
    """All edges, numbered: the same in each view of a job."""
    edges = ((target, one) for target in view["vertices"] for one in target["inputs"])
    for id, (target, one) in enumerate(edges):
        yield id, target, one


def _vertex(vertex: VertexView, parallelism: int) -> Vertex:
    ships = [one["ship"] for one in vertex["inputs"]]
    names = {
        text
        for operator in vertex["operators"]
        for text in (operator["id"], operator["name"], operator["uid"])
        if text is not None
    }
    fixed = None
    if "GLOBAL" in ships:
        fixed = "all of its records go to one subtask"
    elif vertex["parallelism"] != parallelism:
        fixed = "the program gave it a parallelism of its own"
    return Vertex(
        VertexId(vertex["id"]),
        vertex["name"],
        vertex["max_parallelism"],
        keyed=any(ship.startswith("HASH(") for ship in ships),
        fixed=fixed,
        labels=tuple(sorted(names)),
    )


def _ship(one: InputView) -> Ship:
    return _SHIPS.get(one["ship"], "spread")


def _totals(
    vertex: VertexView, tasks: Sequence[TaskView], loads: Sequence[float] | None
) -> Totals | None:
    figures = [task["metrics"] for task in sorted(tasks, key=lambda task: task["subtask"])]
    if len(figures) < vertex["parallelism"] or any(BUSY not in one for one in figures):
        return None
    head = operator_labels((one["id"], one["name"]) for one in vertex["operators"])[
        vertex["operators"][0]["id"]
    ]
    taken = "numRecordsIn" if vertex["inputs"] else f"{head}.numRecordsOut"
    behind = [one[name] for one in figures if (name := f"{head}.pendingRecords") in one]
    return Totals(
        _sum(figures, taken),
        tuple(float(one[BUSY]) for one in figures),
        sum(float(one.get(HELD) or 0.0) for one in figures),
        round(sum(behind)) if behind else None,
        None if loads is None else tuple(round(load * 1_000_000) for load in loads),
    )


def _sent(target: VertexView, one: InputView, tasks: dict[str, list[TaskView]]) -> int:
    """Of one input what came of it, of several what their sources passed on, to whomever."""
    if len(target["inputs"]) == 1:
        came = _sum([task["metrics"] for task in tasks.get(target["id"], [])], "numRecordsIn")
        return came // target["parallelism"] if _ship(one) == "broadcast" else came
    return _sum([task["metrics"] for task in tasks.get(one["source"], [])], "numRecordsOut")


def _sum(figures: Sequence[dict[str, Any]], name: str) -> int:
    return int(sum(one.get(name) or 0 for one in figures))
