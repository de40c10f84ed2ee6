"""StreamGraph -> JobGraph: what is fused, and how edges are split."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.config import JobConfig
from strom.core.ids import OperatorId
from strom.core.keys import ColumnKey
from strom.engine.graph.chaining import build_job_graph
from strom.engine.graph.model import (
    Broadcast,
    Forward,
    Global,
    InnerEdge,
    JobGraph,
    KeyGroups,
    Partitioner,
    Rebalance,
    Rescale,
    Shuffle,
    StreamEdge,
    StreamGraph,
    StreamNode,
)


def node(number: int, **changes: Any) -> StreamNode:
    base = StreamNode(number, OperatorId(f"id{number}"), f"n{number}", None, 2, 128)
    return replace(base, is_source=number == 0, **changes)


def graph(
    nodes: list[StreamNode], *edges: StreamEdge | tuple[int, int], chaining: bool = True
) -> StreamGraph:
    full = tuple(e if isinstance(e, StreamEdge) else StreamEdge(*e, Forward()) for e in edges)
    return StreamGraph("test", tuple(nodes), full, JobConfig(chaining=chaining))


def chains(job: JobGraph) -> list[str]:
    return [vertex.name for vertex in job.vertices]


TOGETHER, APART = ["n0 -> n1"], ["n0", "n1"]


@pytest.mark.parametrize(
    ("upstream", "downstream", "partitioner", "enabled", "expected"),
    [
        ({}, {}, Forward(), True, TOGETHER),
        ({}, {}, Forward(), False, APART),
        ({}, {}, Rebalance(), True, APART),
        ({}, {}, Rescale(), True, APART),
        ({}, {}, Shuffle(), True, APART),
        ({}, {}, Broadcast(), True, APART),
        ({}, {}, Global(), True, APART),
        ({}, {}, KeyGroups(ColumnKey(("k",))), True, APART),
        ({"parallelism": 1}, {}, Forward(), True, APART),
        ({}, {"max_parallelism": 64}, Forward(), True, APART),
        ({}, {"slot_sharing_group": "gpu"}, Forward(), True, APART),
        ({}, {"chaining": "head"}, Forward(), True, APART),
        ({}, {"chaining": "never"}, Forward(), True, APART),
        ({"chaining": "head"}, {}, Forward(), True, TOGETHER),
        ({"chaining": "never"}, {}, Forward(), True, APART),
    ],
)
def test_chaining_decisions(
    upstream: dict[str, Any],
    downstream: dict[str, Any],
    partitioner: Partitioner,
    enabled: bool,
    expected: list[str],
) -> None:
    nodes = [node(0, **upstream), node(1, **downstream)]
    job = build_job_graph(graph(nodes, StreamEdge(0, 1, partitioner), chaining=enabled))
    assert chains(job) == expected
    assert len(job.edges) == (0 if expected is TOGETHER else 1)


def test_two_input_edges_are_never_chained() -> None:
    #  n0 -> n1 -> n2     n2 reads both n0 and n1: it starts its own chain
    #   \---------^
    job = build_job_graph(graph([node(0), node(1), node(2)], (0, 1), (0, 2), (1, 2)))
    assert chains(job) == ["n0 -> n1", "n2"]
    head, second = job.vertices[0].operators
    assert (head.inner, head.outer) == ((InnerEdge(1),), (0,))
    assert (second.inner, second.outer) == ((), (1,))
    assert [(e.id, e.source, e.target) for e in job.edges] == [(0, "id0", "id2"), (1, "id0", "id2")]


def test_a_stream_united_with_itself_has_two_edges() -> None:
    job = build_job_graph(graph([node(0), node(1)], (0, 1), (0, 1)))
    assert chains(job) == ["n0", "n1"]
    assert job.vertices[0].operators[0].outer == (0, 1)


def test_a_branching_chain_and_a_side_output() -> None:
    side = StreamEdge(1, 3, Forward(), tag="late")
    nodes = [node(0), node(1), node(2), node(3)]
    job = build_job_graph(graph(nodes, (0, 1), (1, 2), side))
    assert chains(job) == ["n0 -> n1 -> (n2, n3)"]
    assert job.vertices[0].operators[1].inner == (InnerEdge(2), InnerEdge(3, "late"))


def test_tag_port_and_partitioner_reach_the_job_edge() -> None:
    edge = StreamEdge(0, 1, Broadcast(), tag="late", port=1)
    (found,) = build_job_graph(graph([node(0), node(1)], edge)).edges
    assert (found.partitioner, found.tag, found.port) == (Broadcast(), "late", 1)


def test_vertex_takes_id_and_settings_of_its_head() -> None:
    nodes = [node(0, description="reads"), node(1, is_sink=True)]
    (vertex,) = build_job_graph(graph(nodes, (0, 1))).vertices
    assert (vertex.id, vertex.parallelism, vertex.max_parallelism) == ("id0", 2, 128)
    assert vertex.is_source
    assert vertex.operators[0].description == "reads"
    assert vertex.operators[1].is_sink


PARTITIONERS = st.sampled_from([Forward(), Forward(), Forward(), Rebalance()])


@st.composite
def random_graphs(draw: st.DrawFn) -> StreamGraph:
    count = draw(st.integers(1, 12))
    nodes = [
        node(i, chaining=draw(st.sampled_from(["always", "always", "head", "never"])))
        for i in range(count)
    ]
    edges = [
        StreamEdge(source, target, draw(PARTITIONERS))
        for target in range(1, count)
        for source in sorted(draw(st.sets(st.integers(0, target - 1), min_size=1, max_size=2)))
    ]
    return graph(nodes, *edges)


@given(random_graphs())
@settings(max_examples=examples(80), deadline=None)
def test_every_operator_and_edge_is_kept_exactly_once(stream: StreamGraph) -> None:
    job = build_job_graph(stream)
    operators = [o.operator_id for v in job.vertices for o in v.operators]
    assert sorted(operators) == sorted(n.operator_id for n in stream.nodes)
    inner = [
        (o.operator_id, v.operators[e.target].operator_id)
        for v in job.vertices
        for o in v.operators
        for e in o.inner
    ]
    leaving = {e: o.operator_id for v in job.vertices for o in v.operators for e in o.outer}
    outer = [(leaving[e.id], e.target) for e in job.edges]
    expected = [(f"id{e.source}", f"id{e.target}") for e in stream.edges]
    assert sorted(inner + outer) == sorted(expected)
    position = {vertex.id: i for i, vertex in enumerate(job.vertices)}
    assert all(position[e.source] < position[e.target] for e in job.edges)
    assert all(
        e.target > i for v in job.vertices for i, o in enumerate(v.operators) for e in o.inner
    )
