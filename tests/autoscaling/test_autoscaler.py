"""Decisions of scripted jobs: what goes in is said second by second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from strom.autoscaling.autoscaler import Autoscaler
from strom.autoscaling.samples import Sample, Totals
from strom.autoscaling.shape import Edge, Shape, Vertex
from strom.autoscaling.verdicts import Decision, Reason
from strom.core.autoscaler_config import AutoscalerConfig
from strom.core.errors import ConfigurationError
from strom.core.ids import VertexId

A, B = VertexId("a"), VertexId("b")

CONFIG = AutoscalerConfig(
    metrics_window=timedelta(seconds=60),
    stabilization=timedelta(seconds=30),
    scale_down_interval=timedelta(seconds=120),
    restart_time=timedelta(0),
    restart_tracking=False,
    scale_down_factor=1.0,
)


@dataclass
class Script:
    """Vertices that take `rates` records/s, whose subtasks are busy for parts of the time."""

    config: AutoscalerConfig
    shape: Shape
    at_s: float = 0.0
    attempt: int = 0
    parallelism: dict[VertexId, int] = field(default_factory=dict)
    backlog: int | None = None

    def __post_init__(self) -> None:
        self.scaler = Autoscaler(self.config, self.shape)
        self.parallelism = {v.id: self.parallelism.get(v.id, 1) for v in self.shape.vertices}
        self.begin()

    def begin(self) -> None:
        self.attempt += 1
        self.scaler.began(self.at_s, self.attempt)
        self._records = dict.fromkeys(self.parallelism, 0.0)
        self._busy = {v: [0.0] * p for v, p in self.parallelism.items()}

    def go(self, seconds: int, **vertices: tuple[float, float]) -> Decision:
        """By name: records/s, and the busy part of each subtask's time. The last decision."""
        for _ in range(seconds // 10):
            self.at_s += 10
            for name, (rate, busy) in vertices.items():
                vertex = VertexId(name)
                self._records[vertex] += 10 * rate
                self._busy[vertex] = [b + 10_000 * busy for b in self._busy[vertex]]
            decision = self.scaler.observe(self._sample())
            self.scaler.memory.validate()
        return decision

    def carry_out(self, decision: Decision, took_s: float = 10.0) -> None:
        self.scaler.rescaling(self.at_s, decision)
        self.at_s += took_s
        self.parallelism |= decision.changes
        self.begin()

    def _sample(self) -> Sample:
        first = self.shape.vertices[0].id
        totals: Mapping[VertexId, Totals] = {
            v: Totals(
                round(self._records[v]),
                tuple(self._busy[v]),
                backlog=self.backlog if v == first else None,
            )
            for v in self.parallelism
        }
        edges = {edge.id: totals[edge.target].records for edge in self.shape.edges}
        return Sample(self.at_s, self.attempt, totals, edges)


def one(config: AutoscalerConfig = CONFIG, parallelism: int = 1, **vertex) -> Script:
    return Script(config, Shape((Vertex(A, "Map", **vertex),), ()), parallelism={A: parallelism})


def test_more_is_had_at_once_and_says_why() -> None:
    script = one()
    script.backlog = 0
    waiting = script.go(80, a=(80.0, 0.98))
    assert waiting.changes == {}
    assert waiting.explain().splitlines() == [
        "waits: figures of 50 s are there, 60 s are needed",
        "Map: 1 -> 2: 80/s are to be handled, one subtask does 82/s: 98 % used, then 49 %",
    ]
    script.backlog = None
    decision = script.go(10, a=(80.0, 0.98))
    assert decision.changes == {A: 2}
    script.carry_out(decision)
    assert script.go(80, a=(80.0, 0.49)).waiting is not None
    assert script.go(10, a=(80.0, 0.49)).verdicts[0].reason is Reason.FITS


def test_fewer_are_had_when_they_would_have_done_for_long_and_as_many_as_then() -> None:
    script = one(parallelism=8)
    decision = script.go(90, a=(80.0, 0.1))
    assert decision.verdicts[0].reason is Reason.WAITS
    assert "2 would be enough, 120 s until then" in decision.explain()
    script.go(60, a=(240.0, 0.3))  # not above the lower bound, but 4 subtasks are needed
    decision = script.go(60, a=(80.0, 0.1))
    assert decision.changes == {A: 4}
    script.go(70, a=(560.0, 0.7))  # a break
    assert script.go(110, a=(80.0, 0.1)).changes == {}
    assert script.scaler.memory.slack[A][0][0] > 210


@pytest.mark.parametrize("load", [0.1, 0.6, 0.95])
def test_bounds_hold_of_steps_alone(load: float) -> None:
    below = one(replace(CONFIG, min_parallelism=4), parallelism=2).go(90, a=(80.0, load))
    assert set(below.changes.values()) <= {3}
    assert ("2 -> 3" in below.explain()) == (load == 0.95)
    assert ("or are not allowed" in below.explain()) == (load == 0.1)
    above = one(replace(CONFIG, max_parallelism=4), parallelism=8).go(90, a=(80.0, load))
    assert above.changes == {}


@pytest.mark.parametrize("mode", ["maximize-utilisation", "evenly-spread"])
def test_bounds(mode: str) -> None:
    config = replace(CONFIG, adjust_mode=mode, max_parallelism=6)
    assert one(config, key_groups=4, keyed=True).go(90, a=(10.0, 1.0)).changes == {A: 2}
    full = one(config, parallelism=4, key_groups=4, keyed=True).go(90, a=(10.0, 1.0))
    assert full.changes == {}
    assert "it has 4 key groups (max_parallelism)" in full.explain()
    most = one(config, parallelism=6).go(90, a=(10.0, 1.0))
    assert "6 subtasks are the most that it may have" in most.explain()
    few = one(config, parallelism=3, partitions=3).go(90, a=(10.0, 1.0))
    assert "there are 3 partitions to read" in few.explain()
    larger = one(config, parallelism=9).go(90, a=(10.0, 1.0))
    assert larger.changes == {}  # it may stay where somebody put it
    stays = one(replace(config, excluded=("Map",))).go(90, a=(10.0, 1.0))
    assert stays.changes == {}
    assert "it is excluded (job.autoscaler.vertex.exclude.ids)" in stays.explain()
    stepwise = one(replace(CONFIG, scale_up_factor=0.5), parallelism=4)
    stepwise.backlog = 100_000
    assert stepwise.go(90, a=(10.0, 1.0)).changes == {A: 6}


def test_all_vertices_get_what_they_need_at_once() -> None:
    """The second one never sees the load that the first one holds back."""
    shape = Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, A, B),))
    script = Script(CONFIG, shape)
    script.backlog = 0
    script.go(30, a=(100.0, 1.0), b=(200.0, 0.5))  # does not count yet
    for _ in range(5):
        script.backlog += 1000
        decision = script.go(10, a=(100.0, 1.0), b=(200.0, 0.5))
    assert decision.waiting is not None
    script.backlog += 1000
    decision = script.go(10, a=(100.0, 1.0), b=(200.0, 0.5))
    # 200/s come, of which b makes 400, and 7000 are behind
    assert decision.changes == {A: 3, B: 2}


