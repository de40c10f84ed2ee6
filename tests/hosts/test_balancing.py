"""Key groups dealt by the load that senders have told of."""

from __future__ import annotations

from typing import Any

import pytest
from strom.core.config import JobConfig
from strom.core.errors import GraphError
from strom.core.ids import EVEN, OperatorId, TaskId, VertexId
from strom.core.keys import ColumnKey
from strom.engine.graph.model import (
    ChainedOperator,
    Forward,
    JobEdge,
    JobGraph,
    JobVertex,
    KeyGroups,
    Partitioner,
)
from strom.engine.graph.rescaling import moved
from strom.engine.hosts.balancing import Balanced, balanced
from strom.engine.hosts.key_figures import key_figures
from strom.state.hashing import stable_hash
from strom.state.key_groups import key_group

KEY = KeyGroups(ColumnKey(("k",)))


def job(*edges: tuple[str, str, Partitioner], groups: int = 8) -> JobGraph:
    """Vertices `s`, `t`, ... of parallelism 2, in order of their names."""
    names = sorted({name for source, target, _ in edges for name in (source, target)})
    vertices = tuple(
        JobVertex(VertexId(name), name, (ChainedOperator(OperatorId(name), name, None),), 2, groups)
        for name in names
    )
    made = (
        JobEdge(at, VertexId(source), VertexId(target), partitioner)
        for at, (source, target, partitioner) in enumerate(edges)
    )
    return JobGraph("job", vertices, tuple(made), JobConfig(parallelism=2, max_parallelism=groups))


def told(loads: list[int], hot: list[Any] | None = None, edge: int = 0, width: int = 1) -> Any:
    """Half of it by each of two senders of `s`."""
    halves = [load // 2 for load in loads], [load - load // 2 for load in loads]
    return {
        TaskId(VertexId("s"), subtask): {
            "keys": {
                edge: {
                    "width": width,
                    "loads": half,
                    "hot": hot or [],
                    "error": 0.0,
                    "total": float(sum(half)),
                }
            }
        }
        for subtask, half in enumerate(halves)
    }


def test_the_busiest_subtask_gets_as_little_as_can_be() -> None:
    planned = job(("s", "t", KEY))
    loads = [300, 300, 100, 100, 50, 50, 50, 50]
    made, found = balanced(planned, planned, Balanced(2), told(loads))
    assert [vertex.deal for vertex in made.vertices] == [EVEN, (0, 2)]
    (one,) = found.values()
    assert (one.before, one.after, one.limit) == (0.8, 0.6, "")
    (figures,) = key_figures(told(loads), made)
    assert figures["subtasks"] == pytest.approx([0.6, 0.4])
    again, found = balanced(planned, made, Balanced(2), told(loads))
    assert (again, found["t"].before, found["t"].after) == (made, 0.6, 0.6)
    wider, found = balanced(planned, made, Balanced({"t": 3}), told(loads))
    assert [(v.parallelism, v.deal) for v in wider.vertices] == [(2, EVEN), (3, (0, 1, 3))]
    assert (found["t"].before, found["t"].after) == (0.6, 0.4)
    assert moved(planned, made, 2) == planned, "without balance all have as many groups"


def test_what_shares_key_groups_has_one_deal_and_the_load_of_all() -> None:
    """t and u are joined with v, which is partitioned as they are: by what comes to all three."""
    planned = job(("s", "t", KEY), ("s", "u", KEY), ("t", "v", Forward()), ("u", "v", Forward()))
    left = told([100, 0, 0, 0, 0, 0, 0, 0])
    right = told([0, 100, 100, 0, 0, 0, 0, 0], edge=1)
    both = {task: {"keys": {**left[task]["keys"], **right[task]["keys"]}} for task in left}
    made, found = balanced(planned, planned, Balanced({"v": 3}), both)
    assert [v.deal for v in made.vertices] == [EVEN, *[(0, 1, 2)] * 3]
    assert list(found) == ["t"]


def test_one_key_group_that_has_more_than_its_part_is_named_with_its_key() -> None:
    planned = job(("s", "t", KEY))
    group = key_group("hot", 8)
    loads = [900 if at == group else 10 for at in range(8)]
    hot = [(stable_hash("hot"), "'hot'", 400.0)]
    _, found = balanced(planned, planned, Balanced(3), told(loads, hot))
    assert found["t"].limit == (
        f"key group {group} alone has 93% of the records, of which the key 'hot' has 82%: no deal "
        "of key groups makes that less"
    )


def test_runs_of_key_groups_are_dealt_as_their_groups_have_equal_parts() -> None:
    planned = job(("s", "t", KEY), groups=7)
    made, found = balanced(planned, planned, Balanced(2), told([60, 0, 0, 10], width=2))
    assert made.vertices[1].deal == (0, 1)
    assert (found["t"].before, found["t"].after) == pytest.approx((6 / 7, 4 / 7))
    made, _ = balanced(planned, planned, Balanced(2), told([60, 0, 0, 60], width=2))
    assert made.vertices[1].deal == EVEN, "30 30 0 0 | 0 0 60"


NOTHING: dict[TaskId, Any] = {}


@pytest.mark.parametrize(
    ("planned", "wanted", "reports", "why"),
    [
        (job(("s", "t", KEY)), 2, NOTHING, "no load of the key groups of 't' is known"),
        (job(("s", "t", KEY)), 3, told([0] * 8), "ask again"),
        (job(("s", "t", Forward())), 2, NOTHING, "no records come to job 'job' by key"),
        (job(("s", "t", KEY)), {"s": 2}, told([1] * 8), "to the operators that were named by key"),
        (job(("s", "t", KEY)), 9, told([1] * 8), "8 key groups"),
        (job(("s", "t", KEY)), {"x": 2}, told([1] * 8), "no operator 'x'"),
        (
            job(("s", "t", KEY), ("s", "u", KEY)),
            {"t": 2, "u": 2},
            told([1] * 8),
            "no load of the key groups of 'u' is known",
        ),
    ],
)
def test_what_cannot_be_balanced(planned: JobGraph, wanted: Any, reports: Any, why: str) -> None:
    with pytest.raises(GraphError, match=why):
        balanced(planned, planned, Balanced(wanted), reports)


def test_of_all_operators_those_are_balanced_of_which_a_load_is_known() -> None:
    planned = job(("s", "t", KEY), ("s", "u", KEY))
    made, found = balanced(planned, planned, Balanced(2), told([50, 50, 5, 5, 0, 0, 0, 0]))
    assert [v.deal for v in made.vertices] == [EVEN, (0, 1), EVEN]
    assert list(found) == ["t"]
