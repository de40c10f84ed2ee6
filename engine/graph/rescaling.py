"""A job's graph at another parallelism, as it was planned, without the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from ...core.errors import GraphError
from ...core.ids import EVEN, Deal, VertexId
from .execution import build_execution_graph
from .model import Forward, Global, JobEdge, JobGraph, JobVertex

Width = int | Sequence[int]
"""Of a vertex: its parallelism; where key groups are not dealt evenly, the deal, as a list if it
was read from JSON."""

Widths = Mapping[str, Width]
"""Of each vertex, by its id as text."""


def rescaled(job: JobGraph, parallelism: int) -> JobGraph:
    """All vertices that have the job's own parallelism get another; those that were given one of
    their own keep it. GraphError where that cannot be: a plan for one subtask relies on there being
    one, and nobody gets more subtasks than key groups."""
    before = job.config.parallelism
    if parallelism == before:
        raise GraphError(f"job '{job.name}' has the parallelism {before} already")
    return _spread(job, job, parallelism)


def moved(planned: JobGraph, now: JobGraph, wanted: int | Mapping[str, int]) -> JobGraph:
    """The job that runs as `now` at another parallelism. `planned`: as its program made it.
    `wanted`: of all vertices without one of their own, or by the name or uid of an operator; with
    an operator go those that are chained to it, and those that it is connected to one to one.
    GraphError as of `rescaled`, and for a name that no operator or several have."""
    widths = chosen(planned, wanted)
    _check(planned, widths)
    return _with(planned, now, widths)


def chosen(planned: JobGraph, wanted: int | Mapping[str, int]) -> dict[VertexId, int]:
    """The vertices that get another parallelism, and which, as of `moved`."""
    if isinstance(wanted, int):
        return _own_spread(planned, wanted)
    if not wanted:
        raise GraphError("a rescale names at least one operator")
    groups, given = _groups(planned), dict[VertexId, tuple[str, int]]()
    for name, parallelism in wanted.items():
        for vertex in groups[_named(planned, name).id]:
            first, before = given.setdefault(vertex, (name, parallelism))
            if before != parallelism:
                raise GraphError(
                    f"'{first}' and '{name}' are connected one to one, and have one parallelism: "
                    f"not {before} and {parallelism}"
                )
    return {vertex: parallelism for vertex, (_, parallelism) in given.items()}


def dealt(planned: JobGraph, now: JobGraph, deals: Mapping[VertexId, Deal]) -> JobGraph:
    """`now` with other deals of as many subtasks. GraphError where the sides of a forward edge
    would differ."""
    found = {vertex.id: vertex.parallelism for vertex in now.vertices}
    assert all(len(deal) in (0, found[vertex]) for vertex, deal in deals.items()), deals
    return _with(planned, now, {vertex: deal or found[vertex] for vertex, deal in deals.items()})


def together(job: JobGraph) -> list[tuple[JobVertex, ...]]:
    """The vertices by who shares key groups with whom: what a forward edge connects goes on with
    its keys where they are. In order of the first of each."""
    groups = _groups(job)
    found: dict[tuple[frozenset[VertexId], int], list[JobVertex]] = {}
    for vertex in job.vertices:
        found.setdefault((groups[vertex.id], vertex.max_parallelism), []).append(vertex)
    return [tuple(group) for group in found.values()]


def limited(planned: JobGraph, wanted: JobGraph, most: int) -> JobGraph:
    """`wanted` with no more subtasks than `most` of each vertex that the program gave no
    parallelism of its own. GraphError where that cannot be."""
    own = _own_widths(planned, wanted)
    less = {vertex: most for vertex, parallelism in own.items() if parallelism > most}
    _check(planned, less)
    return _with(planned, wanted, less)


def limited_widths(planned: JobGraph, wanted: JobGraph, most: int) -> Mapping[str, int]:
    """The parallelisms of `limited`."""
    own = _own_widths(planned, wanted)
    less = {str(vertex): min(parallelism, most) for vertex, parallelism in own.items()}
    return {**parallelisms_of(wanted), **less}


def widest(planned: JobGraph, job: JobGraph) -> int:
    """The least that `limited` changes nothing by; 0: it never does."""
    return max(_own_widths(planned, job).values(), default=0)


def _own_widths(planned: JobGraph, job: JobGraph) -> dict[VertexId, int]:
    """Of the vertices that were planned at the job's own parallelism."""
    pairs = zip(planned.vertices, job.vertices, strict=True)
    own = planned.config.parallelism
    return {new.id: new.parallelism for old, new in pairs if old.parallelism == own}


