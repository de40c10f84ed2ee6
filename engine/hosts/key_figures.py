"""How the keys of a job's vertices are distributed, of what all senders saw of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


KeyLoads = tuple[Sequence[float], float]
"""Of a vertex, as of `KeyFigures`: `loads`, and the greatest of `subtasks`."""


def key_loads(reports: Mapping[TaskId, Mapping[str, Any]], job: JobGraph) -> dict[str, KeyLoads]:
    """Of the same vertices, by their ids."""
    return {
        str(vertex.id): (loads, max(_subtasks(vertex, seen[0]["width"], loads)))
        for vertex, seen, loads in _known(reports, job)
    }


@dataclass(frozen=True)
class GroupLoads:
    """What vertices got that share key groups. `loads`: of runs of `width` key groups each, in
    records; `keys`: those that many records have, with their share of them, the most frequent
    first, and the key group of each."""

    width: int
    loads: list[int]
    keys: list[tuple[str, float, int]]


def group_loads(
    reports: Mapping[TaskId, Mapping[str, Any]], job: JobGraph, vertices: Sequence[JobVertex]
) -> GroupLoads | None:
    """None: nothing is known. `vertices` have equally many key groups."""
    into = {vertex.id for vertex in vertices}
    edges = [e for e in job.edges if isinstance(e.partitioner, KeyGroups) and e.target in into]
    seen = [one for edge in edges for one in _seen(edge, reports)]
    loads = [sum(run) for run in zip(*(one["loads"] for one in seen), strict=True)]
    if not sum(loads):
        return None
    most = vertices[0].max_parallelism
    keys = [(name, count / total, key % most) for name, key, count, total, _ in _frequent(seen)]
    return GroupLoads(seen[0]["width"], loads, keys)


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
    subtasks = _subtasks(vertex, width, loads)
    return {
        "vertex": str(vertex.id),
        "name": encodable(vertex.name),
        "width": width,
        "loads": loads,
        "subtasks": subtasks,
        "skew": max(subtasks) * vertex.parallelism,
        "hot": _hot(vertex, seen),
    }


def _subtasks(vertex: JobVertex, width: int, loads: list[float]) -> list[float]:
    """What each gets of them."""
    table = subtask_table(vertex.parallelism, vertex.max_parallelism, vertex.deal)
    subtasks = [0.0] * vertex.parallelism
    for run, load in enumerate(loads):
        groups = table[run * width : (run + 1) * width]
        for subtask in groups:
            subtasks[subtask] += load / len(groups)
    return subtasks


def _hot(vertex: JobVertex, seen: list[Mapping[str, Any]]) -> list[HotKey]:
    """A key's hash says which key group it is in."""
    table = subtask_table(vertex.parallelism, vertex.max_parallelism, vertex.deal)
    return [
        {
            "key": name,
            "share": count / total,
            "most": min(1.0, (count + error) / total),
            "subtask": int(table[key % vertex.max_parallelism]),
        }
        for name, key, count, total, error in _frequent(seen)
    ]


def _frequent(
    seen: list[Mapping[str, Any]],
) -> Iterator[tuple[str, int, float, float, float]]:
    """Keys, the most frequent first: text, hash, count; of how many records, and how many more may
    have it. Counts of senders together."""
    parts = [
        FrequentItems.of(
            64, {key: count for key, _, count in one["hot"]}, one["error"], one["total"]
        )
        for one in seen
    ]
    items, names = merged(parts), {key: text for one in seen for key, text, _ in one["hot"]}
    number = max((len(one["hot"]) for one in seen), default=0)
    for key, count in items.most(number):
        yield redacted(encodable(names[key])), key, count, items.total, items.error
