"""A rescale that stops a part of the job while the others go on. Times are ms.

The job is that of `parts` (tests/coordinator/conftest.py): FOUR hang together, and beside them A
and B read alone, which are to become three.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from regions_kit import EVERY, FOUR, SOLO, A, B, Parts, at
from scripted_job import TWICE, of
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.savepoints import Savepoint
from strom.checkpoint.storage import Latest
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.askers import Asker
from strom.engine.coordinator.regions import Region
from strom.engine.coordinator.rescaled_part import Part, part_of
from strom.engine.graph.model import ExecutionGraph
from strom.engine.graph.rescaling import shapes_of
from strom.engine.messages import (
    CheckpointAcknowledged,
    SplitsAssigned,
    SplitsRequested,
    TaskDrained,
    TaskFailed,
    TaskRunning,
    TriggerCheckpoint,
)

Graphs = Callable[..., ExecutionGraph]

THREE = (A, B, TaskId("solo", 2))


# --- which tasks ---------------------------------------------------------------------------------


def test_what_shares_a_channel_with_what_changes_stops_and_no_more(parts: Graphs) -> None:
    now = at(parts())
    part = part_of(now, at(now, solo=3))
    assert part == Part(SOLO, Region(THREE, ("solo",)))
    part = part_of(now, at(now, sink=1))
    assert part == Part(FOUR, Region((*FOUR[:2], TaskId("sink", 0)), ("source",)))
    assert part_of(now, at(now, source=3, sink=3, solo=1)) is None
    assert part_of(now, now) is None


def test_tasks_tell_the_widths_of_what_they_hang_together_with(parts: Graphs) -> None:
    before, after = at(parts()), at(parts(), solo=3)
    assert shapes_of(before.job) == {"source": "2,2", "sink": "2,2", "solo": "2"}
    assert shapes_of(after.job) == {"source": "2,2", "sink": "2,2", "solo": "3"}
    assert shapes_of(at(parts(), sink=3).job) == {"source": "2,3", "sink": "2,3", "solo": "2"}


# --- what the master does ------------------------------------------------------------------------


class Moving(Parts):
    """A and B are to become three."""

    def __init__(self, graph: ExecutionGraph) -> None:
        self.before, self.after = at(graph), at(graph, solo=3)
        super().__init__(self.before)

    def held(self, now: int = 100) -> Any:
        """All up to where its checkpoint is complete."""
        assert of(act.MakeRoom, self.master.on_rescale(1, self.after, Asker.SOMEBODY, now))
        self.master.on_room(1, None, now)
        self.manifest = self.checkpoint(1, now)
        actions = self.master.on_stored(1, now)
        self.master.validate()
        return actions

    def kept(self, now: int = 110) -> Any:
        actions = self.master.on_graph_kept(now)
        self.master.validate()
        return actions

    def stopped(self, tasks: Any = SOLO, attempt: int = 0, now: int = 120) -> Any:
        actions = self.master.on_tasks_stopped(attempt, tasks, now)
        self.master.validate()
        return actions

    def loaded(self, attempt: int = 1, now: int = 130) -> Any:
        actions = self.master.on_region_loaded(attempt, Latest(self.manifest, (), (1, 1)), now)
        self.master.validate()
        return actions

    def ready(self, attempt: int = 1, now: int = 140) -> Any:
        actions = self.master.on_readers_ready(attempt, [], now)
        self.master.validate()
        return actions

    def to(self, stage: str) -> None:
        steps = {"keeping": self.held, "stopping": self.kept, "loading": self.stopped}
        steps |= {"preparing": self.loaded, "starting": self.ready}
        for name, step in steps.items():
            step()
            if name == stage:
                return

    def end(self, stage: str) -> Any:
        """From there to where the three run."""
        names = ("keeping", "stopping", "loading", "preparing", "starting")
        steps = (self.kept, self.stopped, self.loaded, self.ready)
        for step in steps[names.index(stage) :]:
            step()
        return self.say(TaskRunning, THREE, 1, 150)


STAGES = ("keeping", "stopping", "loading", "preparing", "starting")


@pytest.fixture
def moving(parts: Graphs) -> Moving:
    return Moving(parts(TWICE))


def error_of(actions: Any) -> str:
    (answer,) = of(act.AnswerRescale, tuple(actions))
    assert answer.figures is None
    return str(answer.error)


def test_only_what_is_concerned_stops(moving: Moving) -> None:
    m, master = moving, moving.master
    actions = m.held()
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.after, m.before)]
    assert not of(act.CancelTasks, actions), "not before it is written down"
    assert m.kept() == (act.CancelTasks(0, SOLO),)
    assert master.graph is m.before
    actions = m.stopped()
    assert master.graph is m.after
    assert of(act.LoadForRegion, actions) == [act.LoadForRegion(1, 0, 1)]
    assert m.loaded()[:1] == (act.RestartReaders(1, 0, ("solo",), {"solo": b"o"}, ()),)
    assert m.ready() == (act.DeployTasks(1, THREE, m.manifest, own_share=frozenset()),)
    state = master.status()
    assert (state.status, state.running_tasks, state.total_tasks) == (JobStatus.RUNNING, 4, 7)
    actions = m.say(TaskRunning, THREE, 1, 150)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.after, None)]
    (answer,) = of(act.AnswerRescale, actions)
    figures = answer.figures
    assert (figures.before, figures.after) == ({"Solo": 2}, {"Solo": 3})
    assert (figures.stopped_tasks, figures.kept_tasks, figures.silence_ms) == (2, 4, 40)
    state = master.status()
    assert (state.restarts, state.rescales, state.running_tasks) == (0, 1, 7)
    attempts = {task: record.attempt for task, record in state.history.tasks.items()}
    assert attempts == {**dict.fromkeys(FOUR, 0), **dict.fromkeys(THREE, 1)}


def test_the_others_read_on_and_no_checkpoint_is_taken_meanwhile(moving: Moving) -> None:
    m, master = moving, moving.master
    m.held()
    for task in SOLO:  # they run until it is written down
        assert master.on_report(SplitsRequested(task, 0, "solo"), 101) == ()
        assert master.on_report(TaskDrained(task, 0), 101) == ()
    asked = master.on_report(SplitsRequested(FOUR[0], 0, "source"), 102)
    assert asked == (act.AskForSplits(0, "source", FOUR[0]),)
    given = SplitsAssigned("source", (1,))
    assert master.on_splits(0, "source", FOUR[0], given, 103) == (act.Send(FOUR[0], given),)
    m.kept()
    assert not m.told(master.on_tick(300), TriggerCheckpoint)
    assert master.on_trigger(301) == ()
    (refused,) = of(act.AnswerSavepoint, master.on_savepoint(Savepoint(7, "/s"), 302))
    assert "a part of the job is being rescaled" in refused.error
    assert "already" in error_of(master.on_rescale(8, m.after, Asker.SOMEBODY, 303))
    m.stopped()
    m.loaded()
    m.ready()
    actions = m.say(TaskRunning, THREE, 1, 350)
    assert of(act.SnapshotSources, actions) == [act.SnapshotSources(0, 2)], "at once then"
    told = master.on_sources_snapshot(0, 2, {}, 360)
    assert m.told(told, TriggerCheckpoint) == [*FOUR[:2], *THREE]
    assert {one.mail.base for one in of(act.Send, told)} == {0}
    said = [
        master.on_report(CheckpointAcknowledged(t, int(t in THREE), 2, SubtaskSnapshot(t)), 370)
        for t in (*FOUR, *THREE)
    ]
    (stored,) = of(act.StoreCheckpoint, said[-1])
    assert [shape.parallelism for shape in stored.manifest.operators] == [2, 2, 3]
    assert len(stored.manifest.subtasks) == 7


@pytest.mark.parametrize("stage", STAGES)
def test_another_part_may_fail_meanwhile(moving: Moving, stage: str) -> None:
    """It begins again for itself, as ever; the rescale is over when its own tasks run."""
    m, master = moving, moving.master
    m.to(stage)
    actions = master.on_task_lost(FOUR[0], 0, "killed", 145)
    assert of(act.CancelTasks, actions) == [act.CancelTasks(0, FOUR)]
    assert master.status().restarts == 1
    actions = m.end(stage)
    (answer,) = of(act.AnswerRescale, actions)
    assert answer.figures.kept_tasks == 4
    assert not of(act.SnapshotSources, actions), "not all run"
    assert not of(act.LoadForRegion, master.on_tasks_stopped(0, FOUR, 160))
    (load,) = of(act.LoadForRegion, master.on_tick(300))
    m.loaded(load.attempt)
    (deployed,) = of(act.DeployTasks, m.ready(load.attempt))
    assert (deployed.tasks, deployed.own_share) == (FOUR, {"source", "sink"})
    m.say(TaskRunning, FOUR, load.attempt, 310)
    assert master.status().running_tasks == 7


def test_what_is_rescaled_deals_the_same_checkpoint_out_again(moving: Moving) -> None:
    """Until there is a newer one: then each has what was its own."""
    m, master = moving, moving.master
    m.to("starting")
    m.say(TaskRunning, THREE, 1, 150)
    numbers = {**dict.fromkeys(FOUR, 0), **dict.fromkeys(THREE, 1)}
    for share in (False, True):
        if share:
            master.on_sources_snapshot(0, 3, {}, 400)
            for task, number in numbers.items():
                part = CheckpointAcknowledged(task, number, 3, SubtaskSnapshot(task))
                found = master.on_report(part, 410)
            (stored,) = of(act.StoreCheckpoint, found)
            m.manifest = stored.manifest
            master.on_stored(3, 420)
        master.on_task_lost(A, numbers[A], "killed", 430)
        master.on_tasks_stopped(numbers[A], (A,), 431)
        (load,) = of(act.LoadForRegion, master.on_tick(500))
        m.loaded(load.attempt, 501)
        (deployed,) = of(act.DeployTasks, m.ready(load.attempt, 502))
        assert (deployed.tasks, deployed.own_share) == ((A,), {"solo"} if share else set())
        numbers[A] = load.attempt
        m.say(TaskRunning, (A,), load.attempt, 503)


@pytest.mark.parametrize("failure", ["task", "lost", "deploy", "room"])
def test_what_keeps_the_new_tasks_from_running_takes_only_them_back(
    moving: Moving, failure: str
) -> None:
    m, master = moving, moving.master
    m.to("starting")
    match failure:
        case "task":
            actions = master.on_report(TaskFailed(THREE[2], 1, "bug", recoverable=False), 150)
        case "lost":
            actions = master.on_task_lost(THREE[2], 1, "killed", 150)
        case "deploy":
            actions = master.on_deploy_failed(1, "no slots", 150)
        case _:
            actions = master.on_little_room(1, m.before, "no slots", 150)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.before, m.after, returns=True)]
    assert of(act.CancelTasks, actions) == [act.CancelTasks(1, THREE)]
    assert not of(act.CancelAll, actions)
    assert m.stopped(THREE, 1, 160) == (), "not before it is written down"
    (load,) = of(act.LoadForRegion, m.kept(170))
    assert master.graph is m.before
    m.loaded(load.attempt, 180)
    deployed = m.ready(load.attempt, 190)
    assert deployed == (act.DeployTasks(load.attempt, SOLO, m.manifest, own_share=frozenset()),)
    actions = m.say(TaskRunning, SOLO, load.attempt, 200)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(m.before, None)]
    assert "the job is as it was" in error_of(actions)
    state = master.status()
    assert (state.status, state.restarts, state.rescales) == (JobStatus.RUNNING, 0, 0)
    assert {master.status().history.tasks[task].attempt for task in FOUR} == {0}


def test_who_fails_on_the_way_back_fails_as_ever(moving: Moving) -> None:
    """All that were to come up again do so together."""
    m, master = moving, moving.master
    m.to("starting")
    master.on_task_lost(THREE[2], 1, "killed", 150)
    m.stopped(THREE, 1, 160)
    m.kept(170)
    m.loaded(2, 180)
    m.ready(2, 190)
    actions = master.on_task_lost(A, 2, "killed", 200)
    assert of(act.CancelTasks, actions) == [act.CancelTasks(2, SOLO)]
    assert master.status().restarts == 1
    assert not of(act.LoadForRegion, m.stopped(SOLO, 2, 210))
    (load,) = of(act.LoadForRegion, master.on_tick(400))
    m.loaded(load.attempt, 410)
    (deployed,) = of(act.DeployTasks, m.ready(load.attempt, 420))
    assert (deployed.tasks, deployed.own_share) == (SOLO, set())
    assert "as it was" in error_of(m.say(TaskRunning, SOLO, load.attempt, 430))


@pytest.mark.parametrize("stage", STAGES)
def test_where_the_whole_job_has_to_begin_again_so_does_the_rescale(
    moving: Moving, stage: str
) -> None:
    """At the new parallelism; unless that may be what is wrong."""
    m, master = moving, moving.master
    m.to(stage)
    actions = master.on_source_failed(0, "no bucket", 145)
    attempt = of(act.CancelAll, actions)[0].attempt
    actions = (*master.on_all_stopped(attempt, 150), *master.on_tick(500))
    match stage:
        case "keeping":
            assert of(act.KeepGraph, actions) == [act.KeepGraph(m.after, m.before)]
            assert m.kept(510) == (), "the answer to the one before"
            actions = m.kept(511)
        case "stopping":
            assert of(act.KeepGraph, actions) == [act.KeepGraph(m.after, m.before)]
            actions = m.kept(510)
        case _:
            assert master.status().restarts == 0
            assert of(act.KeepGraph, actions) == [act.KeepGraph(m.before, None)]
            actions = m.kept(510)
            assert "no bucket" in error_of(actions)
    assert of(act.LoadLatest, actions)
    back = stage not in ("keeping", "stopping")
    graph = m.before if back else m.after
    assert master.graph is graph
    (prepare,) = of(act.PrepareSources, master.on_loaded(Latest(m.manifest, (), (1, 1)), 520))
    master.on_sources_ready(prepare.attempt, 530)
    actions = m.say(TaskRunning, graph.tasks, prepare.attempt, 540)
    if not back:
        (answer,) = of(act.AnswerRescale, actions)
        assert (answer.figures.stopped_tasks, answer.figures.kept_tasks) == (6, 0)
    assert master.status().status is JobStatus.RUNNING


@pytest.mark.parametrize("stage", STAGES)
def test_the_job_may_be_cancelled_at_every_step(moving: Moving, stage: str) -> None:
    m = moving
    m.to(stage)
    actions = m.master.on_cancel(145)
    assert "CANCELLING" in error_of(actions)
    m.master.validate()
    (cancel,) = of(act.CancelAll, actions)
    ended = m.master.on_all_stopped(cancel.attempt, 150)
    assert act.JobEnded(JobStatus.CANCELED) in ended
    assert m.kept(160) == ()
    assert m.master.on_tasks_stopped(0, SOLO, 161) == ()


def test_without_regions_all_tasks_stop(parts: Graphs) -> None:
    graph = parts(TWICE)
    config = replace(graph.job.config, failover_strategy="full")
    m = Moving(replace(graph, job=replace(graph.job, config=config)))
    assert of(act.CancelAll, m.held()) == [act.CancelAll(0)]


def test_a_checkpoint_that_is_still_stored_is_waited_for(parts: Graphs) -> None:
    """What begins again goes back to the newest that may have been published."""
    m = Moving(parts(TWICE, max_concurrent=2))
    master = m.master
    master.on_rescale(1, m.after, Asker.SOMEBODY, 10)
    master.on_room(1, None, 10)
    master.on_sources_snapshot(0, 1, {}, 10)
    first = [CheckpointAcknowledged(t, 0, 1, SubtaskSnapshot(t)) for t in EVERY]
    for one in first:
        found = master.on_report(one, 20)
    assert of(act.StoreCheckpoint, found)
    assert of(act.SnapshotSources, master.on_tick(120)) == [act.SnapshotSources(0, 2)]
    master.on_sources_snapshot(0, 2, {}, 121)
    for one in first:
        found = master.on_report(replace(one, checkpoint_id=2), 122)
    (stored,) = of(act.StoreCheckpoint, found)
    assert of(act.KeepGraph, master.on_stored(1, 130))
    m.kept(131)
    assert m.stopped(now=140) == ()
    actions = master.on_stored(2, 150)
    assert of(act.LoadForRegion, actions) == [act.LoadForRegion(1, 0, 2)]
    assert m.told(actions, type(found)) == []
    actions = master.on_region_loaded(1, Latest(stored.manifest, (), (2, 2)), 160)
    assert of(act.RestartReaders, actions)
    master.validate()


def test_two_follow_each_other(moving: Moving) -> None:
    """The answer that the first is written down is not taken for that of the second."""
    m, master = moving, moving.master
    m.to("starting")
    m.say(TaskRunning, THREE, 1, 150)  # a checkpoint is begun, too
    m.before, m.after = m.after, at(m.after, solo=1)
    master.on_rescale(2, m.after, Asker.SOMEBODY, 160)
    master.on_room(2, None, 161)
    for n in (2, 3):
        master.on_sources_snapshot(0, n, {}, 170)
        for task in (*FOUR, *THREE):
            part = CheckpointAcknowledged(task, int(task in THREE), n, SubtaskSnapshot(task))
            found = master.on_report(part, 171)
        if of(act.StoreCheckpoint, found):
            found = master.on_stored(n, 172)
        if of(act.KeepGraph, found):
            break
    assert of(act.KeepGraph, found) == [act.KeepGraph(m.after, m.before)]
    assert m.kept(180) == ()
    assert m.kept(181) == (act.CancelTasks(1, THREE),)
