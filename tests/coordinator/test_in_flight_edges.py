"""Which edges of a job take what was on its way when a checkpoint was taken."""

from __future__ import annotations

import pytest
from strom.checkpoint.handles import FileHandle, InFlightHandle, SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.core.config import JobConfig
from strom.core.ids import TaskId
from strom.core.keys import ColumnKey
from strom.engine.coordinator.plan import make_plan
from strom.engine.coordinator.starting_point import StartingPoint
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.model import (
    Broadcast,
    ChainedOperator,
    Forward,
    InnerEdge,
    JobEdge,
    JobGraph,
    JobVertex,
    KeyGroups,
    Partitioner,
    Rebalance,
)

KEY = ColumnKey(("k",))


def why_not(edge: Partitioner | InnerEdge | None, allow_unmatched: bool = False) -> str | None:
    """Of a job with this edge from `read` to `write`, and a checkpoint with records on it."""
    read = ChainedOperator("read", "Read", None, is_source=True)
    write = ChainedOperator("write", "Write", None, is_sink=True)
    if isinstance(edge, InnerEdge):
        chain = (ChainedOperator("read", "Read", None, (edge,), is_source=True), write)
        vertices, edges = (JobVertex("read", "Read", chain, 2, 128),), ()
    else:
        edges = () if edge is None else (JobEdge(0, "read", "write", edge),)
        outer = ChainedOperator("read", "Read", None, (), (0,), is_source=True) if edges else read
        vertices = (
            JobVertex("read", "Read", (outer,), 2, 128),
            JobVertex("write", "Write", (write,), 2, 128),
        )
    graph = build_execution_graph(JobGraph("job", vertices, edges, JobConfig()))
    waited = InFlightHandle(FileHandle("f", 1, "0" * 16), ("read>write:0",))
    part = SubtaskSnapshot(TaskId("write", 0), (), waited)
    manifest = Manifest("another", "job", 3, 0, (), (part,))
    return StartingPoint(make_plan("job", graph), True, allow_unmatched).why_not(manifest)


EDGES = [Rebalance(), KeyGroups(KEY), Forward(), Forward(KEY), Broadcast()]


@pytest.mark.parametrize("edge", [*EDGES, InnerEdge(1), InnerEdge(1, key=KEY)])
def test_an_edge_may_have_become_another_one(edge: Partitioner | InnerEdge) -> None:
    """What of it belongs where, tasks decide (`task.replay`): also of edges that nothing overtakes
    a checkpoint says how far their time is."""
    assert why_not(edge) is None


def test_what_has_no_place_is_refused() -> None:
    why = str(why_not(None))
    assert "checkpoint 3 is unaligned, and holds records that were on their way" in why
    assert "'Read' to 'Write' (read>write:0). Start from a savepoint" in why
    assert why_not(None, allow_unmatched=True) is None
