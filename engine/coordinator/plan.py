"""What the job master needs to know of a job's graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...checkpoint.manifest import Manifest, OperatorShape
from ...checkpoint.storage import Latest
from ...core.config import JobConfig
from ...core.errors import GraphError
from ...core.ids import CheckpointId, OperatorId, TaskId
from ..graph.model import ExecutionGraph


@dataclass(frozen=True)
class JobPlan:
    """One job, the same in all attempts. `sources`: the tasks that checkpoints are triggered at;
    `names`: of all operators, for messages; `irrevocable`: names of the sinks that cannot take back
    what they published."""

    job_id: str
    job_name: str
    config: JobConfig
    tasks: tuple[TaskId, ...]
    sources: tuple[TaskId, ...]
    shapes: tuple[OperatorShape, ...]
    names: Mapping[OperatorId, str]
    irrevocable: tuple[str, ...]
    labels: Mapping[TaskId, str]
    """`name (1/2)` of each task, for messages."""

    def why_unmatched(self, manifest: Manifest, missing: Sequence[OperatorId]) -> str:
        """The job lacks operators that the checkpoint has state of."""
        known = {shape.operator: shape.name for shape in manifest.operators}
        lost = ", ".join(f"'{known[o]}' ({o})" if o in known else o for o in missing)
        have = ", ".join(f"'{name}' ({o})" for o, name in sorted(self.names.items()))
        return (
            f"checkpoint {manifest.checkpoint_id} holds state of operators that the job lacks: "
            f"{lost}; it has {have}. Give operators the uid they had then"
        )

    def why_not_back_to(self, newest: int, manifest: Manifest | None, latest: Latest) -> str | None:
        """Checkpoint `newest`, the newest complete one, is unusable: why an older one, or none at
        all, would not give the right results either. None: it would."""
        known = {r.checkpoint_id: r.reason for r in latest.rejected}
        reason = known.get(CheckpointId(newest), "it is gone from the storage")
        lost = f"checkpoint {newest} cannot be restored: {reason}"
        if manifest is None:
            more = "".join(f"; nor can {n}: {why}" for n, why in known.items() if n != newest)
            return f"{lost}{more}. To begin anew, submit the job again"
        if not self.irrevocable:
            return None
        older = manifest.checkpoint_id
        sinks = ", ".join(f"'{name}'" for name in self.irrevocable)
        return (
            f"{lost}. Checkpoint {older} can, but {sinks} cannot take back what was published "
            f"since, so it would be published twice. If that is acceptable, submit the job again "
            f"with restore_from at the folder chk-{older}"
        )


def make_plan(job_id: str, graph: ExecutionGraph) -> JobPlan:
    """Raises GraphError for a graph without sources: it would never do or end anything."""
    job = graph.job
    source_vertices = {vertex.id for vertex in job.vertices if vertex.is_source}
    sources = tuple(task for task in graph.tasks if task.vertex in source_vertices)
    if not sources:
        raise GraphError(f"job '{job.name}' has no source")
    shapes = tuple(
        OperatorShape(operator.operator_id, operator.name, v.parallelism, v.max_parallelism)
        for v in job.vertices
        for operator in v.operators
    )
    names = {shape.operator: shape.name for shape in shapes}
    irrevocable = tuple(
        operator.name
        for vertex in job.vertices
        for operator in vertex.operators
        if operator.is_sink
        and not getattr(getattr(operator.spec, "sink", None), "revocable", False)
    )
    labels = {
        task: f"{vertex.name} ({task.subtask + 1}/{vertex.parallelism})"
        for task in graph.tasks
        for vertex in job.vertices
        if vertex.id == task.vertex
    }
    return JobPlan(
        job_id, job.name, job.config, graph.tasks, sources, shapes, names, irrevocable, labels
    )
