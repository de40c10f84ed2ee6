"""A small job for the job master: two source subtasks, two sink subtasks, no real data."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from strom.core.config import CheckpointConfig, JobConfig, RestartStrategy
from strom.core.ids import TaskId
from strom.engine.graph.model import ChainedOperator, ExecutionGraph, JobGraph, JobVertex

SOURCES = (TaskId("source", 0), TaskId("source", 1))
SINKS = (TaskId("sink", 0), TaskId("sink", 1))
TASKS = SOURCES + SINKS


def make_graph(
    restart: RestartStrategy | None = None,
    interval_ms: int | None = 100,
    **checkpoint: Any,
) -> ExecutionGraph:
    interval = None if interval_ms is None else timedelta(milliseconds=interval_ms)
    config = JobConfig(
        parallelism=2,
        restart=restart,
        checkpoint=CheckpointConfig(interval=interval, **checkpoint),
    )
    source = ChainedOperator("source", "Numbers", None, is_source=True)
    sink = ChainedOperator("sink", "Collect", None, is_sink=True)
    vertices = (
        JobVertex("source", "Numbers", (source,), 2, 128),
        JobVertex("sink", "Collect", (sink,), 2, 128),
    )
    return ExecutionGraph(JobGraph("demo", vertices, (), config), TASKS, ())


@pytest.fixture
def graph() -> Callable[..., ExecutionGraph]:
    return make_graph
