"""How the keys of a job's vertices are distributed, of what all senders saw of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import TypedDict

from ...core.frequent_items import FrequentItems, merged
from ...core.ids import TaskId
from ...core.redaction import redacted
from ...core.texts import encodable
from ...state.key_groups import subtask_table
from ..graph.model import JobEdge, JobGraph, JobVertex, KeyGroups


class HotKey(TypedDict):
    """`share`: of the records, at least; `most`: at most. `subtask`: the one that has it."""

    key: str
    share: float
    most: float
    subtask: int


class KeyFigures(TypedDict):
    """Of one vertex, lately (`exchange.key_load`). `loads`: shares of runs of `width` key groups
    each (one, up to 1,024 of them). `subtasks`: what each gets, of the records; `skew`: what the
    busiest gets, over the mean one. `hot`: keys that many records have, the most frequent first."""

    vertex: str
    name: str
    width: int
    loads: list[float]
    subtasks: list[float]
    skew: float
    hot: list[HotKey]


def key_figures(reports: Mapping[TaskId, Mapping[str, Any]], job: JobGraph) -> list[KeyFigures]:
    """Of vertices that get records by key, with more than one subtask; what several edges bring
    counts together."""
    return [_figures(vertex, seen, loads) for vertex, seen, loads in _known(reports, job)]


def key_loads(reports: Mapping[TaskId, Mapping[str, Any]], job: JobGraph) -> dict[str, list[float]]:
    """Of the same vertices, by their ids: only the `loads`."""
    return {str(vertex.id): loads for vertex, _, loads in _known(reports, job)}


def _known(
    reports: Mapping[TaskId, Mapping[str, Any]], job: JobGraph
) -> Iterator[tuple[JobVertex, list[Mapping[str, Any]], list[float]]]:
    edges = [edge for edge in job.edges if isinstance(edge.partitioner, KeyGroups)]
    for vertex in job.vertices:
        seen = [one for edge in edges if edge.target == vertex.id for one in _seen(edge, reports)]
        total = sum(sum(one["loads"]) for one in seen)
        if total > 0:
            runs = zip(*(one["loads"] for one in seen), strict=True)
            yield vertex, seen, [sum(run) / total for run in runs]


def _seen(edge: JobEdge, reports: Mapping[TaskId, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        report["keys"][edge.id]
        for task, report in sorted(reports.items())
        if task.vertex == edge.source and edge.id in report.get("keys", {})
    ]


def _figures(vertex: JobVertex, seen: list[Mapping[str, Any]], loads: list[float]) -> KeyFigures:
    width = seen[0]["width"]
    table = subtask_table(vertex.parallelism, vertex.max_parallelism)
    subtasks = [0.0] * vertex.parallelism
    for run, load in enumerate(loads):
        groups = table[run * width : (run + 1) * width]
        for subtask in groups:
            subtasks[subtask] += load / len(groups)
    return {
        "vertex": str(vertex.id),
        "name": encodable(vertex.name),
        "width": width,
        "loads": loads,
        "subtasks": subtasks,
        "skew": max(subtasks) * vertex.parallelism,
        "hot": _hot(vertex, seen),
    }


def _hot(vertex: JobVertex, seen: list[Mapping[str, Any]]) -> list[HotKey]:
    """Counts of senders together; a key's hash says which key group it is in."""
    parts = [
        FrequentItems.of(
            64, {key: count for key, _, count in one["hot"]}, one["error"], one["total"]
        )
        for one in seen
    ]
    items, names = merged(parts), {key: text for one in seen for key, text, _ in one["hot"]}
    table = subtask_table(vertex.parallelism, vertex.max_parallelism)
    number = max((len(one["hot"]) for one in seen), default=0)
    return [
        {
            "key": redacted(encodable(names[key])),
            "share": count / items.total,
            "most": min(1.0, (count + items.error) / items.total),
            "subtask": int(table[key % vertex.max_parallelism]),
        }
        for key, count in items.most(number)
    ]
