"""A queueing model of a job: what flows in each second, and how busy subtasks are with it.

Fluid: each second a vertex takes as much as came, its busiest subtask can do, and its outputs take
(from the sinks up, so what is too slow holds up all before it). The source's queue is outside, and
unbounded; those inside hold what a second of work makes, as credit-controlled channels hold little.
A subtask whose channel is full holds up whoever feeds it, so the busiest one limits its vertex.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...autoscaling.loads import Flow
from ...autoscaling.samples import Sample, Totals
from ...autoscaling.shape import Edge, Shape
from ...core.ids import VertexId
from ...state.key_groups import subtask_table

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Work:
    """Of one vertex: `rate`: records/s of a subtask that does nothing else; `makes`: records for
    each that it takes; `contention`: with each further subtask all do so much less (0.1: two do
    what 1.8 would); `weights`: load of each key group, None: even."""

    rate: float
    makes: float = 1.0
    contention: float = 0.0
    weights: tuple[float, ...] | None = None


@dataclass
class Station:
    """One vertex as it runs. `waiting`: records before it."""

    work: Work
    shares: Numbers
    """Of each subtask, of records that go to one of them; together 1."""
    waiting: Flow = field(default_factory=Flow)
    taken: float = 0.0
    """By all subtasks."""
    held_ms: float = 0.0
    busy_ms: Numbers = field(init=False)
    subtask_rate: float = field(init=False)

    def __post_init__(self) -> None:
        self.busy_ms = np.zeros(len(self.shares))
        self.subtask_rate = self.work.rate / (1 + self.work.contention * (len(self.shares) - 1))

    @property
    def queue(self) -> float:
        return self.waiting.taken(len(self.shares))

    def seconds(self, flow: Flow) -> float:
        """That its busiest subtask takes for so many records."""
        return (float(self.shares.max()) * flow.spread + flow.whole) / self.subtask_rate


class Pipeline:
    """One attempt after the other of a job with one source."""

    def __init__(
        self,
        shape: Shape,
        works: Mapping[VertexId, Work],
        parallelism: Mapping[VertexId, int],
        noise: np.random.Generator,
        noisy: float = 0.02,
        tells_loads: bool = False,
    ) -> None:
        """`noisy`: by what part busy times are wrong."""
        self.shape, self._works = shape, works
        self._outputs = {
            vertex.id: [edge for edge in shape.edges if edge.source == vertex.id]
            for vertex in shape.vertices
        }
        self._noise, self._noisy, self._tells_loads = noise, noisy, tells_loads
        self.parallelism: dict[VertexId, int] = {}
        self.backlog = 0.0
        self.attempt = 0
        self.start(parallelism)

    def start(self, parallelism: Mapping[VertexId, int]) -> None:
        """A new attempt: counters begin anew, and what was in flight is read again."""
        self.backlog += self._unread() if self.attempt else 0.0
        self.parallelism = dict(parallelism)
        self.stations = {
            vertex.id: self._station(vertex.id, self.parallelism[vertex.id])
            for vertex in self.shape.vertices
        }
        self._edges = dict.fromkeys((edge.id for edge in self.shape.edges), 0.0)
        self.attempt += 1

    def second(self, arriving: float, speed: float = 1.0) -> float:
        """Goes on by one. `speed`: of all subtasks, below 1 while caches fill. How many records the
        source read."""
        source = self.shape.vertices[0].id
        self.backlog += arriving
        self.stations[source].waiting = Flow(self.backlog)
        for vertex in reversed(self.shape.vertices):
            station = self.stations[vertex.id]
            before, queue = station.waiting, station.queue
            least_s = station.seconds(before) / speed
            can = queue / least_s if least_s else 0.0
            taken = min(can, queue, self._room(vertex.id))
            part = taken / queue if queue else 0.0
            station.waiting = before.times(1.0 - part)
            station.taken += taken
            wrong = 1.0 + self._noisy * self._noise.standard_normal(len(station.shares))
            each = part * (station.shares * before.spread + before.whole)
            spent = 1000 * each / (station.subtask_rate * speed) * wrong
            station.busy_ms += np.minimum(np.maximum(spent, 0.0), 1000.0)
            if taken < min(can, queue) * 0.999:  # held up
                station.held_ms += 1000 * len(station.shares) * (1 - taken / can)
            made = taken * station.work.makes
            for edge in self._outputs[vertex.id]:
                self._edges[edge.id] += made
                target = self.stations[edge.target]
                target.waiting = target.waiting.plus(_flow(edge, made))
        read = self.backlog - self.stations[source].queue
        self.backlog = self.stations[source].queue
        return read

    def sample(self, at_s: float) -> Sample:
        source = self.shape.vertices[0].id
        return Sample(
            at_s,
            self.attempt,
            {
                vertex: Totals(
                    round(station.taken),
                    tuple(station.busy_ms),
                    station.held_ms,
                    round(self.backlog) if vertex == source else None,
                    self._loads(vertex) if self._tells_loads else None,
                )
                for vertex, station in self.stations.items()
            },
            {edge: round(count) for edge, count in self._edges.items()},
        )

    def _room(self, vertex: VertexId) -> float:
        """How many records the vertex may take until what it feeds is full."""
        makes = self.stations[vertex].work.makes
        room = float("inf")
        for edge in self._outputs[vertex] if makes else ():
            target = self.stations[edge.target]
            left_s = max(0.0, 1.0 - target.seconds(target.waiting))
            room = min(room, left_s / target.seconds(_flow(edge, makes)))
        return room

    def _unread(self) -> float:
        """What is queued inside, in records of the source."""
        source, made = self.shape.vertices[0].id, self.flows(1.0)
        queued = [
            station.queue / each
            for vertex, station in self.stations.items()
            if vertex != source and (each := made[vertex].taken(self.parallelism[vertex]))
        ]
        return max(queued, default=0.0)

    def seconds_at(self, vertex: VertexId, parallelism: int, flow: Flow) -> float:
        """That the busiest of so many subtasks takes for that."""
        return self._station(vertex, parallelism).seconds(flow)

    def flows(self, rate: float) -> dict[VertexId, Flow]:
        """Records/s that each vertex gets, if `rate` comes to the source."""
        found = dict.fromkeys(self.parallelism, Flow())
        found[self.shape.vertices[0].id] = Flow(rate)
        for vertex in self.shape.vertices:
            for edge in self.shape.inputs[vertex.id]:
                taken = found[edge.source].taken(self.parallelism[edge.source])
                come = _flow(edge, taken * self._works[edge.source].makes)
                found[vertex.id] = found[vertex.id].plus(come)
        return found

    def handles(self, rate: float) -> bool:
        """Whether it keeps up with that, as it is."""
        flows = self.flows(rate)
        return all(self.stations[vertex].seconds(flow) <= 1.0 for vertex, flow in flows.items())

    def _station(self, vertex: VertexId, parallelism: int) -> Station:
        return Station(self._works[vertex], self._shares(vertex, parallelism))

    def _shares(self, vertex: VertexId, parallelism: int) -> Numbers:
        described = self.shape.by_id[vertex]
        portions = described.portions
        if portions is None:
            return np.full(parallelism, 1.0 / parallelism)
        if not described.keyed:  # partitions, one after the other
            counts = np.bincount(np.arange(portions) % parallelism, minlength=parallelism)
            return counts / portions
        weights = np.array(self._works[vertex].weights or (1.0,) * portions)
        table = subtask_table(parallelism, portions)
        each: Numbers = np.bincount(table, weights, minlength=parallelism) / weights.sum()
        return each

    def _loads(self, vertex: VertexId) -> tuple[int, ...] | None:
        weights = self._works[vertex].weights
        if not self.shape.by_id[vertex].keyed or weights is None:
            return None
        return tuple(round(weight * 1000) for weight in weights)


def _flow(edge: Edge, records: float) -> Flow:
    """So many that were sent, as they come."""
    return Flow(whole=records) if edge.ship == "broadcast" else Flow(records)
