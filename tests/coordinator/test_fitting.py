"""What has room in a cluster: never more than there is, and as much as there is of one kind."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from strom.core.config import JobConfig, SlotResources
from strom.engine.coordinator.fitting import fits, greatest, slots_at
from strom.engine.graph.model import JobGraph
from strom.engine.graph.rescaling import limited
from strom.engine.graph.slots import bundles_of

NODES = st.lists(
    st.fixed_dictionaries({"CPU": st.integers(0, 8)}, optional={"GPU": st.sampled_from([0.5, 1])}),
    max_size=4,
)
BUNDLES = st.fixed_dictionaries(
    {"CPU": st.sampled_from([0.25, 1, 2, 3])}, optional={"GPU": st.sampled_from([0.25, 1])}
)


def by_trying(bundles: list[dict[str, float]], nodes: list[dict[str, float]]) -> bool:
    """Whether there is any way to place them."""
    if not bundles:
        return True
    first, *rest = bundles
    for i, node in enumerate(nodes):
        left = {name: amount - first.get(name, 0.0) for name, amount in node.items()}
        if first.keys() <= node.keys() and min(left.values()) >= -1e-9:
            others = [*nodes[:i], left, *nodes[i + 1 :]]
            if by_trying(rest, others):
                return True
    return False


@given(NODES, BUNDLES, st.integers(1, 3), st.integers(0, 6))
def test_of_one_kind_as_many_as_there_is_room_for(
    nodes: Any, bundle: Any, least: int, more: int
) -> None:
    most = least + more
    found = greatest(lambda p: [(bundle, p)], least, most, nodes)
    possible = [p for p in range(least, most + 1) if by_trying([bundle] * p, nodes)]
    assert found == max(possible, default=None)


@given(NODES, BUNDLES, BUNDLES, st.integers(0, 3), st.integers(0, 2))
def test_of_several_kinds_never_more_than_there_is_room_for(
    nodes: Any, one: Any, other: Any, ones: int, others: int
) -> None:
    if fits([(one, ones), (other, others)], nodes):
        assert by_trying([one] * ones + [other] * others, nodes)


@given(NODES, BUNDLES, BUNDLES, st.integers(1, 2), st.integers(0, 2))
def test_it_is_the_greatest_that_fits(
    nodes: Any, one: Any, other: Any, least: int, more: int
) -> None:
    most = least + more

    def at(p: int) -> list[tuple[dict[str, float], int]]:
        return [(one, p), (other, p)]

    found = greatest(at, least, most, nodes)
    assert not any(fits(at(p), nodes) for p in range((found or least - 1) + 1, most + 1))
    assert found is None or (least <= found <= most and fits(at(found), nodes))


def test_great_slots_are_not_shut_out_by_small_ones() -> None:
    assert fits([({"CPU": 1.0}, 2), ({"CPU": 4.0}, 1)], [{"CPU": 4.0}, {"CPU": 2.0}])
    assert not fits([({"CPU": 3.0}, 2)], [{"CPU": 4.0}, {"CPU": 2.0}]), "6 CPUs, but on two nodes"
    assert fits([({"CPU": 0.1}, 10)], [{"CPU": 1.0}])
    assert fits([({}, 5)], [{}]), "what takes nothing"
    assert not fits([({}, 1)], [])


def test_what_a_job_takes_at_a_parallelism(graph: Any) -> None:
    """The same as its graph, and what it has is not taken twice."""
    job: JobGraph = graph().job
    heavy = replace(job.vertices[1], slot_sharing_group="heavy", parallelism=4)
    config = JobConfig(parallelism=2, slot_resources={"heavy": SlotResources(2.0)})
    job = replace(job, vertices=(job.vertices[0], heavy), config=config)
    for p in (1, 2):
        taken = [[bundle] * number for bundle, number in slots_at(job, job, p)]
        assert [*itertools.chain(*taken)] == bundles_of(replace(limited(job, job, p)))
    assert slots_at(job, job, 2, has=limited(job, job, 1)) == [({"CPU": 1.0}, 1), ({"CPU": 2.0}, 0)]
