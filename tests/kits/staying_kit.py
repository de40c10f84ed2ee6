"""A rescale for which tasks of vertices that do not change stand still, and go on. Times are ms.

The job is that of `parts` (tests/coordinator/conftest.py), whose sinks are to become three: its
sources, from which these read, stay; A and B have nothing to do with it. Without A and B (`alone`),
it is one that the rescale concerns as a whole.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from regions_kit import EVERY, FOUR, SINKS, SOURCES, Parts, at
from scripted_job import of
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.storage import Latest
from strom.core.ids import TaskId
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.askers import Asker
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph
from strom.engine.messages import (
    CheckpointAcknowledged,
    TaskRunning,
    TriggerCheckpoint,
)

NEW = (*SINKS, TaskId("sink", 2))

STAGES = ["asked", "taken", "keeping", "stopping", "loading", "preparing", "starting"]


def alone(graph: ExecutionGraph) -> ExecutionGraph:
    """Without A and B."""
    vertices = tuple(v for v in graph.job.vertices if v.id != "solo")
    tasks = tuple(task for task in graph.tasks if task.vertex != "solo")
    return replace(graph, job=replace(graph.job, vertices=vertices), tasks=tasks)


class Holding(Parts):
    """The sinks are to become three. `every`: all tasks of the job."""

    def __init__(self, graph: ExecutionGraph, every: Any = EVERY) -> None:
        self.before, self.after = graph, at(graph, sink=3)
        if len(every) == len(FOUR):
            self.after = alone(self.after)
        self.every = every
        self.master = JobMaster("job", self.before, random.Random(0))
        self.master.start(0)
        self.master.on_loaded(Latest(None), 0)
        self.master.on_sources_ready(0, 0)
        self.say(TaskRunning, every, 0, 0)

    def asked(self, now: int = 100) -> Any:
        """Up to where its checkpoint is taken: what the sources are told."""
        self.master.on_rescale(1, self.after, Asker.SOMEBODY, now)
        self.master.on_room(1, None, now)
        states = {v.id: b"s" for v in self.before.job.vertices if v.is_source}
        return self.master.on_sources_snapshot(0, 1, states, now)

    def taken(self, n: int = 1, now: int = 105) -> Any:
        """To where it is to be stored."""
        for task in self.every:
            part = CheckpointAcknowledged(task, 0, n, SubtaskSnapshot(task))
            found = self.master.on_report(part, now)
        (stored,) = of(act.StoreCheckpoint, found)
        self.manifest = stored.manifest
        return found

    def held(self, now: int = 110) -> Any:
        self.asked()
        self.taken()
        return self.did(self.master.on_stored(1, now))

    def did(self, actions: Any) -> Any:
        self.master.validate()
        return actions

    def kept(self, now: int = 120) -> Any:
        return self.did(self.master.on_graph_kept(now))

    def stopped(self, tasks: Any = SINKS, attempt: int = 0, now: int = 130) -> Any:
        return self.did(self.master.on_tasks_stopped(attempt, tasks, now))

    def loaded(self, attempt: int = 1, now: int = 140) -> Any:
        latest = Latest(self.manifest, (), (1, 1))
        return self.did(self.master.on_region_loaded(attempt, latest, now))

    def ready(self, attempt: int = 1, now: int = 150) -> Any:
        return self.did(self.master.on_readers_ready(attempt, [], now))

    def to(self, stage: str) -> None:
        early = {"asked": self.asked, "taken": self.taken}
        for name, begin in early.items():
            if stage in early:
                begin()
            if stage == name:
                return
        steps = {"keeping": self.held, "stopping": self.kept, "loading": self.stopped}
        steps |= {"preparing": self.loaded, "starting": self.ready}
        for name, step in steps.items():
            step()
            if name == stage:
                return

    def run(self, now: int = 160) -> Any:
        """The new sinks run, and the sources are wired anew."""
        return (*self.say(TaskRunning, NEW, 1, now), *self.say(TaskRunning, SOURCES, 0, now))

    def again(self, tasks: Any, stops: Any, attempt: int) -> Any:
        """All of a region, or of the job, from its stop to its start."""
        actions = self.master.on_tasks_stopped(attempt, stops, 200)
        (load,) = of(act.LoadForRegion, (*actions, *self.master.on_tick(300)))
        self.loaded(load.attempt, 310)
        (deployed,) = of(act.DeployTasks, self.ready(load.attempt, 320))
        assert set(deployed.tasks) == set(tasks)
        assert deployed.stays == ()
        return self.did(self.say(TaskRunning, deployed.tasks, load.attempt, 330))


def error_of(actions: Any) -> str:
    (answer,) = of(act.AnswerRescale, tuple(actions))
    assert answer.figures is None
    return str(answer.error)


def held(actions: Any) -> list[TaskId]:
    """Who is told to take a part of a checkpoint that holds."""
    sent = [one for one in of(act.Send, actions) if isinstance(one.mail, TriggerCheckpoint)]
    return [one.task for one in sent if one.mail.halt]
