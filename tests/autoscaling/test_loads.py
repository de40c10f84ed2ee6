"""What vertices have to handle and can, from totals at two moments."""

from __future__ import annotations

import pytest
from strom.autoscaling.capacity import Shares, even, least, utilization, wanted
from strom.autoscaling.loads import Flow, Load, loads_of
from strom.autoscaling.samples import Sample, Totals, Window
from strom.autoscaling.shape import Edge, Shape, Vertex
from strom.core.errors import ConfigurationError
from strom.core.ids import VertexId

A, B, C = VertexId("a"), VertexId("b"), VertexId("c")


def window_of(*samples: Sample, quiet_s: float = 0.0) -> Window:
    window = Window(60.0, quiet_s)
    for sample in samples:
        window.add(sample)
        window.validate()
    return window


def sample(at_s: float, totals: dict, edges: dict | None = None, attempt: int = 0) -> Sample:
    return Sample(at_s, attempt, totals, edges or {})


def test_rates_follow_selectivities_and_growing_backlogs_through_the_graph() -> None:
    # a reads 100/s of 150/s that come, and makes 2 of each; b takes these; c gets all of a's
    # records on each of its 2 subtasks and a tenth of b's
    shape = Shape(
        (Vertex(A, "a"), Vertex(B, "b"), Vertex(C, "c")),
        (Edge(0, A, B), Edge(1, A, C, "broadcast"), Edge(2, B, C)),
    )
    window = window_of(
        sample(
            0,
            {A: Totals(0, (0.0,), backlog=0), B: Totals(0, (0.0, 0.0)), C: Totals(0, (0.0, 0.0))},
            {0: 0, 1: 0, 2: 0},
        ),
        sample(
            10,
            {
                A: Totals(1000, (5000.0,), backlog=500),
                B: Totals(2000, (10_000.0, 2500.0)),
                C: Totals(2 * 1000 + 200, (2000.0, 2000.0)),
            },
            {0: 2000, 1: 1000, 2: 200},
        ),
    )
    loads = loads_of(shape, window, 100.0)
    assert loads[A].target == Flow(150.0)
    assert loads[A].extra == Flow(5.0)
    assert loads[A].true_rate == 200.0
    assert loads[B].target == Flow(300.0)
    assert loads[B].extra == Flow(10.0)
    assert loads[B].true_rate == 160.0  # 200/s in 1.25 busy seconds of a second
    assert loads[B].skew == 1.6
    assert loads[C].target == Flow(pytest.approx(30.0), 150.0)
    assert loads[C].target.taken(2) == pytest.approx(330.0)
    assert loads_of(shape, window, 0.0)[A].extra == Flow()


def test_a_source_without_backlog_is_held_up_by_what_is_too_slow() -> None:
    """And what is too slow without being busy does what is seen."""
    shape = Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, A, B),))
    window = window_of(
        sample(0, {A: Totals(0, (0.0,)), B: Totals(0, (0.0,))}, {0: 0}),
        sample(
            10, {A: Totals(1000, (1000.0,), held_ms=9000.0), B: Totals(1000, (2000.0,))}, {0: 1000}
        ),
    )
    loads = loads_of(shape, window, 600.0)
    assert loads[A].target.spread == pytest.approx(1000.0)
    assert loads[A].true_rate == 1000.0
    assert loads[B].target.spread == pytest.approx(1000.0)
    assert loads[B].true_rate == 100.0  # it waits for something: 500/s by its busy time


