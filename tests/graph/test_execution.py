"""JobGraph -> ExecutionGraph: which subtask talks to which, and how channels are numbered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strom.core.config import JobConfig
from strom.core.errors import GraphError
from strom.core.ids import OperatorId, TaskId, VertexId
from strom.engine.graph.execution import build_execution_graph, rescale_targets
from strom.engine.graph.model import (
    ChainedOperator,
    ExecutionGraph,
    Forward,
    Global,
    JobEdge,
    JobGraph,
    JobVertex,
    Partitioner,
    Rebalance,
    Rescale,
)


def vertex(name: str, parallelism: int) -> JobVertex:
    operator = ChainedOperator(OperatorId(name), name, None, is_source=name == "a")
    return JobVertex(VertexId(name), name, (operator,), parallelism, 128)


def job(sizes: dict[str, int], *edges: tuple[str, str, Partitioner]) -> JobGraph:
    vertices = tuple(vertex(name, size) for name, size in sizes.items())
    linked = tuple(
        JobEdge(i, VertexId(s), VertexId(t), p, port=i) for i, (s, t, p) in enumerate(edges)
    )
    return JobGraph("test", vertices, linked, JobConfig())


def pairs(graph: ExecutionGraph) -> list[tuple[int, int]]:
    return [(c.source.subtask, c.target.subtask) for c in graph.channels]


def test_forward_is_one_to_one() -> None:
    assert pairs(build_execution_graph(job({"a": 3, "b": 3}, ("a", "b", Forward())))) == [
        (0, 0),
        (1, 1),
        (2, 2),
    ]


@pytest.mark.parametrize("partitioner", [Rebalance(), Global()])
def test_others_are_all_to_all(partitioner: Partitioner) -> None:
    graph = build_execution_graph(job({"a": 2, "b": 3}, ("a", "b", partitioner)))
    assert pairs(graph) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("sources", "targets", "expected"),
    [
        (2, 4, [(0, 0), (0, 1), (1, 2), (1, 3)]),
        (4, 2, [(0, 0), (1, 0), (2, 1), (3, 1)]),
        (2, 3, [(0, 0), (0, 1), (1, 2)]),
        (3, 2, [(0, 0), (1, 1), (2, 1)]),
        (2, 2, [(0, 0), (1, 1)]),
    ],
)
def test_rescale_shares(sources: int, targets: int, expected: list[tuple[int, int]]) -> None:
    graph = build_execution_graph(job({"a": sources, "b": targets}, ("a", "b", Rescale())))
    assert pairs(graph) == expected


@given(st.integers(1, 60), st.integers(1, 60))
def test_rescale_reaches_everyone_evenly(sources: int, targets: int) -> None:
    found = [(i, j) for i in range(sources) for j in rescale_targets(i, sources, targets)]
    assert {i for i, _ in found} == set(range(sources))
    assert {j for _, j in found} == set(range(targets))
    assert len(found) == max(sources, targets)
    few = 0 if sources <= targets else 1
    loads = [sum(1 for pair in found if pair[few] == k) for k in range(min(sources, targets))]
    assert max(loads) - min(loads) <= 1


def test_numbering_of_channels() -> None:
    graph = build_execution_graph(
        job({"a": 2, "b": 1, "c": 2}, ("a", "c", Rebalance()), ("b", "c", Rebalance()))
    )
    target = TaskId(VertexId("c"), 1)
    into = graph.inputs[target]
    assert [(str(c.source), c.target_index, c.port) for c in into] == [
        ("a[0]", 0, 0),
        ("a[1]", 1, 0),
        ("b[0]", 2, 1),
    ]
    assert [c.source_index for c in graph.outputs[TaskId(VertexId("a"), 1)]] == [0, 1]
    assert [c.id for c in graph.channels] == list(range(6))
    assert graph.inputs[TaskId(VertexId("a"), 0)] == ()
    assert graph.outputs[target] == ()
    assert list(map(str, graph.tasks)) == ["a[0]", "a[1]", "b[0]", "c[0]", "c[1]"]


def test_source_index_starts_again_on_each_edge() -> None:
    graph = build_execution_graph(
        job({"a": 1, "b": 2, "c": 1}, ("a", "b", Rebalance()), ("a", "c", Rebalance()))
    )
    out = graph.outputs[TaskId(VertexId("a"), 0)]
    assert [(c.edge, c.source_index) for c in out] == [(0, 0), (0, 1), (1, 0)]


def test_forward_needs_one_parallelism() -> None:
    with pytest.raises(GraphError, match=r"'a' \(parallelism 2\) to 'b' \(parallelism 3\)"):
        build_execution_graph(job({"a": 2, "b": 3}, ("a", "b", Forward())))