def parallelisms_of(job: JobGraph) -> dict[str, int]:
    """Of its vertices, by their ids as text."""
    return {str(vertex.id): vertex.parallelism for vertex in job.vertices}


def widths_of(job: JobGraph) -> dict[str, Width]:
    """What `with_widths` makes the same of."""
    return {str(vertex.id): vertex.deal or vertex.parallelism for vertex in job.vertices}


def with_widths(planned: JobGraph, widths: Widths) -> JobGraph:
    """The job as it was planned, at what it has come to. What they do not name stays."""
    known = {v.id: widths[str(v.id)] for v in planned.vertices if str(v.id) in widths}
    return _with(planned, planned, known)


def kept_widths(planned: JobGraph) -> Mapping[VertexId, str]:
    """Why vertices keep the parallelism that they have, where it is to follow a load; those that
    are not in it need not."""
    own = planned.config.parallelism
    single = {edge.target for edge in planned.edges if isinstance(edge.partitioner, Global)}
    why = {}
    for vertex in planned.vertices:
        if vertex.id in single:
            why[vertex.id] = "all of its records go to one subtask"
        elif vertex.parallelism != own:
            why[vertex.id] = "the program gave it a parallelism of its own"
        elif own == 1:
            why[vertex.id] = "it was planned for the parallelism 1, and its plan may rely on it"
    return why


def shape_of(job: JobGraph) -> str:
    """Tells graphs of one job apart.

    >>> from strom.core.config import JobConfig
    >>> one = JobVertex(VertexId("a"), "one", (), 2, 128)
    >>> shape_of(JobGraph("job", (one, replace(one, id="b", parallelism=3)), (), JobConfig()))
    '2,3'
    """
    return _shape(job.vertices)


def shapes_of(job: JobGraph) -> dict[VertexId, str]:
    """Of each vertex the shape of all that edges connect it with: tasks that exchange records, and
    have different ones, cannot run together.

    >>> from strom.core.config import JobConfig
    >>> one = JobVertex(VertexId("a"), "one", (), 2, 128)
    >>> shapes_of(JobGraph("job", (one, replace(one, id="b", parallelism=3)), (), JobConfig()))
    {'a': '2', 'b': '3'}
    """
    group = _joined(job, job.edges)
    return {
        vertex.id: _shape(one for one in job.vertices if one.id in group[vertex.id])
        for vertex in job.vertices
    }


def _shape(vertices: Iterable[JobVertex]) -> str:
    return ",".join(f"{vertex.parallelism}{_short(vertex.deal)}" for vertex in vertices)


def _short(deal: Deal) -> str:
    """There may be thousands of subtasks, and each task has this text."""
    if not deal:
        return ""
    return f"#{blake2b(repr(tuple(deal)).encode(), digest_size=8).hexdigest()}"


def _spread(planned: JobGraph, now: JobGraph, parallelism: int) -> JobGraph:
    widths = _own_spread(planned, parallelism)
    _check(planned, widths)
    return _with(planned, now, widths)


