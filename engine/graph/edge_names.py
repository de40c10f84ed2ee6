"""Names of job edges that outlive a restart: a checkpoint says by them where records were on their
way.

An edge is named after the operator that emits into it, its output, and the operator and input that
read it; what follows them, as `#1`, tells edges apart that are alike in all that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .model import JobGraph


def edge_names(job: JobGraph) -> Mapping[int, str]:
    """By edge id. Each name is of one edge."""
    emitters = {
        edge: operator.operator_id
        for vertex in job.vertices
        for operator in vertex.operators
        for edge in operator.outer
    }
    seen: Counter[str] = Counter()
    names: dict[int, str] = {}
    for edge in sorted(job.edges, key=lambda one: one.id):
        output = "" if edge.tag is None else f"/{edge.tag}"
        target = job.vertex(edge.target).operators[0].operator_id
        name = f"{emitters[edge.id]}{output}>{target}:{edge.port}"
        names[edge.id] = f"{name}#{seen[name]}" if seen[name] else name
        seen[name] += 1
    return names


def target_of(name: str) -> str:
    """The id of the operator that reads an edge of this name."""
    return name.rpartition(">")[2].partition(":")[0]
