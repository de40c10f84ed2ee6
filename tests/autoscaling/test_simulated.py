"""The autoscaler at the wheel of simulated jobs, under loads that are drawn: what it promises is
looked at from outside. A seed that fails is printed and replays."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.autoscaling.autoscaler import Autoscaler, _Group
from strom.autoscaling.loads import Flow
from strom.autoscaling.shape import Edge, Shape, Vertex, chain_of
from strom.autoscaling.verdicts import Reason
from strom.core.autoscaler_config import AutoscalerConfig
from strom.core.ids import VertexId
from strom.testing.autoscaling.curves import CURVES, drawn
from strom.testing.autoscaling.pipeline import Pipeline, Work
from strom.testing.autoscaling.promises import broken
from strom.testing.autoscaling.running import Setting, enough, oracle_seconds, simulate

CONFIG = AutoscalerConfig(
    metrics_window=timedelta(seconds=30),
    stabilization=timedelta(seconds=20),
    scale_down_interval=timedelta(seconds=120),
    catch_up=timedelta(seconds=150),
    restart_time=timedelta(seconds=15),
    interval=timedelta(seconds=5),
)

S, M, W = (VertexId(name) for name in "smw")


def shape_of(partitions: int | None = 12, groups: int = 128) -> Shape:
    return chain_of(
        [
            Vertex(S, "Source", partitions=partitions),
            Vertex(M, "Map"),
            Vertex(W, "Window", groups, keyed=True),
        ]
    )


WORKS = {S: Work(50_000), M: Work(20_000, 2.0), W: Work(30_000, 0.01)}


@st.composite
def simulations(draw: st.DrawFn) -> tuple[Setting, str, float]:
    groups = draw(st.sampled_from([16, 100, 128]))
    shape = shape_of(draw(st.sampled_from([None, 5, 12, 40])), groups)
    match draw(st.sampled_from(["chain", "forward", "two ways", "broadcast"])):
        case "forward":
            forward = (replace(shape.edges[0], ship="forward"), *shape.edges[1:])
            shape = Shape(shape.vertices, forward)
        case "two ways":
            shape = Shape(shape.vertices, (*shape.edges, Edge(2, S, W)))
        case "broadcast":
            shape = Shape(shape.vertices, (*shape.edges, Edge(2, S, W, "broadcast")))
    start = draw(st.integers(1, 5))
    skewed = draw(st.booleans())
    weights = tuple(1.0 / (1 + g % 17) for g in range(groups)) if skewed else None
    works = {
        S: Work(draw(st.sampled_from([20_000, 80_000]))),
        M: Work(draw(st.sampled_from([10_000, 40_000])), draw(st.sampled_from([0.1, 1.0, 3.0]))),
        W: Work(draw(st.sampled_from([20_000, 60_000])), 0.01, weights=weights),
    }
    setting = Setting(
        shape,
        works,
        {vertex.id: min(start, vertex.most) for vertex in shape.vertices},
        pause_s=draw(st.integers(1, 30)),
        seed=draw(st.integers(0, 2**32)),
        noisy=draw(st.sampled_from([0.0, 0.02, 0.1])),
        tells_loads=skewed and draw(st.booleans()),
        fails=draw(st.sampled_from([frozenset(), frozenset({0}), frozenset({1, 2})])),
    )
    return setting, draw(st.sampled_from(sorted(CURVES))), draw(st.floats(2_000, 40_000))


@settings(max_examples=examples(25), deadline=None)
@given(simulations())
def test_promises_are_kept_whatever_comes(drawn_one: tuple[Setting, str, float]) -> None:
    setting, name, rate = drawn_one
    curve = drawn(name, 1_800, rate, setting.seed)
    assert broken(simulate(setting, curve, CONFIG), CONFIG) == []


PLAIN = Setting(shape_of(), WORKS, {S: 1, M: 1, W: 1}, seed=3)


def test_a_day_costs_less_than_its_peak_and_lags_little() -> None:
    curve = drawn("day", 7_200, 60_000, 3)
    followed = simulate(PLAIN, curve, CONFIG)
    peak = replace(PLAIN, start=enough(PLAIN, float(curve.max())))
    mean = replace(PLAIN, start=enough(PLAIN, float(curve.mean())))
    assert broken(followed, CONFIG) == []
    # once it has what the night takes
    assert float(np.percentile(followed.lags()[600:], 99)) < 60
    assert float(np.percentile(simulate(mean, curve, None).lags(), 99)) > 300
    assert followed.subtask_seconds < simulate(peak, curve, None).subtask_seconds
    least = oracle_seconds(PLAIN, curve)
    assert least < followed.subtask_seconds < 2 * least


def test_copies_of_a_broadcast_are_not_by_key() -> None:
    """All subtasks get all of them, whatever keys the other records have, and what waits of them
    before a start is read once more, and not once for each copy."""
    weights = tuple(1.0 / (1 + group % 17) for group in range(128))
    shape = shape_of(None)
    shape = Shape(shape.vertices, (*shape.edges, Edge(2, S, W, "broadcast")))
    works = {S: Work(20_000), M: Work(10_000, 0.1), W: Work(60_000, 0.01, weights=weights)}
    setting = Setting(shape, works, {S: 3, M: 5, W: 128}, pause_s=1, seed=70_715, noisy=0.0)
    pipeline = Pipeline(shape, works, setting.start, np.random.default_rng(0))
    assert pipeline.handles(50_000)
    assert not pipeline.handles(60_001)  # of which everybody gets each
    pipeline.second(20_000)
    pipeline.start(setting.start)
    assert pipeline.backlog == pytest.approx(20_000)
    for start in (setting.start, {S: 1, M: 1, W: 1}):
        run = simulate(
            replace(setting, start=start), drawn("spikes", 1_800, 23_227, 70_715), CONFIG
        )
        assert broken(run, CONFIG) == []


def test_a_hot_key_does_not_take_subtasks_without_end() -> None:
    """One key group has half of all records, so more than some subtasks bring nothing. Where loads
    of key groups are told that is known, else it is seen."""
    weights = (100.0, *[100 / 127] * 127)
    works = {**WORKS, W: replace(WORKS[W], weights=weights)}
    curve = drawn("flat", 2_400, 40_000, 3)
    for told in (True, False):
        setting = replace(PLAIN, works=works, tells_loads=told)
        run = simulate(setting, curve, CONFIG)
        assert run.parallelism[W].max() <= (10 if told else 20)
        assert len({tuple(d.changes.items()) for d in run.decisions}) <= 4
        assert run.last is not None
        words = run.last.explain()
        assert ("one key group has 50 % of its records" if told else "did not help") in words


@pytest.mark.parametrize(
    ("mistake", "name", "said"),
    [
        ("no bounds", "overload", "may have"),
        ("hasty", "edge", "rescales for noise"),
        ("forgets backlogs", "step", "behind after"),
        ("always more", "flat", "more subtasks"),
    ],
)
def test_a_broken_autoscaler_breaks_its_promises(
    mistake: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG
    match mistake:
        case "no bounds":
            monkeypatch.setattr(Autoscaler, "bounds", lambda self, group, now: (1, now + 500))
        case "hasty":
            config = replace(
                CONFIG,
                scale_down_interval=timedelta(0),
                metrics_window=timedelta(seconds=5),
                stabilization=timedelta(0),
                utilization_min=0.69,
                utilization_max=0.71,
            )
        case "forgets backlogs":
            config = replace(
                CONFIG, catch_up=timedelta(0), target_utilization=0.97, utilization_max=0.98
            )
        case "always more":
            monkeypatch.setattr(_Group, "_up", lambda self: (Reason.UP, self._now + 1, ""))
            monkeypatch.setattr(_Group, "_above", lambda self, load, most: Flow(1e9))
    run = simulate(PLAIN, drawn(name, 2_400, 40_000, 3), config)
    assert any(said in line for line in broken(run, CONFIG))
