"""A job's graph at another parallelism."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chaos_kit import config, environment
from strom import DiscardSink
from strom.connectors.datagen import DataGenSource
from strom.core.errors import GraphError
from strom.core.ids import Deal
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.model import JobGraph
from strom.engine.graph.rescaling import (
    dealt,
    limited,
    moved,
    rescaled,
    shape_of,
    together,
    widest,
    widths_of,
    with_widths,
)


def graph(parallelism: int, own: int | None = None) -> JobGraph:
    """A collection in one subtask, and a keyed function of the job's parallelism, or its own."""
    env = environment(config(parallelism=parallelism, max_parallelism=16))
    keyed = env.from_collection([1, 2, 3]).key_by(lambda n: n).map(lambda n: n)
    (keyed if own is None else keyed.set_parallelism(own)).name("keyed")
    end = keyed.sink_to(DiscardSink())
    if own is not None:
        end.set_parallelism(own)
    made: JobGraph = env.get_job_graph("rescaled")
    return made


def test_what_has_the_jobs_parallelism_gets_another() -> None:
    before = graph(2)
    after = rescaled(before, 5)
    widths = [vertex.parallelism for vertex in after.vertices]
    assert widths == [1, 5]
    assert [v.id for v in after.vertices] == [v.id for v in before.vertices]
    assert (after.config.parallelism, before.config.parallelism) == (5, 2)
    assert len(build_execution_graph(after).tasks) == 6
    assert rescaled(after, 2) == before