def test_vertices_that_have_one_parallelism_change_together() -> None:
    shape = Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, A, B, "forward"),))
    assert Script(CONFIG, shape).go(90, a=(10.0, 0.1), b=(10.0, 0.95)).changes == {A: 2, B: 2}
    fixed = Shape((Vertex(A, "a", fixed="it is so"), Vertex(B, "b")), shape.edges)
    decision = Script(CONFIG, fixed).go(90, a=(10.0, 0.1), b=(10.0, 0.95))
    assert decision.changes == {}
    assert decision.explain().splitlines()[1] == "b: stays 1: it is so"


def test_what_did_not_help_is_not_done_again_for_an_hour() -> None:
    script = one()
    script.backlog = 10_000  # all that can be done is to be done
    decision = script.go(90, a=(100.0, 1.0))
    assert decision.changes == {A: 2}
    script.carry_out(decision)
    decision = script.go(90, a=(102.0, 1.0))
    assert decision.changes == {}
    assert (
        "more subtasks did not help the last time (2 % of what they should)" in decision.explain()
    )
    script.scaler.config = replace(CONFIG, effectiveness=False)
    assert script.go(10, a=(102.0, 1.0)).changes == {A: 4}
    script.scaler.config = CONFIG
    assert script.go(3600, a=(102.0, 1.0)).changes == {A: 4}


def test_nothing_is_made_smaller_while_a_source_is_behind() -> None:
    shape = Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, A, B),))
    script = Script(replace(CONFIG, catch_up=timedelta(hours=10)), shape, parallelism={B: 8})
    script.backlog = 100_000
    behind = script.go(400, a=(100.0, 0.95), b=(100.0, 0.1))
    assert [verdict.reason for verdict in behind.verdicts] == [Reason.FITS, Reason.FITS]
    script.backlog = 10
    script.go(60, a=(100.0, 0.65), b=(100.0, 0.1))
    assert script.go(130, a=(100.0, 0.65), b=(100.0, 0.1)).changes == {B: 2}


def test_a_rescale_that_fails_is_tried_later_and_later() -> None:
    script = one()
    script.go(80, a=(100.0, 1.0))
    for pause in (30, 60, 120):
        decision = script.go(10, a=(100.0, 1.0))
        assert decision.changes == {A: 2}
        script.scaler.rescaling(script.at_s, decision)
        assert "the job is being rescaled" in script.go(10, a=(100.0, 1.0)).explain()
        script.scaler.failed(script.at_s, "there are no slots")
        waiting = script.go(pause - 10, a=(100.0, 1.0))
        assert (
            waiting.waiting == "the last rescale failed (there are no slots), 10 s until the next"
        )
        assert waiting.changes == {}


def test_what_rescales_take_is_learnt() -> None:
    config = replace(CONFIG, restart_tracking=True, restart_time=timedelta(seconds=7))
    script = one(config)
    assert script.scaler.restart_s() == 7
    script.carry_out(script.go(90, a=(100.0, 1.0)), took_s=25)
    assert script.scaler.restart_s() == 25
    script.carry_out(script.go(90, a=(300.0, 1.0)), took_s=1000)
    assert script.scaler.restart_s() == 300  # the limit


