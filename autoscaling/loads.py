"""What each vertex has to handle, and what one of its subtasks can do.

DS2's (Kalavri et al., OSDI 2018): a subtask that was busy for a part of the time would have done
proportionally more if it had been busy all the time (its *true* rate); what comes to the sources is
followed through the graph by how many records each vertex made of one (its selectivity). So one
look at all vertices says what all of them need, also where one holds up the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..core.ids import VertexId
from .samples import Means, Window
from .shape import Shape, Vertex

LEAST_BUSY: Final = 0.001
"""A share of its time that a subtask is busy, below which it says nothing of its true rate."""

LEAST_SKEWED: Final = 0.1
"""The busiest subtask's share, below which differences between subtasks are noise."""

SEEN_AT_WORK: Final = 0.15
"""By so much the true rate may be above what is observed while a vertex does all it can."""

BEHIND_S: Final = 30.0
"""A source that is so far behind does all it can, unless it is held up."""

HELD: Final = 0.5
"""The share of its time that a vertex is held up, if what it feeds is what is too slow."""

NOT_HELD: Final = 0.1


@dataclass(frozen=True)
class Flow:
    """Records/s to a vertex: each of `spread` goes to one subtask, each of `whole` to all."""

    spread: float = 0.0
    whole: float = 0.0

    def taken(self, parallelism: int) -> float:
        """By all subtasks together."""
        return self.spread + self.whole * parallelism

    def times(self, factor: float) -> Flow:
        return Flow(self.spread * factor, self.whole * factor)

    def plus(self, other: Flow) -> Flow:
        return Flow(self.spread + other.spread, self.whole + other.whole)


@dataclass(frozen=True)
class Load:
    """Of one vertex. `target`: what comes, or would come if nothing were held up. `extra`: what is
    to be handled besides, to work off backlogs in time. `true_rate`: records/s that one subtask
    does when it is busy all the time; None: it did too little to say. `skew`: the busiest subtask's
    work over the mean one's, at least 1. `behind_s`: of a source, its backlog in seconds of what
    comes."""

    vertex: Vertex
    parallelism: int
    target: Flow
    extra: Flow
    true_rate: float | None
    skew: float
    busy: float
    held: float
    rate: float
    behind_s: float = 0.0
    loads: tuple[int, ...] | None = None
    busiest_share: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether it took nothing, and was held up: what would come nobody knows."""
        return self.rate <= 0 and self.held > HELD


def loads_of(shape: Shape, window: Window, catch_up_s: float) -> dict[VertexId, Load]:
    """In the order of the shape; without vertices that the window has no figures of.
    `catch_up_s`: in which backlogs are to be worked off; 0: they do not count."""
    means, sent = window.means(), window.sent()
    found: dict[VertexId, Load] = {}
    for vertex in shape.vertices:
        if vertex.id not in means:
            continue
        mine = means[vertex.id]
        if shape.inputs[vertex.id]:
            target, extra = _from_inputs(vertex, shape, found, means, sent)
        else:
            target, extra = _from_outside(mine, catch_up_s)
        behind_s = (mine.backlog or 0) / max(target.spread, 1.0)
        found[vertex.id] = Load(
            vertex,
            mine.parallelism,
            target,
            extra,
            _true_rate(vertex, shape, means, behind_s),
            mine.busiest / mine.busy if mine.busiest >= LEAST_SKEWED else 1.0,
            mine.busy,
            mine.held,
            mine.rate,
            behind_s,
            mine.loads,
            mine.busiest_share,
        )
    return found


def _from_outside(mine: Means, catch_up_s: float) -> tuple[Flow, Flow]:
    """Of a source: what it read, and by what its backlog grew. One that knows no backlog would have
    read on while it was held up."""
    if mine.backlog is None:
        return Flow(mine.rate / max(0.01, 1.0 - mine.held)), Flow()
    arriving = max(0.0, mine.rate + mine.growth)
    return Flow(arriving), Flow(mine.backlog / catch_up_s if catch_up_s else 0.0)


def _from_inputs(
    vertex: Vertex,
    shape: Shape,
    found: Mapping[VertexId, Load],
    means: Mapping[VertexId, Means],
    sent: Mapping[int, float],
) -> tuple[Flow, Flow]:
    target, extra = Flow(), Flow()
    for edge in shape.inputs[vertex.id]:
        flowing, before = sent.get(edge.id, 0.0), found.get(edge.source)
        if before is None or means[edge.source].rate <= 0:
            come, more = flowing, 0.0  # what it makes of a record is not known
        else:
            selectivity = flowing / means[edge.source].rate
            come = before.target.taken(before.parallelism) * selectivity
            more = before.extra.taken(before.parallelism) * selectivity
        if edge.ship == "broadcast":
            target, extra = target.plus(Flow(whole=come)), extra.plus(Flow(whole=more))
        else:
            target, extra = target.plus(Flow(come)), extra.plus(Flow(more))
    return target, extra


def _true_rate(
    vertex: Vertex, shape: Shape, means: Mapping[VertexId, Means], behind_s: float
) -> float | None:
    """Where a vertex does all it can and is not busy all the time (it waits for something else),
    what it does is what it can do."""
    mine = means[vertex.id]
    if mine.rate <= 0 or mine.busy < LEAST_BUSY:
        return None
    by_time = mine.rate / (mine.parallelism * mine.busy)
    observed = mine.rate / mine.parallelism * max(1.0, mine.busiest / mine.busy)
    limits = mine.held < NOT_HELD and (
        behind_s > BEHIND_S
        if not shape.inputs[vertex.id]
        else any(
            _only_held_by(vertex, edge.source, shape, means) for edge in shape.inputs[vertex.id]
        )
    )
    return observed if limits and by_time > observed * (1 + SEEN_AT_WORK) else by_time


def _only_held_by(
    vertex: Vertex, source: VertexId, shape: Shape, means: Mapping[VertexId, Means]
) -> bool:
    """Whether the vertex is what holds up another one."""
    targets = {edge.target for edge in shape.edges if edge.source == source}
    return targets == {vertex.id} and source in means and means[source].held > HELD