def _own_spread(planned: JobGraph, parallelism: int) -> dict[VertexId, int]:
    """To all vertices that were planned at the job's own parallelism."""
    if parallelism < 1:
        raise GraphError(f"a parallelism is at least 1, is {parallelism}")
    before = planned.config.parallelism
    if before == 1 and parallelism > 1:
        raise GraphError(
            f"job '{planned.name}' was planned for the parallelism 1, and its plan may rely on it: "
            "stop it with a savepoint, and run its program from that at another parallelism"
        )
    found = [vertex.id for vertex in planned.vertices if vertex.parallelism == before]
    if not found:
        raise GraphError(
            f"no operator of job '{planned.name}' has the job's parallelism {before}: each was "
            "given one of its own by the program"
        )
    return dict.fromkeys(found, parallelism)


def _check(planned: JobGraph, widths: Mapping[VertexId, int]) -> None:
    for vertex in planned.vertices:
        parallelism = widths.get(vertex.id, vertex.parallelism)
        if parallelism < 1:
            raise GraphError(f"'{vertex.name}': a parallelism is at least 1, is {parallelism}")
        if parallelism > vertex.max_parallelism:
            raise GraphError(
                f"'{vertex.name}' has {vertex.max_parallelism} key groups (max_parallelism): it "
                f"cannot have the parallelism {parallelism}"
            )
        if vertex.parallelism == 1 < parallelism:
            raise GraphError(
                f"'{vertex.name}' was planned for the parallelism 1, and its plan may rely on it: "
                "stop the job with a savepoint, and run its program from that at another"
            )


def _with(planned: JobGraph, now: JobGraph, widths: Mapping[VertexId, Width]) -> JobGraph:
    """The job has the parallelism that all have that were planned to have the job's; while they
    differ, the one it had."""
    vertices = tuple(
        _at(vertex, widths[vertex.id]) if vertex.id in widths else vertex for vertex in now.vertices
    )
    own = {
        new.parallelism
        for old, new in zip(planned.vertices, vertices, strict=True)
        if old.parallelism == planned.config.parallelism
    }
    parallelism = own.pop() if len(own) == 1 else now.config.parallelism
    config = replace(
        now.config,
        parallelism=parallelism,
        max_parallelism=max(now.config.max_parallelism, parallelism),
    )
    made = replace(now, vertices=vertices, config=config)
    build_execution_graph(made)  # raises where both sides of an edge need one parallelism
    return made


def _at(vertex: JobVertex, width: Width) -> JobVertex:
    if isinstance(width, int):
        return replace(vertex, parallelism=width, deal=EVEN)
    return replace(vertex, parallelism=len(width), deal=tuple(width))


def _named(job: JobGraph, name: str) -> JobVertex:
    found = [v for v in job.vertices if name == v.name or any(_is(o, name) for o in v.operators)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"'{o.name}'" for v in job.vertices for o in v.operators)
    if not found:
        raise GraphError(f"job '{job.name}' has no operator '{name}': it has {names}")
    raise GraphError(
        f"job '{job.name}' has several operators '{name}' that are not chained: name one by its uid"
    )


def _is(operator: object, name: str) -> bool:
    known = (getattr(operator, attribute) for attribute in ("uid", "name", "operator_id"))
    return name in [str(one) for one in known if one is not None]


def _groups(job: JobGraph) -> dict[VertexId, frozenset[VertexId]]:
    """Of each vertex those that have its parallelism, as forward edges connect them."""
    return _joined(job, (edge for edge in job.edges if isinstance(edge.partitioner, Forward)))


def _joined(job: JobGraph, edges: Iterable[JobEdge]) -> dict[VertexId, frozenset[VertexId]]:
    """Of each vertex those that these edges connect it with, itself among them."""
    group = {vertex.id: frozenset({vertex.id}) for vertex in job.vertices}
    for edge in edges:
        joined = group[edge.source] | group[edge.target]
        group.update(_each(joined, joined))
    return group


def _each(
    vertices: Iterable[VertexId], group: frozenset[VertexId]
) -> dict[VertexId, frozenset[VertexId]]:
    return dict.fromkeys(vertices, group)
