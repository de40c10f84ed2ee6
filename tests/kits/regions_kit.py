"""A job of three regions (`parts`, in tests/coordinator/conftest.py), and its master."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from scripted_job import K0, K1, NONE, S0, S1, TASKS
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest
from strom.core.ids import ChannelId, TaskId
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import Channel, ExecutionGraph, JobEdge, Rebalance
from strom.engine.messages import CheckpointAcknowledged, TaskRunning

A, B = SOLO = TaskId("solo", 0), TaskId("solo", 1)
SOURCES, SINKS = (S0, S1), (K0, K1)
FOUR = TASKS
EVERY = TASKS + SOLO


def at(graph: ExecutionGraph, **widths: int) -> ExecutionGraph:
    """The job of `parts` with so many subtasks of these vertices."""
    vertices = tuple(
        replace(
            v,
            parallelism=widths.get(v.id, v.parallelism),
            operators=tuple(replace(o, outer=(0,) * (v.id == "source")) for o in v.operators),
        )
        for v in graph.job.vertices
    )
    tasks = tuple(TaskId(v.id, i) for v in vertices for i in range(v.parallelism))
    pairs = [(a, b) for a in tasks for b in tasks if (a.vertex, b.vertex) == ("source", "sink")]
    channels = tuple(
        Channel(ChannelId(i), 0, a, b, b.subtask, a.subtask) for i, (a, b) in enumerate(pairs)
    )
    edges = (JobEdge(0, "source", "sink", Rebalance()),)
    job = replace(graph.job, vertices=vertices, edges=edges)
    return replace(graph, job=job, tasks=tasks, channels=channels)


class Parts:
    """A job of three regions, and what its master asked for last."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.master = JobMaster("job", graph, random.Random(0))
        self.master.start(0)
        self.master.on_loaded(NONE, 0)
        self.master.on_sources_ready(0, 0)
        self.say(TaskRunning, EVERY, 0, 0)

    def say(self, kind: Any, tasks: Any, attempt: int, now: int) -> tuple[Any, ...]:
        said = [self.master.on_report(kind(task, attempt), now) for task in tasks]
        self.master.validate()
        return tuple(action for actions in said for action in actions)

    def told(self, actions: Any, mail: type) -> list[TaskId]:
        sent = [action for action in actions if isinstance(action, act.Send)]
        return [action.task for action in sent if isinstance(action.mail, mail)]

    def checkpoint(self, n: int, now: int, attempts: Any = None) -> Manifest:
        """Taken, up to where its manifest is to be stored."""
        self.master.on_tick(now)
        self.master.on_sources_snapshot(0, n, {"source": b"s", "solo": b"o"}, now)
        for task in EVERY:
            attempt = (attempts or {}).get(task, 0)
            part = CheckpointAcknowledged(task, attempt, n, SubtaskSnapshot(task))
            found = self.master.on_report(part, now)
        (stored,) = [action for action in found if isinstance(action, act.StoreCheckpoint)]
        return stored.manifest

    def restart(self, tasks: Any, old: int, new: int, now: int, latest: Latest = NONE) -> Any:
        """From where the tasks have stopped to where they are deployed: that."""
        found = self.master.on_tasks_stopped(old, tasks, now)
        newest = 0 if latest.manifest is None else latest.manifest.checkpoint_id
        if not any(isinstance(action, act.LoadForRegion) for action in found):
            found = self.master.on_tick(now + 50)
        assert act.LoadForRegion(new, 0, newest) in found
        (asked,) = self.master.on_region_loaded(new, latest, now + 50)[:1]
        assert isinstance(asked, act.RestartReaders)
        self.master.validate()
        return asked
