"""Which tasks a rescale stops and starts, where the others go on.

What changes its parallelism, or how its key groups are dealt, begins again, and with it whatever
shares a region (`regions`) with any of its tasks, before or after, and all other tasks of the same
vertices. What is left shares no channel with them, and is the same in both graphs: its regions, its
tasks, and what these hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from ...core.ids import Deal, TaskId, VertexId
from ..graph.model import ExecutionGraph, JobVertex
from .regions import Region, regions_of


@dataclass(frozen=True)
class Part:
    """`stops`: of the graph that the job has; `starts`: of the one that it gets, restarted as one
    region. In the job's order; both begin with the first task of the same vertex."""

    stops: tuple[TaskId, ...]
    starts: Region

    def concerns(self, task: TaskId | None) -> bool:
        """Whether it is one of those that start."""
        return task in self.starts.tasks


def part_of(now: ExecutionGraph, then: ExecutionGraph) -> Part | None:
    """Of a job that is `now`, and is to be `then`, which differs from it in parallelisms and deals.
    None: nothing goes on."""
    pairs = zip(now.job.vertices, then.job.vertices, strict=True)
    changed = {old.id for old, new in pairs if _dealt(old) != _dealt(new)}
    regions = (*regions_of(now), *regions_of(then))
    vertices = _whole(changed, [{task.vertex for task in region.tasks} for region in regions])
    stops = tuple(task for task in now.tasks if task.vertex in vertices)
    if not stops or len(stops) == len(now.tasks):
        return None
    sources = tuple(
        operator.operator_id
        for vertex in then.job.vertices
        if vertex.id in vertices
        for operator in vertex.operators
        if operator.is_source
    )
    starts = tuple(task for task in then.tasks if task.vertex in vertices)
    return Part(stops, Region(starts, sources))


def _dealt(vertex: JobVertex) -> tuple[int, Deal]:
    return vertex.parallelism, vertex.deal


def _whole(changed: Set[VertexId], regions: Iterable[Set[VertexId]]) -> Set[VertexId]:
    """With all vertices that a region joins with one of them. `regions`: the vertices of each."""
    found, left = set(changed), list(regions)
    while joined := [one for one in left if one & found and not one <= found]:
        found.update(*joined)
    return found
