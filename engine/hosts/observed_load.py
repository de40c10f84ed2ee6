"""What a job carries, as the autoscaler takes it: what it is made of, and its figures at a moment.
Of a job's view, for whoever looks from outside; of its state, for its own coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ...autoscaling.samples import Sample, Totals
from ...autoscaling.shape import Edge, Shape, Ship, Vertex
from ...core.ids import VertexId
from ..coordinator.job_state import JobState
from ..graph.model import JobGraph, JobVertex
from ..graph.rescaling import kept_widths
from .job_view import InputView, JobView, VertexView, vertex_views
from .key_figures import KeyLoads, key_loads
from .task_figures import leaving, load_figures, operator_labels

_SHIPS: Final[dict[str, Ship]] = {"FORWARD": "forward", "BROADCAST": "broadcast"}

BUSY: Final = "accumulateBusyTimeMs"
HELD: Final = "accumulateBackPressuredTimeMs"

Told = Mapping[str, Sequence[tuple[int, Mapping[str, Any]]]]
"""By vertex: of each subtask its number, and its figures as of `load_figures`."""


def shape_of(view: JobView) -> Shape:
    """How many partitions a source has nobody says, so key groups limit it as all others."""
    return _shape(view["vertices"])


def shape_as_planned(planned: JobGraph) -> Shape:
    """The same of a job as its program made it."""
    return _shape(vertex_views(planned, kept_widths(planned)))


def sample_of(view: JobView) -> Sample:
    """Without vertices of which some subtask has not said anything yet. Times are those of the
    view's clock."""
    told: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for task in view["tasks"]:
        told.setdefault(task["vertex"], []).append((task["subtask"], task["metrics"]))
    loads = {one["vertex"]: (one["loads"], max(one["subtasks"])) for one in view.get("keys", [])}
    return _sample(view["now_ms"], view["attempt"], view["vertices"], told, loads)


def sample_now(state: JobState, job: JobGraph, now_ms: int) -> Sample:
    """The same of a job at this moment, of what its tasks have reported."""
    operators = {vertex.id: _operators(vertex) for vertex in job.vertices}
    told: dict[str, list[tuple[int, Mapping[str, Any]]]] = {}
    for task, report in state.metrics.items():
        figures = load_figures(report, operators[task.vertex])
        told.setdefault(str(task.vertex), []).append((task.subtask, figures))
    loads = key_loads(state.metrics, job)
    return _sample(now_ms, int(state.attempt), vertex_views(job), told, loads)


def _operators(vertex: JobVertex) -> list[tuple[str, str, bool]]:
    """As of `load_figures`."""
    labels = operator_labels((str(o.operator_id), o.name) for o in vertex.operators)
    outer = {o.operator_id for o in leaving(vertex)}
    return [
        (o.operator_id, labels[o.operator_id], o.operator_id in outer) for o in vertex.operators
    ]


def _shape(vertices: Sequence[VertexView]) -> Shape:
    return Shape(
        tuple(_vertex(vertex) for vertex in vertices),
        tuple(
            Edge(id, VertexId(one["source"]), VertexId(target["id"]), _ship(one))
            for id, target, one in _inputs(vertices)
        ),
    )


def _sample(
    now_ms: int,
    attempt: int,
    vertices: Sequence[VertexView],
    told: Told,
    loads: Mapping[str, KeyLoads],
) -> Sample:
    found = {
        VertexId(vertex["id"]): totals
        for vertex in vertices
        if (totals := _totals(vertex, told.get(vertex["id"], ()), loads.get(vertex["id"])))
    }
    edges = {id: _sent(target, one, told) for id, target, one in _inputs(vertices)}
    return Sample(now_ms / 1000, attempt, found, edges)


def _inputs(vertices: Sequence[VertexView]) -> Iterator[tuple[int, VertexView, InputView]]:
    """All edges, numbered: the same for each view of a job."""
    edges = ((target, one) for target in vertices for one in target["inputs"])
    for id, (target, one) in enumerate(edges):
        yield id, target, one


def _vertex(vertex: VertexView) -> Vertex:
    names = {
        text
        for operator in vertex["operators"]
        for text in (operator["id"], operator["name"], operator["uid"])
        if text is not None
    }
    return Vertex(
        VertexId(vertex["id"]),
        vertex["name"],
        vertex["max_parallelism"],
        keyed=any(one["ship"].startswith("HASH(") for one in vertex["inputs"]),
        fixed=vertex.get("fixed"),
        labels=tuple(sorted(names)),
    )


def _ship(one: InputView) -> Ship:
    return _SHIPS.get(one["ship"], "spread")


def _totals(
    vertex: VertexView,
    told: Sequence[tuple[int, Mapping[str, Any]]],
    loads: KeyLoads | None,
) -> Totals | None:
    figures = [one for _, one in sorted(told, key=lambda task: task[0])]
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
        None if loads is None else tuple(round(load * 1_000_000) for load in loads[0]),
        None if loads is None else loads[1],
    )


def _sent(target: VertexView, one: InputView, told: Told) -> int:
    """Of one input what came of it, of several what their sources passed on, to whomever."""
    if len(target["inputs"]) == 1:
        came = _sum([figures for _, figures in told.get(target["id"], ())], "numRecordsIn")
        return came // target["parallelism"] if _ship(one) == "broadcast" else came
    return _sum([figures for _, figures in told.get(one["source"], ())], "numRecordsOut")


def _sum(figures: Iterable[Mapping[str, Any]], name: str) -> int:
    return int(sum(one.get(name) or 0 for one in figures))
