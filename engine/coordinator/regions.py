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

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.ids import OperatorId, TaskId
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
    of_vertex = {v.id: _tasks(v, graph.tasks) for v in graph.job.vertices}
    for vertex in graph.job.vertices:
        if _tied(vertex):
            first, *others = of_vertex[vertex.id]
            for task in others:
                leader[found(task)] = found(first)
    members: dict[TaskId, list[TaskId]] = {}
    for task in graph.tasks:
        members.setdefault(found(task), []).append(task)
    sources = [
        (operator.operator_id, of_vertex[vertex.id])
        for vertex in graph.job.vertices
        for operator in vertex.operators
        if operator.is_source
    ]
    return tuple(_region(tasks, sources) for tasks in members.values())


def _region(tasks: list[TaskId], sources: Iterable[tuple[OperatorId, list[TaskId]]]) -> Region:
    here = frozenset(tasks)
    whole, readers = [], []
    for operator, all_readers in sources:
        mine = [task for task in all_readers if task in here]
        if mine and len(mine) == len(all_readers):
            whole.append(operator)
        else:
            readers += [(operator, task) for task in mine]
    return Region(tuple(tasks), tuple(whole), tuple(readers))


def _tasks(vertex: JobVertex, tasks: Iterable[TaskId]) -> list[TaskId]:
    return [task for task in tasks if task.vertex == vertex.id]


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