@pytest.mark.parametrize(
    ("before", "own", "wanted", "why"),
    [
        (2, None, 2, "already"),
        (2, None, 0, "at least 1"),
        (2, None, 17, "16 key groups"),
        (1, None, 2, "planned for the parallelism 1"),
        (4, 3, 5, "one of its own"),
    ],
)
def test_what_cannot_be(before: int, own: int | None, wanted: int, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        rescaled(graph(before, own), wanted)


def widths(job: JobGraph) -> list[int]:
    return [vertex.parallelism for vertex in job.vertices]


def chains(parallelism: int = 2) -> JobGraph:
    """Numbers, a forward edge to a chain of its own, and a keyed function."""
    env = environment(config(parallelism=parallelism, max_parallelism=16))
    numbers = env.from_source(DataGenSource(lambda start, n: [start], 10), source_name="numbers")
    doubled = numbers.map(lambda n: 2 * n).name("doubled").uid("twice").start_new_chain()
    keyed = doubled.key_by(lambda n: n).map(lambda n: n).name("keyed")
    keyed.sink_to(DiscardSink())
    made: JobGraph = env.get_job_graph("chains")
    return made


def test_a_running_job_is_moved_by_names_and_what_is_connected_goes_along() -> None:
    planned = chains()
    assert widths(planned) == [2, 2, 2]
    one = moved(planned, planned, {"keyed": 3})
    assert widths(one) == [2, 2, 3]
    assert one.config.parallelism == 2, "while they differ, what it was"
    for name in ("twice", "doubled", "numbers"):
        assert widths(moved(planned, one, {name: 4})) == [4, 4, 3], name
    all_of_them = moved(planned, one, 5)
    assert (widths(all_of_them), all_of_them.config.parallelism) == ([5, 5, 5], 5)
    assert widths(moved(planned, moved(planned, all_of_them, 1), 2)) == [2, 2, 2], "and back"
    assert with_widths(planned, widths_of(one)) == one
    assert shape_of(one) == "2,2,3"


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"keyed": 17}, "16 key groups"),
        ({"keyed": 0}, "at least 1"),
        ({"nix": 2}, "no operator 'nix': it has 'numbers', 'doubled', 'keyed'"),
        ({"numbers": 2, "twice": 3}, "one parallelism: not 2 and 3"),
        ({}, "at least one"),
        (0, "at least 1"),
        (17, "16 key groups"),
    ],
)
def test_where_a_running_job_cannot_go(wanted: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        moved(chains(), chains(), wanted)


def test_what_was_planned_for_one_subtask_stays_at_that() -> None:
    planned = graph(2)
    assert widths(moved(planned, planned, 3)) == [1, 3]
    with pytest.raises(GraphError, match="planned for the parallelism 1"):
        moved(planned, planned, {planned.vertices[0].name: 2})
    with pytest.raises(GraphError, match="planned for the parallelism 1"):
        moved(chains(1), chains(1), 2)


def test_a_job_that_is_limited_is_narrower_where_it_has_no_parallelism_of_its_own() -> None:
    whole = graph(4)
    assert widths(limited(whole, whole, 3)) == [1, 3]
    assert limited(whole, whole, 4) == limited(whole, whole, 9) == whole
    assert (widest(whole, whole), widest(whole, limited(whole, whole, 2))) == (4, 2)
    own = graph(4, own=3)
    assert limited(own, own, 1) == own
    assert widest(own, own) == 0


def test_what_somebody_made_narrower_stays_so() -> None:
    """The job was planned for four, and has some of two by now."""
    whole = chains(4)
    names = [vertex.name for vertex in whole.vertices]
    wanted = moved(whole, whole, {names[-1]: 2})
    assert max(widths(wanted)) == 4
    assert widths(limited(whole, wanted, 3)) == [min(3, width) for width in widths(wanted)]
    assert shape_of(limited(whole, wanted, 4)) == shape_of(wanted)


def test_a_job_that_runs_with_one_is_rescaled_by_what_it_is_to_be() -> None:
    """With one subtask it looks like a job that was planned for one."""
    whole = graph(3)
    small = limited(whole, whole, 1)
    with pytest.raises(GraphError, match="planned for the parallelism 1"):
        rescaled(small, 4)
    assert widths(rescaled(whole, 4)) == [1, 4]


def deal_of(job: JobGraph, name: str, deal: Deal) -> JobGraph:
    """With this deal of the vertices that share key groups with one."""
    (group,) = [found for found in together(job) if name in [vertex.name for vertex in found]]
    return dealt(job, job, {vertex.id: deal for vertex in group})


def test_what_a_forward_edge_connects_shares_its_key_groups() -> None:
    planned = chains()
    assert [[v.name for v in group] for group in together(planned)] == [
        ["numbers", "doubled"],
        ["keyed -> Sink: DiscardSink"],
    ]
    numbers = planned.vertices[0]
    with pytest.raises(GraphError, match=r"from 'numbers' to 'doubled'.* dealt in one way"):
        dealt(planned, planned, {numbers.id: (0, 3)})
    assert [v.deal for v in deal_of(planned, "numbers", (0, 3)).vertices] == [(0, 3), (0, 3), ()]


def test_a_deal_is_kept_as_what_is_written_down_and_tells_tasks_apart() -> None:
    planned = chains()
    name = planned.vertices[-1].name
    uneven = deal_of(planned, name, (0, 3))
    assert widths(uneven) == [2, 2, 2]
    kept = json.loads(json.dumps(widths_of(uneven)))
    assert list(kept.values()) == [2, 2, [0, 3]]
    assert with_widths(planned, kept) == uneven
    shapes = {shape_of(planned), shape_of(uneven), shape_of(deal_of(planned, name, (0, 4)))}
    assert len(shapes) == 3
    assert len(shape_of(uneven)) < 30


def test_another_parallelism_is_dealt_evenly_and_what_is_not_asked_for_stays() -> None:
    planned = chains()
    uneven = deal_of(planned, planned.vertices[-1].name, (0, 3))
    assert moved(planned, uneven, 2) == planned, "also the one that it has"
    assert moved(planned, uneven, {"keyed": 2}) == planned
    aside = moved(planned, uneven, {"numbers": 3})
    assert [(v.parallelism, v.deal) for v in aside.vertices] == [(3, ()), (3, ()), (2, (0, 3))]
    assert limited(planned, uneven, 2) == uneven
    assert limited(planned, uneven, 1) == moved(planned, planned, 1)
