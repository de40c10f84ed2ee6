"""Which tasks a rescale concerns, and which of them it stops and starts.

It concerns what changes its parallelism, or how its key groups are dealt, and with it whatever
shares a region (`regions`) with any of its tasks, before or after, and all other tasks of the same
vertices. What is left shares no channel with them, and is the same in both graphs: its regions, its
tasks, and what these hold.

Of what it concerns only the vertices that change have to begin again, and those that hear of event
time from only some of their subtasks. The tasks of the others may *stay*, with all that they hold
in memory: they stand still behind the checkpoint, so that nothing is on its way to or from them,
and go on with other channels (`rescales`). Where that cannot be, all that it concerns begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from ...core.ids import Deal, OperatorId, TaskId, VertexId
from ..graph.model import ExecutionGraph, JobVertex, Rescale
from .regions import Region, regions_of


@dataclass(frozen=True)
class Part:
    """`stops`: of the graph that the job has; `starts`: of the one that it gets, restarted as one
    region. In the job's order; both begin with the first task of the same vertex. `stays`: those
    that go on with other channels, and `region`: the same with what starts; None: nobody stays."""

    stops: tuple[TaskId, ...]
    starts: Region
    stays: tuple[TaskId, ...] = ()
    region: Region | None = None

    @property
    def former(self) -> tuple[TaskId, ...]:
        """All that it concerns, of the graph that the job has."""
        return (*self.stops, *self.stays)

    @property
    def then(self) -> Region:
        """The same of the one that it gets."""
        return self.region or self.starts

    def concerns(self, task: TaskId | None) -> bool:
        """Whether it is one of these."""
        return task in self.then.tasks

    def without_stays(self) -> Part:
        """The same where all that it concerns begins again."""
        return Part(self.former, self.then)


def part_of(now: ExecutionGraph, then: ExecutionGraph) -> Part | None:
    """Of a job that is `now`, and is to be `then`, which differs from it in parallelisms and deals.
    Nobody stays. None: it concerns all."""
    vertices = _concerned(now, then, _changed(now, then))
    stops = _tasks(now, vertices)
    if not stops or len(stops) == len(now.tasks):
        return None
    return Part(stops, _region(then, vertices))


def staying_part_of(now: ExecutionGraph, then: ExecutionGraph) -> Part | None:
    """The same where all stay that do not change; it may concern all. None: nobody would."""
    changed = _with_those_behind(then, _changed(now, then))
    vertices = _concerned(now, then, changed)
    stays = _tasks(now, vertices - changed)
    if not changed or not stays:
        return None
    starts = _region(then, changed)
    if _alone(then, vertices - changed) - _alone(now, vertices - changed):
        return None  # nobody knows what these readers were given since the checkpoint
    return Part(_tasks(now, changed), starts, stays, _region(then, vertices))


def _tasks(graph: ExecutionGraph, vertices: Set[VertexId]) -> tuple[TaskId, ...]:
    return tuple(task for task in graph.tasks if task.vertex in vertices)


def _region(graph: ExecutionGraph, vertices: Set[VertexId]) -> Region:
    sources = tuple(
        operator.operator_id
        for vertex in graph.job.vertices
        if vertex.id in vertices
        for operator in vertex.operators
        if operator.is_source
    )
    return Region(_tasks(graph, vertices), sources)


def _alone(graph: ExecutionGraph, vertices: Set[VertexId]) -> Set[OperatorId]:
    """Sources of these of which single readers may begin again."""
    return {
        operator
        for region in regions_of(graph)
        for operator, task in region.readers
        if task.vertex in vertices
    }


def _changed(now: ExecutionGraph, then: ExecutionGraph) -> Set[VertexId]:
    pairs = zip(now.job.vertices, then.job.vertices, strict=True)
    return {old.id for old, new in pairs if _dealt(old) != _dealt(new)}


def _with_those_behind(graph: ExecutionGraph, changed: Set[VertexId]) -> Set[VertexId]:
    """And with those that read from only some subtasks of one of them: how far these had been says
    nothing of what their successors have got."""
    pairs = [(e.source, e.target) for e in graph.job.edges if isinstance(e.partitioner, Rescale)]
    found = set(changed)
    while behind := {target for source, target in pairs if source in found} - found:
        found |= behind
    return found


def _dealt(vertex: JobVertex) -> tuple[int, Deal]:
    return vertex.parallelism, vertex.deal


def _concerned(now: ExecutionGraph, then: ExecutionGraph, changed: Set[VertexId]) -> Set[VertexId]:
    """With all vertices that a region joins with one of them."""
    regions = (*regions_of(now), *regions_of(then))
    return _whole(changed, [{task.vertex for task in region.tasks} for region in regions])


def _whole(changed: Set[VertexId], regions: Iterable[Set[VertexId]]) -> Set[VertexId]:
    """With all vertices that a region joins with one of them. `regions`: the vertices of each."""
    found, left = set(changed), list(regions)
    while joined := [one for one in left if one & found and not one <= found]:
        found.update(*joined)
    return found
