"""Which tasks of a job have to be restarted together.

A *region* is what hangs together by channels: whoever sends to a task that begins again would have
to send again what it has sent, and whoever receives from one would get it twice, so all of them go
back to the checkpoint. What shares no channel with them goes on. A pipeline of forward edges is a
region of its own in each subtask.

Two things outside of channels tie subtasks of one operator to each other, and join their regions
unless the connector says that they do not (`Source.independent_readers`,
`Sink.independent_writers`): an enumerator that concludes something from what all its readers do,
and a writer that cleans up behind other subtasks. A source whose readers are all in one region
begins again with its enumerator; of one whose readers are in several, the enumerator goes on, and
the readers get once more what they were given since the checkpoint. Watermark alignment joins
nothing: a reader that begins again only holds its group back until it has reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...core.ids import OperatorId, TaskId, VertexId
from ..graph.model import ExecutionGraph, JobVertex

Reader = tuple[OperatorId, TaskId]


@dataclass(frozen=True)
class Region:
    """`tasks`: in the job's order. `sources`: those with all their readers here; `readers`: here,
    of sources that have others elsewhere."""

    tasks: tuple[TaskId, ...]
    sources: tuple[OperatorId, ...] = ()
    readers: tuple[Reader, ...] = ()


def regions_of(graph: ExecutionGraph) -> tuple[Region, ...]:
    """In order of their first tasks; every task is in exactly one."""
    leader = {task: task for task in graph.tasks}

    def found(task: TaskId) -> TaskId:
        while leader[task] != task:
            leader[task] = leader[leader[task]]
            task = leader[task]
        return task

    for channel in graph.channels:
        leader[found(channel.target)] = found(channel.source)
    of_vertex = _by_vertex(graph.tasks)
    for vertex in graph.job.vertices:
        if _tied(vertex):
            first, *others = of_vertex[vertex.id]
            for task in others:
                leader[found(task)] = found(first)
    members: dict[TaskId, list[TaskId]] = {}
    for task in graph.tasks:
        members.setdefault(found(task), []).append(task)
    sources = {
        vertex.id: [operator.operator_id for operator in vertex.operators if operator.is_source]
        for vertex in graph.job.vertices
    }
    size = {vertex.id: len(of_vertex[vertex.id]) for vertex in graph.job.vertices}
    return tuple(_region(tasks, sources, size) for tasks in members.values())


def _region(
    tasks: list[TaskId],
    sources: Mapping[VertexId, Iterable[OperatorId]],
    size: Mapping[VertexId, int],
) -> Region:
    """`sources`: of each vertex; `size`: how many subtasks it has."""
    whole: list[OperatorId] = []
    readers: list[Reader] = []
    for vertex, mine in _by_vertex(tasks).items():
        for operator in sources[vertex]:
            if len(mine) == size[vertex]:
                whole.append(operator)
            else:
                readers += [(operator, task) for task in mine]
    return Region(tuple(tasks), tuple(whole), tuple(readers))


def _by_vertex(tasks: Iterable[TaskId]) -> dict[VertexId, list[TaskId]]:
    found: dict[VertexId, list[TaskId]] = {}
    for task in tasks:
        found.setdefault(task.vertex, []).append(task)
    return found


def _tied(vertex: JobVertex) -> bool:
    """Whether its subtasks begin again together, whatever connects them."""
    for operator in vertex.operators:
        spec = operator.spec
        if operator.is_source and not _says(spec, "source", "independent_readers"):
            return True
        if operator.is_sink and not _says(spec, "sink", "independent_writers"):
            return True
    return False


def _says(spec: object, part: str, what: str) -> bool:
    return bool(getattr(getattr(spec, part, None), what, False))
