"""A rescale for which tasks of vertices that do not change stand still, and go on. Times are ms.

The job is that of `parts` (tests/coordinator/conftest.py), whose sinks are to become three: its
sources, from which these read, stay; A and B have nothing to do with it. Without A and B, it is one
that the rescale concerns as a whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from regions_kit import EVERY, FOUR, SINKS, SOLO, SOURCES, Parts, at
from scripted_job import TWICE, of
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.savepoints import Savepoint
from strom.checkpoint.storage import Latest
from strom.core.checkpointing_mode import CheckpointingMode
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.accounts import Stage, TaskAccount
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.askers import Asker
from strom.engine.coordinator.handover import Handover
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.coordinator.rescaled_part import part_of, staying_part_of
from strom.engine.graph.model import ExecutionGraph
from strom.engine.graph.rescaling import shapes_of
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    GoOn,
    SplitsAssigned,
    SplitsRequested,
    TaskDrained,
    TaskFailed,
    TaskRunning,
    TriggerCheckpoint,
)

Graphs = Callable[..., ExecutionGraph]

NEW = (*SINKS, TaskId("sink", 2))

STAGES = ["asked", "taken", "keeping", "stopping", "loading", "preparing", "starting"]


def alone(graph: ExecutionGraph) -> ExecutionGraph:
    """Without A and B."""
    vertices = tuple(v for v in graph.job.vertices if v.id != "solo")
    tasks = tuple(task for task in graph.tasks if task.vertex != "solo")
    return replace(graph, job=replace(graph.job, vertices=vertices), tasks=tasks)


# --- which tasks ---------------------------------------------------------------------------------


def test_what_does_not_change_stays(parts: Graphs) -> None:
    now = at(parts())
    part = staying_part_of(now, at(now, sink=3))
    assert part is not None
    assert (part.stops, part.starts.tasks, part.stays) == (SINKS, NEW, SOURCES)
    assert (part.former, part.then.tasks) == ((*SINKS, *SOURCES), (*SOURCES, *NEW))
    assert (part.starts.sources, part.then.sources) == ((), ("source",))
    assert part.concerns(SOURCES[0])
    assert not part.concerns(SOLO[0])
    every = part.without_stays()
    assert (set(every.stops), every.starts) == (set(FOUR), part.then)
    assert every.starts == part_of(now, at(now, sink=3)).starts  # type: ignore[union-attr]


def test_nobody_stays_where_all_change_that_are_concerned(parts: Graphs) -> None:
    now = at(parts())
    assert staying_part_of(now, at(now, sink=3, source=3)) is None
    assert staying_part_of(now, at(now, solo=3)) is None
    assert staying_part_of(now, now) is None


def test_it_may_concern_all(parts: Graphs) -> None:
    now = alone(at(parts()))
    part = staying_part_of(now, alone(at(parts(), source=1)))
    assert part is not None
    assert (part.stops, part.stays) == (SOURCES, SINKS)
    assert part_of(now, alone(at(parts(), source=1))) is None


# --- what the master does ------------------------------------------------------------------------


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


@pytest.fixture
def holding(parts: Graphs) -> Holding:
    return Holding(at(parts(TWICE)))


@pytest.fixture
def whole(parts: Graphs) -> Holding:
    return Holding(alone(at(parts(TWICE))), FOUR)


def error_of(actions: Any) -> str:
    (answer,) = of(act.AnswerRescale, tuple(actions))
    assert answer.figures is None
    return str(answer.error)


def held(actions: Any) -> list[TaskId]:
    """Who is told to take a part of a checkpoint that holds."""
    sent = [one for one in of(act.Send, actions) if isinstance(one.mail, TriggerCheckpoint)]
    return [one.task for one in sent if one.mail.halt]


def test_only_what_changes_stops_and_the_rest_of_its_region_is_wired_anew(holding: Holding) -> None:
    m, master = holding, holding.master
    actions = m.asked(100)
    assert held(actions) == list(SOURCES)
    assert m.told(actions, TriggerCheckpoint) == [*SOURCES, *SOLO]
    m.taken()
    actions = m.did(master.on_stored(1, 110))
    assert m.told(actions, CheckpointCompleted) == list(EVERY), "sinks commit"
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.after, m.before)]
    assert not of(act.CancelTasks, actions), "not before it is written down"
    assert m.kept() == (act.CancelTasks(0, SINKS),)
    assert master.status().running_tasks == 2
    assert of(act.LoadForRegion, m.stopped()) == [act.LoadForRegion(1, 0)]
    assert m.loaded()[:1] == (act.RestartReaders(1, 0, (), {}, ()),), "no enumerator begins anew"
    assert m.ready() == (act.DeployTasks(1, NEW, m.manifest, frozenset(), SOURCES),)
    m.say(TaskRunning, NEW, 1, 155)
    assert master.status().rescales == 0, "not before all are wired"
    actions = m.say(TaskRunning, SOURCES, 0, 160)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.after, None)]
    (answer,) = of(act.AnswerRescale, actions)
    figures = answer.figures
    assert (figures.stopped_tasks, figures.held_tasks, figures.kept_tasks) == (2, 2, 2)
    assert figures.silence_ms == 60, "from where they were told to stand still on"
    assert not m.told(actions, GoOn)
    state = master.status()
    assert (state.restarts, state.rescales, state.running_tasks) == (0, 1, 7)
    attempts = {task: record.attempt for task, record in state.history.tasks.items()}
    assert attempts == {**dict.fromkeys((*SOURCES, *SOLO), 0), **dict.fromkeys(NEW, 1)}


def test_a_job_of_one_region_is_not_stopped_for_it(whole: Holding) -> None:
    m, master = whole, whole.master
    m.to("starting")
    assert master.status().status is JobStatus.RUNNING
    (answer,) = of(act.AnswerRescale, m.run())
    assert (answer.figures.stopped_tasks, answer.figures.held_tasks) == (2, 2)
    assert answer.figures.kept_tasks == 0


def test_those_that_stay_are_heard_and_told_meanwhile(holding: Holding) -> None:
    """What they were about to get they get; what they ask for waits until all run."""
    m, master = holding, holding.master
    asked = master.on_report(SplitsRequested(SOURCES[0], 0, "source"), 50)
    assert asked == (act.AskForSplits(0, "source", SOURCES[0]),)
    m.to("stopping")
    given = SplitsAssigned("source", (1,))
    told = master.on_splits(0, "source", SOURCES[0], given, 125)
    assert told == (act.Send(SOURCES[0], given),)
    assert master.on_report(SplitsRequested(SOURCES[1], 0, "source"), 126) == ()
    m.stopped()
    m.loaded()
    m.ready()
    actions = m.run()
    assert of(act.AskForSplits, actions) == [act.AskForSplits(0, "source", SOURCES[1])]


def test_who_had_come_to_its_end_says_so_again(holding: Holding) -> None:
    m, master = holding, holding.master
    m.say(TaskDrained, SOURCES, 0, 50)
    m.to("starting")
    m.run()
    m.say(TaskDrained, SOURCES, 0, 161)
    m.say(TaskDrained, SOLO, 0, 162)
    actions = m.say(TaskDrained, NEW, 1, 163)
    assert not of(act.CancelAll, actions)
    assert master.status().restarts == 0


# --- what goes wrong before its checkpoint is complete --------------------------------------------


def test_a_checkpoint_that_fails_lets_them_go_on(holding: Holding) -> None:
    m, master = holding, holding.master
    m.asked()
    actions = master.on_report(CheckpointDeclined(SINKS[0], 0, 1, "no room"), 104)
    assert "no room" in error_of(actions)
    assert m.told(actions, CheckpointAborted) == list(EVERY)
    assert set(m.told(actions, GoOn)) == set(FOUR)
    master.validate()


def test_who_drops_a_rescale_lets_them_go_on(holding: Holding) -> None:
    """Its checkpoint is one as any other then."""
    m, master = holding, holding.master
    master.on_rescale(1, m.after, Asker.LOAD, 100)
    master.on_room(1, None, 100)
    assert held(master.on_sources_snapshot(0, 1, {}, 100)) == list(SOURCES)
    actions = m.did(master.on_savepoint(Savepoint(7, "/s"), 101))
    assert "gave way" in error_of(actions)
    free = [one for one in of(act.Send, actions) if isinstance(one.mail, GoOn)]
    assert {one.mail for one in free} == {GoOn(1)}
    assert {one.task for one in free} == set(FOUR)
    m.taken()
    assert not of(act.KeepGraph, master.on_stored(1, 110))


def test_one_that_is_dropped_before_its_checkpoint_begins_holds_nobody(holding: Holding) -> None:
    m, master = holding, holding.master
    master.on_rescale(1, m.after, Asker.LOAD, 100)
    master.on_room(1, None, 100)
    master.on_savepoint(Savepoint(7, "/s"), 101)
    actions = master.on_sources_snapshot(0, 1, {}, 102)
    assert m.told(actions, TriggerCheckpoint) == [*SOURCES, *SOLO]
    assert held(actions) == []


def test_a_region_that_fails_drops_it(holding: Holding) -> None:
    m, master = holding, holding.master
    m.asked()
    actions = m.did(master.on_task_lost(SOLO[0], 0, "killed", 104))
    assert "failed meanwhile" in error_of(actions)
    assert set(m.told(actions, GoOn)) == set(FOUR)


@pytest.mark.parametrize("stage", ["asked", "taken"])
@pytest.mark.parametrize("who", [SOURCES[0], SINKS[0]])
def test_one_that_it_holds_may_fail_meanwhile(holding: Holding, stage: str, who: TaskId) -> None:
    """Its region begins again, as it was."""
    m, master = holding, holding.master
    m.to(stage)
    actions = m.did(master.on_report(TaskFailed(who, 0, "no disk"), 106))
    assert "failed meanwhile" in error_of(actions)
    assert set(m.told(actions, GoOn)) == set(FOUR)
    (cancel,) = of(act.CancelTasks, actions)
    assert set(cancel.tasks) == set(FOUR)
    assert (master.graph, master.status().restarts) == (m.before, 1)


@pytest.mark.parametrize("stage", ["asked", "taken"])
def test_where_it_concerns_all_that_is_a_failure_of_the_job(whole: Holding, stage: str) -> None:
    m, master = whole, whole.master
    m.to(stage)
    actions = m.did(master.on_task_lost(SOURCES[0], 0, "killed", 106))
    assert "RESTARTING" in error_of(actions)
    assert set(m.told(actions, GoOn)) == set(FOUR)
    assert of(act.CancelAll, actions)
    assert (master.graph, master.status().restarts) == (m.before, 1)


def test_nobody_stands_still_where_records_may_count_twice(parts: Graphs) -> None:
    m = Holding(at(parts(TWICE, mode=CheckpointingMode.AT_LEAST_ONCE)))
    assert held(m.asked()) == []
    m.taken()
    m.master.on_stored(1, 110)
    (cancel,) = of(act.CancelTasks, m.kept())
    assert set(cancel.tasks) == set(FOUR)


@pytest.mark.parametrize("overtaken", [True, False])
def test_they_stop_if_something_is_on_its_way(parts: Graphs, overtaken: bool) -> None:
    """Which they only know once the checkpoint has come through."""
    m = Holding(at(parts(TWICE, unaligned=True)))
    assert held(m.asked()) == list(SOURCES)
    if overtaken:
        handle: Any = SimpleNamespace(file=SimpleNamespace(size=7, shared=False))
        snapshot: Any = SimpleNamespace(in_flight=handle, files=(), size=7, task=SINKS[0])
        m.master.on_report(CheckpointAcknowledged(SINKS[0], 0, 1, snapshot), 102)
    m.taken()
    m.master.on_stored(1, 110)
    (cancel,) = of(act.CancelTasks, m.kept())
    assert set(cancel.tasks) == set(FOUR if overtaken else SINKS)


def test_they_stop_where_a_later_checkpoint_is_complete_before_it(parts: Graphs) -> None:
    """The first one is given up then, and they have gone on."""
    m = Holding(at(parts(TWICE, max_concurrent=2)))
    master = m.master
    m.asked(10)
    assert of(act.SnapshotSources, master.on_tick(120)) == [act.SnapshotSources(0, 2)]
    assert held(master.on_sources_snapshot(0, 2, {}, 121)) == []
    m.taken(2, 122)
    actions = master.on_stored(2, 123)
    assert m.told(actions, CheckpointAborted) == list(EVERY)
    (cancel,) = of(act.CancelTasks, m.kept())
    assert set(cancel.tasks) == set(FOUR)


# --- what goes wrong behind it -------------------------------------------------------------------


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


@pytest.mark.parametrize("stage", ["loading", "preparing", "starting"])
@pytest.mark.parametrize("who", ["stays", "new"])
def test_from_then_on_the_part_goes_back(holding: Holding, stage: str, who: str) -> None:
    m, master = holding, holding.master
    m.to(stage)
    if who == "stays":
        actions = master.on_task_lost(SOURCES[0], 0, "killed", 155)
    elif stage == "starting":
        actions = master.on_report(TaskFailed(NEW[2], 1, "bug", recoverable=False), 155)
    else:
        return
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
