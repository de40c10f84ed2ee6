"""JobGraph -> ExecutionGraph: the subtasks of every vertex and the channels between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...core.errors import GraphError
from ...core.ids import ChannelId, TaskId
from .model import Channel, ExecutionGraph, Forward, JobEdge, JobGraph, JobVertex, Rescale


def build_execution_graph(job: JobGraph) -> ExecutionGraph:
    """Channels are numbered by edge, then sending, then receiving subtask.

    `source_index` counts a sender's channels of one edge by receiving subtask; `target_index`
    counts a receiver's channels over all its input edges in edge order, then by sending subtask.
    Every task has an entry in `inputs` and `outputs`, possibly empty.
    """
    tasks = tuple(TaskId(v.id, i) for v in job.vertices for i in range(v.parallelism))
    inputs: dict[TaskId, list[Channel]] = {task: [] for task in tasks}
    outputs: dict[TaskId, list[Channel]] = {task: [] for task in tasks}
    channels: list[Channel] = []
    vertices = {vertex.id: vertex for vertex in job.vertices}
    for edge in job.edges:
        sent: dict[int, int] = defaultdict(int)
        for i, j in _pairs(edge, vertices[edge.source], vertices[edge.target]):
            source, target = TaskId(edge.source, i), TaskId(edge.target, j)
            channel = Channel(
                id=ChannelId(len(channels)),
                edge=edge.id,
                source=source,
                target=target,
                source_index=sent[i],
                target_index=len(inputs[target]),
                port=edge.port,
                buffer_timeout=edge.buffer_timeout,
            )
            sent[i] += 1
            channels.append(channel)
            inputs[target].append(channel)
            outputs[source].append(channel)
    return ExecutionGraph(
        job=job,
        tasks=tasks,
        channels=tuple(channels),
        inputs={task: tuple(found) for task, found in inputs.items()},
        outputs={task: tuple(found) for task, found in outputs.items()},
    )


def rescale_targets(subtask: int, sources: int, targets: int) -> range:
    """The receiving subtasks of sender `subtask` under Rescale (Flink's pointwise pattern).

    With more receivers than senders each sender has a share of its own; with fewer, consecutive
    senders share a receiver. Every receiver has at least one sender and the other way round.
    """
    if sources >= targets:
        first = ((subtask + 1) * targets - 1) // sources
        return range(first, first + 1)
    first = (subtask * targets + sources - 1) // sources
    return range(first, ((subtask + 1) * targets + sources - 1) // sources)


def _pairs(edge: JobEdge, source: JobVertex, target: JobVertex) -> Iterator[tuple[int, int]]:
    """(sending subtask, receiving subtask), ascending."""
    match edge.partitioner:
        case Forward():
            if source.parallelism != target.parallelism:
                raise GraphError(
                    f"forward edge from '{source.name}' (parallelism {source.parallelism}) to "
                    f"'{target.name}' (parallelism {target.parallelism}): both sides of a forward "
                    "edge need one parallelism"
                )
            if source.deal != target.deal and source.max_parallelism == target.max_parallelism:
                raise GraphError(
                    f"forward edge from '{source.name}' to '{target.name}': both sides of a "
                    "forward edge need their key groups dealt in one way"
                )
            yield from ((i, i) for i in range(source.parallelism))
        case Rescale():
            for i in range(source.parallelism):
                for j in rescale_targets(i, source.parallelism, target.parallelism):
                    yield i, j
        case _:
            for i in range(source.parallelism):
                for j in range(target.parallelism):
                    yield i, j
