"""Figures of a job at moments, and what they say of the time between: a sliding window.

Totals grow since the attempt began, so two of them give exact means of the time between, whatever
was reported in between. A window holds figures of one attempt only, from `stabilization` after its
start on: what comes before is caches that fill and backlogs of the pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ..core.ids import VertexId


@dataclass(frozen=True)
class Totals:
    """Of one vertex, since the attempt began. `records`: taken in, over all subtasks; of a source,
    read. `busy_ms`: of each subtask. `held_ms`: held up by full outputs, over all subtasks.
    `backlog`: records that a source has not read yet, now; None: it does not know. `loads`: how
    records lately were distributed over the key groups (or as many runs of groups as there are
    numbers), and `busiest_share` what the busiest subtask got of them; None: not known."""

    records: int
    busy_ms: tuple[float, ...]
    held_ms: float = 0.0
    backlog: int | None = None
    loads: tuple[int, ...] | None = None
    busiest_share: float | None = None

    @property
    def parallelism(self) -> int:
        return len(self.busy_ms)


@dataclass(frozen=True)
class Sample:
    """`at_s`: by any clock that goes on; where it jumps, figures begin anew. `attempt`: greater
    with each start of the job. `edges`: records that the source of each edge sent on it, by the
    edge's id; those of a broadcast once."""

    at_s: float
    attempt: int
    vertices: Mapping[VertexId, Totals]
    edges: Mapping[int, int]


@dataclass(frozen=True)
class Means:
    """Of one vertex over a window. `rate`: records/s that it took in. `busy`, `busiest`, `held`:
    shares 0..1 of a subtask's time, the mean and the most. `growth`: of the backlog, records/s."""

    parallelism: int
    rate: float
    busy: float
    busiest: float
    held: float
    backlog: int | None
    growth: float
    loads: tuple[int, ...] | None
    busiest_share: float | None


@dataclass
class Window:
    """`span_s`: its length; `quiet_s`: after a start of the job, what does not count; `gap_s`: from
    one sample to the next, at most: beyond it the clock was set, or the machine was asleep, and of
    the time between nobody knows what it was.

    Invariant: samples are of one attempt and ascend in time, and so do all totals; the second one
    is younger than `span_s`, and none is more than `gap_s` behind the one before.
    """

    span_s: float
    quiet_s: float
    gap_s: float = float("inf")
    _samples: deque[Sample] = field(default_factory=deque)
    _began_s: float | None = None
    """When the attempt was first seen, or said to have begun."""
    _attempt: int | None = None

    def began(self, at_s: float, attempt: int) -> None:
        """A start of the job; figures of earlier ones are forgotten."""
        self._samples.clear()
        self._began_s, self._attempt = at_s, attempt

    def add(self, sample: Sample) -> None:
        """Samples of earlier attempts are dropped, and whatever else is not younger."""
        if self._attempt is not None and sample.attempt < self._attempt:
            return
        if self._attempt != sample.attempt:
            self.began(sample.at_s, sample.attempt)
        if sample.at_s < (self._began_s or 0.0) + self.quiet_s:
            return
        if self._samples:
            last = self._samples[-1]
            if sample.at_s <= last.at_s:
                return
            jumped = sample.at_s - last.at_s > self.gap_s
            if jumped or not _goes_on(last, sample):  # some tasks began again, alone
                self.began(sample.at_s, sample.attempt)
                return
        self._samples.append(sample)
        while len(self._samples) > 2 and self._samples[1].at_s <= sample.at_s - self.span_s:
            self._samples.popleft()

    @property
    def seconds(self) -> float:
        """The time that it has figures of."""
        return self._samples[-1].at_s - self._samples[0].at_s if self._samples else 0.0

    @property
    def is_full(self) -> bool:
        return self.seconds >= self.span_s

    @property
    def missing_s(self) -> float:
        """Until it is full, at least."""
        return max(0.0, self.span_s - self.seconds)

    def means(self) -> dict[VertexId, Means]:
        """Of vertices that both ends know. Empty while there are no two samples."""
        if len(self._samples) < 2:
            return {}
        first, last = self._samples[0], self._samples[-1]
        return {
            vertex: _means(first.vertices[vertex], totals, self.seconds)
            for vertex, totals in last.vertices.items()
            if vertex in first.vertices
        }

    def sent(self) -> dict[int, float]:
        """Records/s by edge."""
        if len(self._samples) < 2:
            return {}
        first, last = self._samples[0], self._samples[-1]
        return {
            edge: (count - first.edges[edge]) / self.seconds
            for edge, count in last.edges.items()
            if edge in first.edges
        }

    def validate(self) -> None:
        """Assert the invariants."""
        known = list(self._samples)
        assert all(sample.attempt == self._attempt for sample in known)
        assert all(0 < b.at_s - a.at_s <= self.gap_s for a, b in pairwise(known))
        assert all(_goes_on(a, b) for a, b in pairwise(known))
        assert len(known) < 3 or known[1].at_s > known[-1].at_s - self.span_s


def _goes_on(before: Sample, after: Sample) -> bool:
    """Whether no total fell, and no parallelism changed."""
    for vertex, totals in before.vertices.items():
        later = after.vertices.get(vertex)
        if later is None or later.parallelism != totals.parallelism:
            return False
        pairs = zip(totals.busy_ms, later.busy_ms, strict=True)
        if later.records < totals.records or any(b < a for a, b in pairs):
            return False
    return all(after.edges.get(edge, 0) >= count for edge, count in before.edges.items())


def _means(first: Totals, last: Totals, seconds: float) -> Means:
    spent = [(b - a) / 1000 for a, b in zip(first.busy_ms, last.busy_ms, strict=True)]
    subtasks = last.parallelism
    known = first.backlog is not None and last.backlog is not None
    return Means(
        parallelism=subtasks,
        rate=(last.records - first.records) / seconds,
        busy=min(1.0, sum(spent) / seconds / subtasks),
        busiest=min(1.0, max(spent) / seconds),
        held=min(1.0, max(0.0, last.held_ms - first.held_ms) / 1000 / seconds / subtasks),
        backlog=last.backlog,
        growth=((last.backlog or 0) - (first.backlog or 0)) / seconds if known else 0.0,
        loads=last.loads,
        busiest_share=last.busiest_share,
    )
