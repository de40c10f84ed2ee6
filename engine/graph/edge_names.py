"""Names of job edges that outlive a restart: a checkpoint says by them where records were on their
way.

An edge is named after the operator that emits into it, its output, and the operator and input that
read it; what follows them, as `#1`, tells edges apart that are alike in all that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ...core.ids import OperatorId
from .model import InnerEdge, JobGraph, JobVertex


def edge_names(job: JobGraph) -> Mapping[int, str]:
    """By edge id. Each name is of one edge."""
    emitters = {
        edge: operator.operator_id
        for vertex in job.vertices
        for operator in vertex.operators
        for edge in operator.outer
    }
    heads = {vertex.id: vertex.operators[0].operator_id for vertex in job.vertices}
    seen: Counter[str] = Counter()
    names: dict[int, str] = {}
    for edge in sorted(job.edges, key=lambda one: one.id):
        name = _name(emitters[edge.id], edge.tag, heads[edge.target], edge.port)
        names[edge.id] = f"{name}#{seen[name]}" if seen[name] else name
        seen[name] += 1
    return names


def chained_names(vertex: JobVertex) -> Mapping[str, InnerEdge]:
    """The connections within a chain, by what they would be called were they edges. At another
    parallelism an edge may have become one of these."""
    return {
        _name(
            operator.operator_id, inner.tag, vertex.operators[inner.target].operator_id, inner.port
        ): inner
        for operator in vertex.operators
        for inner in operator.inner
    }


def _name(source: str, tag: str | None, target: str, port: int) -> str:
    output = "" if tag is None else f"/{tag}"
    return f"{source}{output}>{target}:{port}"


def told(name: str, operators: Mapping[OperatorId, str]) -> str:
    """An edge's name for people. `operators`: their names, by id, as far as they are known.

    >>> told("5f>a1:0", {"5f": "Source: bids", "a1": "Count"})
    "'Source: bids' to 'Count' (5f>a1:0)"
    """
    source, _, target = name.rpartition(">")
    ids = source.partition("/")[0], target.partition(":")[0]
    return " to ".join(f"'{operators.get(OperatorId(one), one)}'" for one in ids) + f" ({name})"


def target_of(name: str) -> str:
    """The id of the operator that reads an edge of this name."""
    return name.rpartition(">")[2].partition(":")[0]