def test_where_nothing_comes_there_is_one_subtask_unless_something_should() -> None:
    assert one(parallelism=4).go(300, a=(0.0, 0.0)).changes == {A: 1}
    scaler = Autoscaler(CONFIG, Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, A, B),)))
    scaler.began(0, 0)
    for at_s in (30, 70, 100):
        totals = {A: Totals(at_s, (at_s * 500.0,)), B: Totals(0, (0.0, 0.0))}
        decision = scaler.observe(Sample(at_s, 0, totals, {0: at_s}))
    assert decision.explain().splitlines()[1] == (
        "b: stays 2: nothing came to it, though something should"
    )


def test_settings_that_do_not_fit_together_are_refused() -> None:
    for wrong in (
        {"utilization_min": 0.8},
        {"utilization_max": 1.5},
        {"min_parallelism": 9, "max_parallelism": 8},
        {"scale_down_factor": 1.5},
        {"adjust_mode": "any"},
        {"metrics_window": timedelta(0)},
    ):
        with pytest.raises(ConfigurationError, match="autoscaler"):
            AutoscalerConfig(**wrong)


@pytest.mark.parametrize("parallelism", [3, 8])
def test_what_was_seen_before_a_start_does_not_count_for_fewer(parallelism: int) -> None:
    """A failure restarts the job, or somebody rescales it by hand, while it would have had fewer
    subtasks soon."""
    script = one(parallelism=8)
    script.go(170, a=(80.0, 0.1))
    assert script.scaler.memory.slack[A]
    script.parallelism = {A: parallelism}
    script.begin()
    decision = script.go(100, a=(80.0, 0.8 / parallelism))
    (verdict,) = decision.verdicts
    assert (verdict.reason, verdict.before, verdict.after) == (Reason.WAITS, *[parallelism] * 2)
    assert script.scaler.memory.slack[A][0][0] > 170


def test_fewer_that_could_not_be_had_are_tried_again_as_more_are() -> None:
    """And what was to be handled meanwhile counts."""
    script = one(parallelism=8)
    decision = script.go(210, a=(80.0, 0.1))
    assert decision.changes == {A: 2}
    script.scaler.rescaling(script.at_s, decision)
    script.scaler.failed(script.at_s, "the checkpoint failed")
    assert script.go(20, a=(80.0, 0.1)).changes == {}
    assert script.go(10, a=(80.0, 0.1)).changes == {A: 2}
    script.scaler.rescaling(script.at_s, decision)
    script.scaler.failed(script.at_s, "the checkpoint failed")
    assert script.go(50, a=(240.0, 0.3)).changes == {}
    assert script.go(10, a=(80.0, 0.1)).changes == {A: 4}


def test_where_the_clock_jumps_figures_begin_anew() -> None:
    """It was set, or the machine was asleep: a load of nothing for that time is none."""
    script = one(parallelism=8)
    script.go(150, a=(240.0, 0.3))  # 4 would be enough
    script.at_s += 3000
    decision = script.go(10, a=(240.0, 0.3))
    assert decision.waiting == "figures of 0 s are there, 60 s are needed"
    assert script.go(100, a=(240.0, 0.3)).verdicts[0].reason is Reason.WAITS
    assert script.go(110, a=(240.0, 0.3)).changes == {A: 4}


@pytest.mark.parametrize(
    ("factor", "start", "most"), [(0.5, 1, 2), (0.5, 4, 6), (0.1, 10, 11), (0.0, 2, 2)]
)
def test_a_part_of_a_subtask_is_one_in_a_step(factor: float, start: int, most: int) -> None:
    script = one(replace(CONFIG, scale_up_factor=factor), parallelism=start)
    script.backlog = 1_000_000
    assert script.go(90, a=(10.0, 1.0)).changes == ({A: most} if most > start else {})


@pytest.mark.parametrize(("factor", "least"), [(0.7, 3), (0.6, 4), (1.0, 1), (0.0, 10)])
def test_so_many_subtasks_stay_in_a_step(factor: float, least: int) -> None:
    script = one(replace(CONFIG, scale_down_factor=factor), parallelism=10)
    assert script.go(210, a=(1.0, 0.01)).changes == ({A: least} if least < 10 else {})


def test_where_nothing_gets_through_nothing_is_made_smaller() -> None:
    """A function has waited for minutes: of what would come nobody knows."""
    shape = Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, A, B),))
    scaler = Autoscaler(replace(CONFIG, scale_down_interval=timedelta(0)), shape)
    scaler.began(0, 0)
    for at_s in (30, 70, 100):
        source = Totals(500, (10.0, 10.0), held_ms=at_s * 1900.0)
        decision = scaler.observe(
            Sample(at_s, 0, {A: source, B: Totals(400, (9.0, 9.0, 9.0))}, {0: 400})
        )
    assert decision.changes == {}
    assert decision.explain().splitlines() == [
        "a: stays 2: what would come is not known: nothing gets through",
        "b: stays 3: what would come is not known: nothing gets through",
    ]
