"""The enumerators of a job of which a part goes on at another parallelism."""

from __future__ import annotations

from typing import Any

from strom import StreamExecutionEnvironment
from strom.core.config import JobConfig
from strom.core.ids import CheckpointId, TaskId, VertexId
from strom.engine.coordinator.plan import make_plan
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.model import JobGraph
from strom.engine.graph.rescaling import moved
from strom.engine.hosts.enumerators import Enumerators
from strom.testing.scripted import ScriptedSource


def two_sources() -> JobGraph:
    """Of each subtask a region."""
    env: Any = StreamExecutionEnvironment.get_execution_environment(JobConfig(parallelism=2))
    for name in ("first", "second"):
        lanes = [[(lane, n) for n in range(3)] for lane in range(6)]
        env.from_source(ScriptedSource(lanes), source_name=name).uid(name).print()
    graph: JobGraph = env.get_job_graph("two")
    return graph


def shared(job: JobGraph) -> frozenset[Any]:
    return make_plan("job", build_execution_graph(job)).shared_sources


def lanes_of(answers: list[tuple[TaskId, Any]]) -> list[int]:
    return [split.lane for _, answer in answers for split in answer.splits]


def test_what_the_others_were_given_is_known_still() -> None:
    before = two_sources()
    after = moved(before, before, {"first": 3})
    first, second = [vertex.operators[0].operator_id for vertex in before.vertices]
    enumerators = Enumerators(before, "job", shared(before))
    enumerators.prepare({})
    for operator in (first, second):
        enumerators.next_splits(operator, 0)
    states = enumerators.snapshot(CheckpointId(1))
    enumerators.forget(CheckpointId(1))
    for operator in (first, second):
        enumerators.next_splits(operator, 1)
    enumerators.adopt(after, shared(after))
    assert enumerators.restart([first], states, []) == []
    # Of three readers the one asks for what two have left.
    answer: Any = enumerators.next_splits(first, 2)
    assert [split.lane for split in answer.splits] == [5]
    again = [(first, TaskId(VertexId("v"), 2)), (second, TaskId(VertexId("w"), 1))]
    assert lanes_of(enumerators.restart([], {}, again)) == [5, 1, 3, 5]
    assert lanes_of(enumerators.restart([], {}, [(first, TaskId(VertexId("v"), 1))])) == []
    assert enumerators.close() == []
