"""What the job master needs to know of a job's graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...checkpoint.manifest import OperatorShape
from ...core.config import JobConfig
from ...core.errors import GraphError
from ...core.ids import OperatorId, TaskId, VertexId
from ..graph.edge_names import chained_names, edge_names
from ..graph.model import ExecutionGraph
from ..graph.rescaling import shapes_of
from .regions import Region, regions_of
from .watermark_alignment import AlignmentGroup


@dataclass(frozen=True)
class JobPlan:
    """One job, the same in all attempts. `sources`: the tasks that checkpoints are triggered at;
    `names`: of all operators, for messages; `readers`: those of them that read splits; `aligned`:
    those of these that align their watermarks, and with whom;
    `irrevocable`: names of the sinks that cannot take back what they published."""

    job_id: str
    job_name: str
    config: JobConfig
    tasks: tuple[TaskId, ...]
    sources: tuple[TaskId, ...]
    shapes: tuple[OperatorShape, ...]
    names: Mapping[OperatorId, str]
    readers: Mapping[OperatorId, str]
    aligned: Mapping[OperatorId, AlignmentGroup]
    irrevocable: tuple[str, ...]
    unnamed: frozenset[OperatorId]
    """Those whose id no program gave them."""
    caches: tuple[str, ...]
    """Names of the sinks that keep a stream for later jobs, which is whole when they finish."""
    labels: Mapping[TaskId, str]
    """`name (1/2)` of each task, for messages."""
    edge_names: frozenset[str] = frozenset()
    """Of all connections between operators (`graph.edge_names`)."""
    regions: tuple[Region, ...] = ()
    """Which tasks are restarted together."""
    shape_of: Mapping[VertexId, str] = field(default_factory=dict)
    """What tasks of each vertex say of the job that they are of (`graph.rescaling.shapes_of`)."""

    @property
    def shared_sources(self) -> frozenset[OperatorId]:
        """Those whose readers may begin again one by one."""
        if self.config.failover_strategy != "region":
            return frozenset()
        return frozenset(operator for one in self.regions for operator, _ in one.readers)


def make_plan(job_id: str, graph: ExecutionGraph) -> JobPlan:
    """Raises GraphError for a graph without sources: it would never do or end anything."""
    job = graph.job
    source_vertices = {vertex.id for vertex in job.vertices if vertex.is_source}
    sources = tuple(task for task in graph.tasks if task.vertex in source_vertices)
    if not sources:
        raise GraphError(f"job '{job.name}' has no source")
    shapes = tuple(
        OperatorShape(
            operator.operator_id,
            operator.name,
            v.parallelism,
            v.max_parallelism,
            operator.uid,
            v.deal,
        )
        for v in job.vertices
        for operator in v.operators
    )
    names = {shape.operator: shape.name for shape in shapes}
    readers = {
        operator.operator_id: operator.name
        for vertex in job.vertices
        for operator in vertex.operators
        if operator.is_source
    }
    aligned = {
        operator.operator_id: AlignmentGroup(
            wanted.group,
            wanted.max_drift_ms,
            tuple(task for task in graph.tasks if task.vertex == vertex.id),
        )
        for vertex in job.vertices
        for operator in vertex.operators
        if operator.is_source
        and (strategy := getattr(operator.spec, "watermarks", None)) is not None
        and (wanted := getattr(strategy, "alignment", None)) is not None
    }
    irrevocable = tuple(
        operator.name
        for vertex in job.vertices
        for operator in vertex.operators
        if operator.is_sink
        and not getattr(getattr(operator.spec, "sink", None), "revocable", False)
    )
    unnamed = frozenset(
        operator.operator_id
        for vertex in job.vertices
        for operator in vertex.operators
        if not operator.named
    )
    caches = tuple(
        operator.name
        for vertex in job.vertices
        for operator in vertex.operators
        if hasattr(getattr(operator.spec, "sink", None), "cache_token")
    )
    vertices = {vertex.id: vertex for vertex in job.vertices}
    labels = {task: vertices[task.vertex].label(task.subtask) for task in graph.tasks}
    return JobPlan(
        job_id=job_id,
        job_name=job.name,
        config=job.config,
        tasks=graph.tasks,
        sources=sources,
        shapes=shapes,
        names=names,
        readers=readers,
        aligned=aligned,
        irrevocable=irrevocable,
        unnamed=unnamed,
        caches=caches,
        labels=labels,
        regions=regions_of(graph),
        edge_names=frozenset(edge_names(job).values()).union(*map(chained_names, job.vertices)),
        shape_of=shapes_of(job),
    )
