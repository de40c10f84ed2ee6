"""Everything a task needs to start, as plain data that travels to wherever it runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...checkpoint.manifest import Manifest
from ...checkpoint.storage import CheckpointStorage
from ...core.config import JobConfig
from ...core.ids import EVEN, Attempt, Deal, TaskId, VertexId
from ...logs.scope import LogScope
from ..exchange.endpoint import Address, Wiring
from ..graph.edge_names import edge_names
from ..graph.model import Channel, ExecutionGraph, JobEdge, JobVertex, label_of
from ..graph.rescaling import shapes_of


@dataclass(frozen=True)
class TaskDeployment:
    """One subtask in one attempt.

    `inputs` are in order of `target_index`, `outputs` by channel id; `edges` are the job edges the
    chain feeds, `key_groups` the number of key groups of their receivers, by edge id, and `deals`
    how these are dealt where that is not evenly; `input_edges` are those it reads. `edge_names`: of
    all these, by edge id. `restore` is the checkpoint to start from, None for a fresh start; its
    files are in `restore_storage`, new checkpoints go to `storage`. `revoke`: later checkpoints
    than `restore` have been published and are lost, so sinks must take them back. `halted`: the job
    was stopped at `restore`; the task only commits what that holds, and ends. `tokens`: what shows
    that the coordinator has taken over what its sinks write to, by operator, if it has.
    `own_share`: only some subtasks of its operators begin again, each with what it had itself at
    `restore`.
    `local_folders`: where the job keeps copies of what tasks write on this machine, said by the
    host; none: nowhere. `shape`: of its vertex (`graph.rescaling.shapes_of`). `neighbours`: name
    and parallelism of the vertices at the other ends of its edges.
    """

    task: TaskId
    attempt: Attempt
    job_id: str
    job_name: str
    vertex: JobVertex
    edges: tuple[JobEdge, ...]
    input_edges: tuple[JobEdge, ...]
    edge_names: Mapping[int, str]
    key_groups: Mapping[int, int]
    inputs: tuple[Channel, ...]
    outputs: tuple[Channel, ...]
    config: JobConfig
    storage: CheckpointStorage
    restore: Manifest | None
    restore_storage: CheckpointStorage
    revoke: bool = False
    halted: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict)
    own_share: bool = False
    local_folders: tuple[str, ...] = ()
    shape: str = ""
    deals: Mapping[int, Deal] = field(default_factory=dict)
    neighbours: Mapping[VertexId, tuple[str, int]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`name (2/4)`, as in logs."""
        return self.vertex.label(self.task.subtask)

    def wiring(self, peers: Mapping[TaskId, Address]) -> Wiring:
        """Of its channels. `peers`: where the receivers are, at least."""
        ends = {channel.source for channel in self.inputs}
        ends |= {channel.target for channel in self.outputs}
        names = {end: self._called(end) for end in ends | {self.task}}
        return Wiring(self.attempt, self.inputs, self.outputs, peers, names)

    def _called(self, task: TaskId) -> str:
        if task.vertex == self.vertex.id:
            return self.vertex.label(task.subtask)
        name, parallelism = self.neighbours[task.vertex]
        return label_of(name, task.subtask, parallelism)

    @property
    def log_scope(self) -> LogScope:
        """Who says what the task's code logs; of a chain of one, its operator."""
        scope = scope_of(self.job_id, self.job_name, self.vertex, self.task)
        return replace(scope, attempt=int(self.attempt))


def scope_of(job_id: str, job_name: str, vertex: JobVertex, task: TaskId) -> LogScope:
    """Of a task in any attempt."""
    alone = vertex.operators[0] if len(vertex.operators) == 1 else None
    return LogScope(
        job_id,
        job_name,
        vertex.name,
        None if alone is None else alone.name,
        None if alone is None else str(alone.operator_id),
        int(task.subtask),
    )


def deployments_of(
    tasks: Iterable[TaskId],
    graph: ExecutionGraph,
    attempt: Attempt,
    job_id: str,
    storage: CheckpointStorage,
    restore: Manifest | None,
    restore_storage: CheckpointStorage,
    revoke: bool = False,
    halted: bool = False,
    tokens: Mapping[str, str] | None = None,
    own_share: Collection[VertexId] = (),
) -> list[TaskDeployment]:
    """Cut the parts of these tasks out of the execution graph, in their order. `own_share`: as of
    the deployments, by vertex."""
    job = graph.job
    vertices = {vertex.id: vertex for vertex in job.vertices}
    names, shapes = edge_names(job), shapes_of(job)
    fed: dict[VertexId, list[JobEdge]] = {}
    read: dict[VertexId, list[JobEdge]] = {}
    for edge in job.edges:
        fed.setdefault(edge.source, []).append(edge)
        read.setdefault(edge.target, []).append(edge)

    def whole(vertex: JobVertex) -> TaskDeployment:
        """What all subtasks of a vertex have in common."""
        edges, input_edges = tuple(fed.get(vertex.id, ())), tuple(read.get(vertex.id, ()))
        return TaskDeployment(
            task=TaskId(vertex.id, 0),
            attempt=attempt,
            job_id=job_id,
            job_name=job.name,
            vertex=vertex,
            edges=edges,
            input_edges=input_edges,
            edge_names={e.id: names[e.id] for e in (*edges, *input_edges)},
            key_groups={e.id: vertices[e.target].max_parallelism for e in edges},
            inputs=(),
            outputs=(),
            config=job.config,
            storage=storage,
            restore=restore,
            restore_storage=restore_storage,
            revoke=revoke,
            halted=halted,
            tokens=_of(vertex, tokens or {}),
            own_share=vertex.id in own_share,
            shape=shapes[vertex.id],
            deals={e.id: deal for e in edges if (deal := vertices[e.target].deal) != EVEN},
            neighbours={
                end: (vertices[end].name, vertices[end].parallelism)
                for end in {*(e.source for e in input_edges), *(e.target for e in edges)}
            },
        )

    common: dict[VertexId, TaskDeployment] = {}
    found = []
    for task in tasks:
        if task.vertex not in common:
            common[task.vertex] = whole(vertices[task.vertex])
        inputs = sorted(graph.inputs.get(task, ()), key=lambda c: c.target_index)
        outputs = sorted(graph.outputs.get(task, ()), key=lambda c: c.id)
        one = replace(common[task.vertex], task=task, inputs=tuple(inputs), outputs=tuple(outputs))
        found.append(one)
    return found


def _of(vertex: JobVertex, tokens: Mapping[str, str]) -> dict[str, str]:
    """Those of its operators."""
    known = (str(operator.operator_id) for operator in vertex.operators)
    return {operator: tokens[operator] for operator in known if operator in tokens}
