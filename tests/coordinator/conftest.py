"""A small job for the job master: two source subtasks, two sink subtasks, no real data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from regions_kit import FOUR, at
from scripted_job import TWICE
from staying_kit import Holding, alone
from strom.core.config import CheckpointConfig, JobConfig, RestartStrategy
from strom.core.ids import ChannelId, TaskId
from strom.engine.graph.model import ChainedOperator, Channel, ExecutionGraph, JobGraph, JobVertex

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
    pairs = [(source, sink) for source in SOURCES for sink in SINKS]
    channels = tuple(
        Channel(ChannelId(i), 0, source, sink, sink.subtask, source.subtask)
        for i, (source, sink) in enumerate(pairs)
    )
    return ExecutionGraph(JobGraph("demo", vertices, (), config), TASKS, channels)


SOLO = (TaskId("solo", 0), TaskId("solo", 1))


class Independent:
    """A connector of which subtasks may begin again one by one."""

    independent_readers = True


def make_parts(*args: Any, **options: Any) -> ExecutionGraph:
    """Beside that job, two subtasks that read and write alone: three regions, of which two share
    the enumerator of one source."""
    one = make_graph(*args, **options)
    spec = SimpleNamespace(source=Independent())
    solo = ChainedOperator("solo", "Solo", spec, is_source=True)
    vertices = (*one.job.vertices, JobVertex("solo", "Solo", (solo,), 2, 128))
    job = replace(one.job, vertices=vertices)
    return replace(one, job=job, tasks=TASKS + SOLO)


@pytest.fixture
def parts() -> Callable[..., ExecutionGraph]:
    return make_parts


@pytest.fixture
def graph() -> Callable[..., ExecutionGraph]:
    return make_graph


@pytest.fixture
def holding(parts: Callable[..., ExecutionGraph]) -> Holding:
    return Holding(at(parts(TWICE)))


@pytest.fixture
def whole(parts: Callable[..., ExecutionGraph]) -> Holding:
    return Holding(alone(at(parts(TWICE))), FOUR)
