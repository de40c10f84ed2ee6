"""Where a job's slots lie on a Ray of several nodes: together or spread; what is in one slot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import ray
from chaos_kit import config, environment, until
from ray_chaos_kit import free_cpus, live_groups
from shared_ray import stop_ray
from strom import DiscardSink
from strom.connectors.datagen import DataGenSource
from strom.core.ids import TaskId
from strom.engine.graph.execution import build_execution_graph
from strom.engine.graph.model import Forward, JobGraph
from strom.engine.graph.rescaling import moved
from strom.engine.hosts.slots import Slots
from strom.testing.machines.local_nodes import LocalNodes

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def nodes() -> Iterator[LocalNodes]:
    """The head has no CPUs, three others have three each."""
    stop_ray()
    with LocalNodes([0, 3, 3, 3]) as nodes:
        yield nodes


def job(parallelism: int, spread: bool) -> JobGraph:
    """Four vertices: a source, a function and one more with a sink behind it by forward edges, and
    between them an exchange by key."""
    env = environment(config(parallelism=parallelism, spread_slots=spread, chaining=False), "ray")
    source = DataGenSource(lambda start, n: [start], 10, splits=6)
    mapped = env.from_source(source).map(lambda n: n)
    mapped.key_by(lambda n: n).map(lambda n: n).sink_to(DiscardSink())
    made: JobGraph = env.get_job_graph("placed")
    return made


def check_forward(graph: JobGraph, placed: dict[TaskId, str]) -> None:
    """Both ends of each channel of a forward edge are on one node."""
    forward = {(e.source, e.target) for e in graph.edges if isinstance(e.partitioner, Forward)}
    channels = [
        (one.source, one.target)
        for one in build_execution_graph(graph).channels
        if (one.source.vertex, one.target.vertex) in forward
    ]
    assert len(forward) == 2
    assert len(channels) == sum(graph.vertex(source).parallelism for source, _ in forward)
    assert [pair for pair in channels if placed[pair[0]] != placed[pair[1]]] == []


def slots_by_node(placed: dict[TaskId, str]) -> list[int]:
    """How many slots each node that has any has; the default group has one per subtask."""
    slots = {(task.subtask, node) for task, node in placed.items()}
    assert len(slots) == len({subtask for subtask, _ in slots}), "all tasks of a slot are together"
    return sorted(Counter(node for _, node in slots).values())


def where_they_run(slots: Slots, tasks: list[TaskId]) -> dict[TaskId, str]:
    """Of processes that are started in the slots of these tasks."""

    @ray.remote
    class Task:
        def node(self) -> str:
            return str(ray.get_runtime_context().get_node_id())

    started: dict[TaskId, Any] = {
        task: Task.options(**slots.options(task)).remote() for task in tasks
    }
    found = dict(
        zip(started, ray.get([one.node.remote() for one in started.values()]), strict=True)
    )
    for one in started.values():
        ray.kill(one)
    return found


@pytest.mark.parametrize(
    ("spread", "before", "after"), [(False, [3], None), (True, [1] * 3, [2] * 3)]
)
def test_slots_lie_together_or_spread(
    nodes: LocalNodes, spread: bool, before: list[int], after: list[int] | None
) -> None:
    """Those that a rescale adds go where most is free; so spread ones stay so."""
    graph = job(3, spread)
    slots = Slots(graph, f"strom-placed-{spread}")
    slots.reserve(Future())
    placed = slots.nodes()
    assert slots_by_node(placed) == before
    check_forward(graph, placed)
    tasks = [task for task in placed if task.subtask == 1]
    assert where_they_run(slots, tasks) == {task: placed[task] for task in tasks}
    larger = moved(graph, graph, 6)
    slots.add_for(larger, Future())
    slots.adopt(larger)
    grown = slots.nodes()
    assert {task: grown[task] for task in placed} == placed
    assert after is None or slots_by_node(grown) == after
    check_forward(larger, grown)
    slots.release()
    until(lambda: free_cpus() == 9 and not live_groups(), "free slots", 30.0)
