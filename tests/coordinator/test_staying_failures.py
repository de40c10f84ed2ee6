"""Tasks of vertices that do not change, in a rescale, when something goes wrong behind its
checkpoint, and when another coordinator finds them: the job is that of `staying_kit`. Times are ms.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from regions_kit import EVERY, FOUR, SINKS, SOLO, SOURCES, at
from scripted_job import TWICE, of
from staying_kit import NEW, STAGES, Holding, alone, error_of
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.savepoints import Savepoint
from strom.checkpoint.storage import Latest
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.accounts import Stage, TaskAccount
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.handover import Handover
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph
from strom.engine.graph.rescaling import shapes_of
from strom.engine.messages import (
    GoOn,
    TaskFailed,
    TaskRunning,
)

Graphs = Callable[..., ExecutionGraph]


def test_all_that_is_concerned_begins_again_if_one_that_stays_fails(holding: Holding) -> None:
    """At the new parallelism; that is no restart, and others go on."""
    m, master = holding, holding.master
    m.to("keeping")
    assert not of(act.CancelTasks, m.did(master.on_task_lost(SOURCES[0], 0, "killed", 115)))
    (cancel,) = of(act.CancelTasks, m.kept())
    assert set(cancel.tasks) == set(FOUR)
    actions = m.again((*SOURCES, *NEW), cancel.tasks, cancel.attempt)
    (answer,) = of(act.AnswerRescale, actions)
    figures = answer.figures
    assert (figures.stopped_tasks, figures.held_tasks, figures.kept_tasks) == (4, 0, 2)
    assert master.status().restarts == 0
    assert master.graph is m.after


def test_also_while_the_others_stop(holding: Holding) -> None:
    m, master = holding, holding.master
    m.to("stopping")
    failed = TaskFailed(SOURCES[1], 0, "no disk")
    (cancel,) = of(act.CancelTasks, m.did(master.on_report(failed, 125)))
    assert set(cancel.tasks) == set(FOUR)
    assert m.stopped() == (), "the answer to what was asked before"
    m.again((*SOURCES, *NEW), cancel.tasks, cancel.attempt)
    assert master.status().rescales == 1


@pytest.mark.parametrize(
    ("stage", "who"),
    [("loading", "stays"), ("preparing", "stays"), ("starting", "stays"), ("starting", "new")],
)
def test_from_then_on_the_part_goes_back(holding: Holding, stage: str, who: str) -> None:
    m, master = holding, holding.master
    m.to(stage)
    if who == "stays":
        actions = master.on_task_lost(SOURCES[0], 0, "killed", 155)
    else:
        actions = master.on_report(TaskFailed(NEW[2], 1, "bug", recoverable=False), 155)
    m.did(actions)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.before, m.after, returns=True)]
    (cancel,) = of(act.CancelTasks, actions)
    assert set(cancel.tasks) == {*SOURCES, *NEW}
    assert cancel.attempt == 1, "of those that have begun, too"
    m.kept(160)
    actions = m.again(FOUR, cancel.tasks, cancel.attempt)
    assert "as it was" in error_of(actions)
    assert master.graph is m.before
    assert master.status().restarts == 0


@pytest.mark.parametrize("stage", ["keeping", "stopping", "loading", "preparing", "starting"])
def test_where_it_concerns_all_the_whole_job_begins_again(whole: Holding, stage: str) -> None:
    m, master = whole, whole.master
    m.to(stage)
    actions = m.did(master.on_task_lost(SOURCES[0], 0, "killed", 155))
    (cancel,) = of(act.CancelAll, actions)
    actions = (*master.on_all_stopped(cancel.attempt, 160), *master.on_tick(500))
    back = stage not in ("keeping", "stopping")
    graph = m.before if back else m.after
    former = None if back else m.before
    assert of(act.KeepGraph, actions) == [act.KeepGraph(graph, former)]
    if stage == "keeping":
        assert m.kept(510) == (), "the answer to the one before"
    actions = m.kept(511)
    assert of(act.LoadLatest, actions)
    (prepare,) = of(act.PrepareSources, master.on_loaded(Latest(m.manifest, (), (1, 1)), 520))
    master.on_sources_ready(prepare.attempt, 530)
    said = m.did(m.say(TaskRunning, graph.tasks, prepare.attempt, 540))
    if back:
        assert "as it was" in error_of(actions)
    else:
        (answer,) = of(act.AnswerRescale, said)
        assert (answer.figures.stopped_tasks, answer.figures.held_tasks) == (4, 0)
    assert master.graph is graph
    assert (master.status().status, master.status().restarts) == (JobStatus.RUNNING, 0)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("stop", [None, "drain", "halt"])
def test_a_savepoint_is_refused_at_every_step_and_disturbs_nothing(
    holding: Holding, stage: str, stop: Any
) -> None:
    """Also one that is to stop the job: whoever wants it asks again."""
    m = holding
    m.to(stage)
    actions = m.did(m.master.on_savepoint(Savepoint(7, "/s", stop), 155))
    (answer,) = of(act.AnswerSavepoint, actions)
    assert "ask again when" in str(answer.error)
    assert len(actions) == 1
    if stage == "asked":
        m.taken()
    if stage in ("asked", "taken"):
        m.did(m.master.on_stored(1, 156))
    after = STAGES.index(stage)
    for name, step in {
        "keeping": m.kept,
        "stopping": m.stopped,
        "loading": m.loaded,
        "preparing": m.ready,
    }.items():
        if STAGES.index(name) >= after:
            step()
    (made,) = of(act.AnswerRescale, m.run())
    assert made.figures.held_tasks == 2


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("job", ["holding", "whole"])
def test_the_job_may_be_cancelled_at_every_step(
    job: str, stage: str, request: pytest.FixtureRequest
) -> None:
    m: Holding = request.getfixturevalue(job)
    m.to(stage)
    actions = m.did(m.master.on_cancel(155))
    assert "CANCELLING" in error_of(actions)
    (cancel,) = of(act.CancelAll, actions)
    actions = m.master.on_all_stopped(cancel.attempt, 160)
    if stage == "taken":
        actions = m.master.on_stored(1, 161)
    assert act.JobEnded(JobStatus.CANCELED) in actions


def test_another_part_may_fail_meanwhile(holding: Holding) -> None:
    m, master = holding, holding.master
    m.to("starting")
    actions = m.did(master.on_task_lost(SOLO[0], 0, "killed", 155))
    assert of(act.CancelTasks, actions) == [act.CancelTasks(0, SOLO[:1])]
    assert of(act.AnswerRescale, m.run())[0].figures.held_tasks == 2


def test_later_each_has_its_own_share_and_before_that_the_new_ones_a_new_one(
    holding: Holding,
) -> None:
    """A region of tasks that have begun with different checkpoints: all of it is stopped."""
    m, master = holding, holding.master
    m.to("starting")
    m.run()
    actions = m.did(master.on_task_lost(SOURCES[0], 0, "killed", 170))
    (cancel,) = of(act.CancelTasks, actions)
    assert cancel == act.CancelTasks(1, (*SOURCES, *NEW)), "the newest attempt of any"
    master.on_tasks_stopped(1, cancel.tasks, 171)
    (load,) = of(act.LoadForRegion, master.on_tick(400))
    m.loaded(load.attempt, 410)
    (deployed,) = of(act.DeployTasks, m.ready(load.attempt, 420))
    assert deployed.own_share == {"source"}, "whose others may have gone on"


# --- another coordinator -------------------------------------------------------------------------


def left(
    parts: Graphs, kept: bool, wired: Any, running: Any = (), solo: bool = True, back: bool = False
) -> tuple[JobMaster, Any]:
    """The next one, and what it does: `kept`: the new graph is written down; `wired`: those of the
    sources that are wired anew; `running`: of the new sinks; None: those of before are gone, and
    none is there; `back`: it is written down that the job goes back."""
    shape = (lambda graph: graph) if solo else alone
    before, after = shape(at(parts(TWICE))), shape(at(parts(TWICE), sink=3))
    master = JobMaster(
        "job",
        after if kept else before,
        random.Random(0),
        first_attempt=5,
        takes_over=True,
        left=Handover(None, before if kept else after if back else None, before, back),
    )
    states = {v.id: b"s" for v in before.job.vertices if v.is_source}
    latest = Latest(Manifest("job", "demo", 1, 5, (), (), states, terminal=False), (), (1, 1))

    def account(graph: ExecutionGraph, task: TaskId, attempt: int = 3) -> TaskAccount:
        told = shapes_of(graph.job)[task.vertex]
        return TaskAccount(task, attempt, Stage.RUNNING, 0, seen=1, completed=1, shape=told)

    accounts = [account(after if t in wired else before, t) for t in SOURCES]
    accounts += [account(before, t) for t in SOLO if solo]
    accounts += [account(after, t, 4) for t in running or ()]
    accounts += [account(before, t) for t in SINKS if running == ()]
    master.start(1000)
    master.on_loaded(latest, 1001)
    actions = master.on_tasks_found(accounts, 1002)
    if of(act.TakeOverSources, actions):
        actions = master.on_sources_ready(4, 1003)
    master.validate()
    return master, actions


def test_who_takes_over_lets_all_go_on_that_are_as_they_were(parts: Graphs) -> None:
    master, actions = left(parts, kept=False, wired=())
    sent = [one for one in of(act.Send, actions) if isinstance(one.mail, GoOn)]
    assert [(one.task, one.mail) for one in sent] == [(task, GoOn(1)) for task in EVERY]
    assert master.status().running_tasks == 6


@pytest.mark.parametrize("running", [(), None, NEW])
@pytest.mark.parametrize("wired", [(), SOURCES[:1]])
def test_and_begins_all_again_that_are_not_all_wired(
    parts: Graphs, wired: Any, running: Any
) -> None:
    master, actions = left(parts, kept=True, wired=wired, running=running)
    assert not of(act.CancelAll, actions)
    (cancel,) = of(act.CancelTasks, actions)
    assert set(cancel.tasks) == {*SOURCES, *NEW}
    assert master.status().running_tasks == 2


@pytest.mark.parametrize("running", [None, NEW])
@pytest.mark.parametrize("wired", [(), SOURCES[:1], SOURCES])
def test_who_finds_that_it_goes_back_begins_all_again_that_it_concerns(
    parts: Graphs, wired: Any, running: Any
) -> None:
    master, actions = left(parts, False, wired, running, back=True)
    assert not of(act.CancelAll, actions)
    (cancel,) = of(act.CancelTasks, actions)
    assert set(cancel.tasks) == {*FOUR, *(running or ())}
    assert master.status().running_tasks == 2
    assert master.graph.job.vertex("sink").parallelism == 2


def test_where_all_are_it_is_over(parts: Graphs) -> None:
    master, actions = left(parts, kept=True, wired=SOURCES, running=NEW)
    assert not of(act.CancelTasks, actions)
    assert master.status().rescales == 1


@pytest.mark.parametrize("running", [(), None, NEW])
@pytest.mark.parametrize("wired", [(), SOURCES[:1]])
def test_a_job_of_one_region_begins_again_then(parts: Graphs, wired: Any, running: Any) -> None:
    _, actions = left(parts, kept=True, wired=wired, running=running, solo=False)
    assert of(act.CancelAll, actions)