def test_a_window_has_figures_of_one_attempt_after_its_start() -> None:
    #   attempt 0 | quiet      | counts
    early, quiet, first, last = (sample(at, {A: Totals(at, (0.0,))}) for at in (0, 29, 30, 95))
    window = window_of(early, quiet, first, last, quiet_s=30.0)
    assert window.seconds == 65.0
    assert window.is_full
    window.add(sample(96, {A: Totals(5, (0.0,))}))  # a count fell: it began again, alone
    assert window.seconds == 0.0
    window.add(sample(130, {A: Totals(50, (0.0,))}))
    window.add(sample(140, {A: Totals(60, (0.0,))}))
    window.add(sample(140, {A: Totals(99, (0.0,))}))  # not younger
    assert (window.seconds, window.means()[A].rate) == (10.0, 1.0)
    window.began(150, attempt=2)
    window.add(sample(200, {A: Totals(70, (0.0,))}, attempt=1))  # of an earlier attempt
    assert window.means() == {}
    window.validate()


def load(vertex: Vertex, parallelism: int = 1, true_rate: float | None = 100.0, **more) -> Load:
    given = {"target": Flow(100.0), "extra": Flow(), "skew": 1.0, "busy": 1.0, "held": 0.0}
    return Load(vertex, parallelism, true_rate=true_rate, rate=100.0, **{**given, **more})


def test_portions_are_whole() -> None:
    keyed = Shares(load(Vertex(A, "a", key_groups=128, keyed=True)))
    assert [keyed.busiest(p) for p in (1, 64, 65, 127, 128)] == [
        1,
        2 / 128,
        2 / 128,
        2 / 128,
        1 / 128,
    ]
    source = Shares(load(Vertex(A, "a", partitions=4)))
    assert [source.busiest(p) for p in (1, 2, 3, 4, 9)] == [1, 1 / 2, 1 / 2, 1 / 4, 1 / 4]
    assert even(5, 128, 200) == 8
    assert even(5, None, 200) == even(5, 128, 7) == 5


def test_loads_of_key_groups_say_what_more_subtasks_bring() -> None:
    vertex = Vertex(A, "a", key_groups=4, keyed=True)
    shares = Shares(load(vertex, loads=(70, 10, 10, 10)))
    assert [shares.busiest(p) for p in (1, 2, 3)] == [pytest.approx(s) for s in (1, 0.8, 0.8)]
    assert shares.heaviest_portion == pytest.approx(0.7)
    hot = load(vertex, loads=(9940, 20, 20, 20), target=Flow(1000.0))
    assert least(hot, Shares(hot), hot.target, 1, 4) == 1  # nothing brings more than 1 %
    skewed = load(Vertex(A, "a"), 2, skew=1.5)
    assert Shares(skewed).busiest(2) == 0.75


def test_a_deal_by_load_counts_as_long_as_the_parallelism_stays() -> None:
    """With two subtasks of two key groups each one would have 80 % and not 70 %."""
    vertex = Vertex(A, "a", key_groups=4, keyed=True)
    dealt = Shares(load(vertex, 2, loads=(70, 10, 10, 10), busiest_share=0.7))
    assert [dealt.busiest(p) for p in (1, 2, 3)] == [pytest.approx(s) for s in (1, 0.7, 0.8)]


def test_what_comes_to_all_subtasks_is_not_divided() -> None:
    both = load(Vertex(A, "a"), target=Flow(300.0, 40.0))
    assert utilization(both, Shares(both), 5, both.target) == 1.0
    assert least(both, Shares(both), both.target, 1, 200) == 5
    assert utilization(load(Vertex(A, "a"), true_rate=None), Shares(both), 1, both.target) == 0.0
    assert wanted(both, 0.5, 60.0, 600.0) == Flow(pytest.approx(630.0), pytest.approx(84.0))


def test_vertices_with_forward_edges_between_them_are_one() -> None:
    shape = Shape(
        (Vertex(A, "a"), Vertex(B, "b"), Vertex(C, "c")),
        (Edge(0, A, B), Edge(1, B, C, "forward")),
    )
    assert [[v.id for v in group] for group in shape.together] == [[A], [B, C]]
    with pytest.raises(ConfigurationError, match="'b' feeds 'a'"):
        Shape((Vertex(A, "a"), Vertex(B, "b")), (Edge(0, B, A),))
