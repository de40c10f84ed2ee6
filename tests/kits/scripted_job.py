"""A small job with scripted enumerators, for the tests of the job master."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

from coordinator_kit import PromptSources
from strom.api.connectors.base import SplitEnumerator
from strom.checkpoint.handles import (
    SubtaskSnapshot,
)
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest
from strom.core.config import FixedDelayRestart
from strom.core.ids import ChannelId, TaskId
from strom.engine.coordinator.actions import (
    Send,
    StoreCheckpoint,
)
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import Channel, ExecutionGraph
from strom.engine.messages import (
    CheckpointAcknowledged,
    TaskRunning,
)

S0, S1 = TaskId("source", 0), TaskId("source", 1)
K0, K1 = TaskId("sink", 0), TaskId("sink", 1)
TASKS = (S0, S1, K0, K1)
NONE = Latest(None)
TWICE = FixedDelayRestart(2, timedelta(milliseconds=50))


def at(graph: ExecutionGraph, parallelism: int) -> ExecutionGraph:
    """The same job at another parallelism."""
    vertices = tuple(replace(v, parallelism=parallelism) for v in graph.job.vertices)
    tasks = tuple(TaskId(v.id, i) for v in vertices for i in range(parallelism))
    pairs = [(a, b) for a in tasks for b in tasks if a.vertex == "source" and b.vertex == "sink"]
    channels = tuple(
        Channel(ChannelId(i), 0, a, b, b.subtask, a.subtask) for i, (a, b) in enumerate(pairs)
    )
    return replace(graph, job=replace(graph.job, vertices=vertices), tasks=tasks, channels=channels)


class Numbers(SplitEnumerator):
    """Splits from a list; None once `sealed`. `broken` names the method that raises."""

    def __init__(self, left: list[int]) -> None:
        self.left, self.sealed, self.closed, self.broken = left, False, 0, ""

    def next_splits(self, subtask: int) -> list[int] | None:
        if self.broken == "next":
            raise RuntimeError("no bucket")
        if self.left:
            return [self.left.pop(0)]
        return None if self.sealed else []

    def snapshot(self) -> list[int]:
        if self.broken == "snapshot":
            raise RuntimeError("no snapshot")
        return self.left

    def close(self) -> None:
        self.closed += 1


class Job:
    """A job master with its enumerators kept for inspection."""

    def __init__(self, graph: ExecutionGraph, **options: Any) -> None:
        self.made: list[Numbers] = []
        self.restored: list[dict[Any, Any]] = []
        self.fail_make = False
        self.master = PromptSources(JobMaster("job", graph, random.Random(0), **options), self.make)

    def make(self, restored: dict[Any, Any]) -> dict[Any, SplitEnumerator]:
        if self.fail_make:
            raise RuntimeError("no such folder")
        self.restored.append(restored)
        self.made.append(Numbers(restored.get("source", [1, 2, 3])))
        return {"source": self.made[-1]}

    def report_all(self, kind: Any, now: int, attempt: int = 0) -> tuple[Any, ...]:
        return tuple(a for t in TASKS for a in self.master.on_report(kind(t, attempt), now))

    def acknowledge_all(self, n: int, now: int, attempt: int = 0) -> tuple[Any, ...]:
        reports = [CheckpointAcknowledged(t, attempt, n, SubtaskSnapshot(t)) for t in TASKS]
        return tuple(a for r in reports for a in self.master.on_report(r, now))

    def run(self, now: int = 0) -> None:
        self.master.start(now)
        self.master.on_loaded(NONE, now)
        self.report_all(TaskRunning, now)
        self.master.validate()

    def store(self, n: int, now: int, attempt: int = 0) -> Manifest:
        (stored,) = [
            a for a in self.acknowledge_all(n, now, attempt) if isinstance(a, StoreCheckpoint)
        ]
        return stored.manifest


def of(kind: type, actions: tuple[Any, ...]) -> list[Any]:
    return [a for a in actions if isinstance(a, kind)]


def to_all(mail: Any) -> list[Send]:
    return [Send(task, mail) for task in TASKS]
