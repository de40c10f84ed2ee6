"""A coordinator that comes after one that died while a part of its job was rescaled. Times are ms.

The job is that of `parts` (tests/coordinator/conftest.py): FOUR hang together, and beside them A
and B read alone, which were to become three.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from regions_kit import FOUR, SOLO, A, B, at
from scripted_job import TWICE, of
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest
from strom.core.config import NoRestart
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.accounts import Stage, TaskAccount
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.handover import Handover
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph
from strom.engine.graph.rescaling import shapes_of
from strom.engine.messages import (
    TaskRunning,
)

Graphs = Callable[..., ExecutionGraph]

THREE = (A, B, TaskId("solo", 2))


class Left:
    """The coordinator has died behind the moment when three were written down. What it has left, as
    far as that runs: FOUR, and of the others what `accounts` are of."""

    def __init__(self, parts: Graphs, returns: bool = False, policy: Any = None) -> None:
        self.before, self.after = at(parts(policy)), at(parts(policy), solo=3)
        now, former = (self.before, self.after) if returns else (self.after, self.before)
        self.master = JobMaster(
            "job",
            now,
            random.Random(0),
            first_attempt=5,
            takes_over=True,
            left=Handover(now, former, self.before, returns),
        )
        states = {"source": b"s", "solo": b"o"}
        self.manifest = Manifest("job", "demo", 1, 5, (), (), states, terminal=False)
        self.latest = Latest(self.manifest, (), (1, 1))

    def accounts(self, graph: ExecutionGraph, tasks: Any, stage: Stage) -> list[TaskAccount]:
        shapes = shapes_of(graph.job)
        return [
            TaskAccount(task, 4, stage, 1, seen=1, completed=1, shape=shapes[task.vertex])
            for task in tasks
        ]

    def found(self, accounts: list[TaskAccount]) -> Any:
        self.master.start(1000)
        self.master.on_loaded(self.latest, 1001)
        four = self.accounts(self.before, FOUR, Stage.RUNNING)
        actions = self.master.on_tasks_found([*four, *accounts], 1002)
        self.master.validate()
        if not of(act.TakeOverSources, actions):
            return actions
        actions = self.master.on_sources_ready(4, 1003)
        self.master.validate()
        return actions

    def comes_up(self, stops: Any, tasks: Any) -> Any:
        """From the stop of what is left to where the others run."""
        (load,) = of(act.LoadForRegion, self.master.on_tasks_stopped(4, stops, 1010))
        self.master.on_region_loaded(load.attempt, self.latest, 1020)
        actions = self.master.on_readers_ready(load.attempt, [], 1030)
        assert actions[:1] == (act.DeployTasks(load.attempt, tasks, self.manifest, frozenset()),)
        said = [self.master.on_report(TaskRunning(t, load.attempt), 1040) for t in tasks]
        self.master.validate()
        state = self.master.status()
        assert (state.status, state.restarts) == (JobStatus.RUNNING, 0)
        assert state.running_tasks == state.total_tasks
        return [action for actions in said for action in actions]


@pytest.mark.parametrize("stage", [Stage.RUNNING, Stage.STOPPING, Stage.OVER, None])
def test_the_next_coordinator_goes_on_where_the_former_tasks_are(
    parts: Graphs, stage: Stage | None
) -> None:
    """They may run still, be on their way out, or gone; it is no failure, of which none may be."""
    left = Left(parts, policy=NoRestart())
    accounts = [] if stage is None else left.accounts(left.before, SOLO, stage)
    actions = left.found(accounts)
    assert of(act.CancelTasks, actions) == [act.CancelTasks(4, THREE)]
    assert not of(act.CancelAll, actions)
    actions = left.comes_up(THREE, THREE)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(left.after, None)]
    state = left.master.status()
    assert (state.rescales, state.last_rescale.kept_tasks) == (1, 4)
    assert left.master.wanted is left.after


@pytest.mark.parametrize("some", [(), (A,), SOLO])
def test_or_where_some_of_the_new_ones_are(parts: Graphs, some: Any) -> None:
    left = Left(parts)
    rest = [task for task in THREE if task not in some]
    running = left.accounts(left.after, some, Stage.RUNNING)
    actions = left.found([*running, *left.accounts(left.after, rest, Stage.STARTING)])
    assert of(act.CancelTasks, actions) == [act.CancelTasks(4, THREE)]
    assert of(act.KeepGraph, left.comes_up(THREE, THREE)) == [act.KeepGraph(left.after, None)]


def test_where_all_run_it_is_over(parts: Graphs) -> None:
    left = Left(parts)
    actions = left.found(left.accounts(left.after, THREE, Stage.RUNNING))
    assert of(act.KeepGraph, actions) == [act.KeepGraph(left.after, None)]
    assert not of(act.CancelTasks, actions)
    assert left.master.status().rescales == 1


@pytest.mark.parametrize("new", [True, False])
def test_the_way_back_is_gone_on_as_well(parts: Graphs, new: bool) -> None:
    """The new tasks may be there still, also one that the job is not to have any more."""
    left = Left(parts, returns=True, policy=NoRestart())
    accounts = left.accounts(left.after, THREE, Stage.STOPPING) if new else []
    actions = left.found(accounts)
    stops = (*SOLO, THREE[2]) if new else SOLO
    assert of(act.CancelTasks, actions) == [act.CancelTasks(4, stops)]
    actions = left.comes_up(stops, SOLO)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(left.before, None)]
    assert left.master.status().rescales == 0
    assert left.master.wanted is left.before


def test_what_else_was_lost_has_failed(parts: Graphs) -> None:
    left = Left(parts, policy=TWICE)
    gone = left.accounts(left.before, FOUR[:1], Stage.STOPPING)
    left.master.start(1000)
    left.master.on_loaded(left.latest, 1001)
    others = left.accounts(left.before, FOUR[1:], Stage.RUNNING)
    left.master.on_tasks_found([*gone, *others], 1002)
    actions = left.master.on_sources_ready(4, 1003)
    assert of(act.CancelTasks, actions) == [act.CancelTasks(4, THREE), act.CancelTasks(4, FOUR)]
    assert left.master.status().restarts == 1
    left.master.validate()


def test_nobody_goes_on_beside_tasks_of_a_rescale_that_nobody_knows_of(parts: Graphs) -> None:
    """What was written down may be lost: then the job begins again as it says."""
    left = Left(parts)
    left.master = JobMaster("job", left.before, random.Random(0), first_attempt=5, takes_over=True)
    actions = left.found(left.accounts(left.after, THREE, Stage.RUNNING))
    assert of(act.CancelAll, actions) == [act.CancelAll(4)]
