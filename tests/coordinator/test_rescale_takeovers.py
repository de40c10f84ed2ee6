"""A coordinator that comes after one that died while its job was rescaled, or had been. Times are
ms."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from scripted_job import TWICE, at, of
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest
from strom.core.job_status import JobStatus
from strom.engine.accounts import Stage, TaskAccount
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.handover import Handover
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph
from strom.engine.graph.rescaling import shapes_of

Graphs = Callable[..., ExecutionGraph]

RESCALES = 4
"""That went well under the coordinators before."""


def test_a_coordinator_knows_what_a_job_is_to_be_that_another_left_smaller(graph: Graphs) -> None:
    whole = graph(TWICE)
    small = at(whole, 1)
    master = JobMaster("job", small, random.Random(0), takes_over=True, left=Handover(wanted=whole))
    assert master.wanted is whole
    assert master.status().shortage == "runs with 1 of 2"


def another(graph: ExecutionGraph, former: ExecutionGraph | None, accounts: Any) -> Any:
    """What comes after one that died: the master, and what it asks for first."""
    master = JobMaster(
        "job",
        graph,
        random.Random(0),
        first_attempt=5,
        takes_over=True,
        left=Handover(graph, former, former, rescales=RESCALES),
    )
    master.start(1000)
    states = {"source": b"s"}
    manifest = Manifest("job", "demo", 1, 5, (), (), states, terminal=False)
    master.on_loaded(Latest(manifest, (), (1, 1)), 1001)
    actions = master.on_tasks_found(accounts, 1002)
    master.validate()
    return master, actions


def accounts_of(graph: ExecutionGraph, stage: Stage = Stage.RUNNING) -> list[TaskAccount]:
    shapes = shapes_of(graph.job)
    return [
        TaskAccount(task, 4, stage, began_with=1, seen=1, completed=1, shape=shapes[task.vertex])
        for task in graph.tasks
    ]


@pytest.mark.parametrize(("ran", "runs"), [(2, 3), (3, 2), (3, 1)])
def test_tasks_of_another_graph_do_not_go_on(graph: Graphs, ran: int, runs: int) -> None:
    """Whichever of the two the next coordinator has found written down."""
    left, now = at(graph(TWICE), ran), at(graph(TWICE), runs)
    master, actions = another(now, None, accounts_of(left))
    (cancel,) = of(act.CancelAll, actions)
    assert not of(act.TakeOverSources, actions)
    assert act.LoadLatest() in master.on_all_stopped(cancel.attempt, 1010)
    master.validate()


@pytest.mark.parametrize("to", [1, 3])
def test_the_next_coordinator_goes_on_with_a_rescale(graph: Graphs, to: int) -> None:
    """All new tasks run: it says so, and that the former graph is not needed any more."""
    before, after = graph(TWICE), at(graph(TWICE), to)
    master, actions = another(after, before, accounts_of(after))
    assert of(act.TakeOverSources, actions)
    actions = master.on_sources_ready(4, 1003)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(after, None)]
    state = master.status()
    assert (state.status, state.rescales, state.shortage) == (JobStatus.RUNNING, RESCALES + 1, None)
    kept = master.handover(act.KeepGraph(after, None))
    assert master.wanted is kept.wanted is after
    assert kept.rescales == RESCALES + 1


@pytest.mark.parametrize("to", [1, 3])
def test_the_next_coordinator_may_go_back_as_well(graph: Graphs, to: int) -> None:
    """No task was there, and there is no room for them. Then the job is not to be that, either."""
    before, after = graph(TWICE), at(graph(TWICE), to)
    master, actions = another(after, before, [])
    (prepare,) = of(act.PrepareSources, actions)
    (deployed,) = of(act.DeployAll, master.on_sources_ready(prepare.attempt, 1003))
    master.on_deploy_failed(deployed.attempt, "no slots", 1004)
    actions = master.on_all_stopped(deployed.attempt, 1005)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(before, None)]
    assert act.LoadLatest() in master.on_graph_kept(1006)
    assert (master.status().restarts, master.status().rescales) == (0, RESCALES)
    assert master.wanted is before
    assert master.status().shortage is None


def test_the_next_coordinator_goes_on_with_growth(graph: Graphs) -> None:
    """To what there was room for, of what the job is to be still."""
    whole = at(graph(TWICE), 4)
    before, after = graph(TWICE), at(graph(TWICE), 3)
    master = JobMaster(
        "job",
        after,
        random.Random(0),
        first_attempt=5,
        takes_over=True,
        left=Handover(after, before, whole),
    )
    assert master.wanted is whole
    assert master.status().shortage == "runs with 3 of 4"
