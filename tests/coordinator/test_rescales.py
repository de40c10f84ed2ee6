"""A job that goes on at another parallelism while it runs: what it waits for, and what goes wrong
at each step. Times are ms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from scripted_job import TASKS, TWICE, Job, at, of
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.savepoints import Savepoint
from strom.checkpoint.storage import Latest
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.askers import Asker
from strom.engine.coordinator.handover import Handover
from strom.engine.graph.model import ExecutionGraph
from strom.engine.messages import (
    CheckpointAcknowledged,
    CheckpointDeclined,
    TaskFailed,
    TaskRunning,
)

Graphs = Callable[..., ExecutionGraph]


class Rescaling:
    """A job of two subtasks each that is asked to have three. `wanted`: it is to have so many, for
    which there was no room."""

    def __init__(self, graph: Graphs, wanted: int | None = None, **options: Any) -> None:
        self.before = graph(TWICE, interval_ms=None, **options)
        self.after = at(self.before, 3)
        more = None if wanted is None else at(self.before, wanted)
        self.job = Job(self.before, left=Handover(wanted=more))
        self.master: Any = self.job.master
        self.job.run()

    def ask(self, now: int = 10) -> Any:
        return self.master.on_rescale(1, self.after, Asker.SOMEBODY, now)

    def room(self, now: int = 11, why: str | None = None) -> Any:
        return self.master.on_room(1, why, now)

    def complete(self, now: int = 20) -> Any:
        """Its checkpoint, which is the first."""
        self.manifest: Manifest = self.job.store(1, now)
        return self.master.on_stored(1, now)

    def stopped(self, now: int = 25, attempt: int = 0) -> Any:
        return self.master.on_all_stopped(attempt, now)

    def load(self, now: int) -> Any:
        return self.master.on_loaded(Latest(self.manifest, (), (1, 1)), now)

    def starting(self) -> Any:
        """All up to the deployment of the three."""
        self.ask()
        self.room()
        self.complete()
        self.stopped()
        assert act.LoadLatest() in self.master.on_graph_kept(30)
        actions = self.load(40)
        self.master.validate()
        return actions

    def run(self, graph: ExecutionGraph, attempt: int, now: int) -> list[Any]:
        said = [self.master.on_report(TaskRunning(t, attempt), now) for t in graph.tasks]
        self.master.validate()
        return [action for actions in said for action in actions]


@pytest.fixture
def rescaling(graph: Graphs) -> Rescaling:
    return Rescaling(graph)


def error_of(actions: Any) -> str:
    (answer,) = of(act.AnswerRescale, actions)
    assert answer.figures is None
    return str(answer.error)


def test_it_goes_on_from_a_checkpoint_of_its_own_and_counts_as_no_restart(
    rescaling: Rescaling,
) -> None:
    r = rescaling
    assert of(act.MakeRoom, r.ask()) == [act.MakeRoom(1, r.after)]
    triggered = of(act.Send, r.room())
    assert {one.mail.checkpoint_id for one in triggered} == {1}
    assert of(act.CancelAll, r.complete(20)) == [act.CancelAll(0)]
    assert r.master.status().status is JobStatus.RESTARTING
    assert of(act.KeepGraph, r.stopped(25)) == [act.KeepGraph(r.after, r.before)]
    assert r.master.graph is r.before, "not before it is written down"
    assert act.LoadLatest() in r.master.on_graph_kept(30)
    assert r.master.graph is r.after
    (deployed,) = of(act.DeployAll, r.load(40))
    assert (deployed.attempt, deployed.restore) == (1, r.manifest)
    actions = r.run(r.after, 1, 75)
    assert of(act.KeepGraph, tuple(actions)) == [act.KeepGraph(r.after, None)]
    (answer,) = of(act.AnswerRescale, tuple(actions))
    assert answer.figures.before == {"Numbers": 2, "Collect": 2}
    assert answer.figures.after == {"Numbers": 3, "Collect": 3}
    assert (answer.figures.checkpoint_id, answer.figures.silence_ms) == (1, 55)
    state = r.master.status()
    assert (state.status, state.restarts, state.rescales) == (JobStatus.RUNNING, 0, 1)
    assert (state.running_tasks, state.total_tasks) == (6, 6)


def test_the_next_checkpoint_is_of_the_new_tasks_and_builds_on_none(rescaling: Rescaling) -> None:
    r = rescaling
    r.starting()
    r.run(r.after, 1, 75)
    triggered = of(act.Send, r.master.on_trigger(100))
    assert {one.task for one in triggered} == {TaskId("source", n) for n in range(3)}
    assert {(one.mail.checkpoint_id, one.mail.base) for one in triggered} == {(2, 0)}
    reports = [CheckpointAcknowledged(t, 1, 2, SubtaskSnapshot(t)) for t in r.after.tasks]
    actions = [a for report in reports for a in r.master.on_report(report, 110)]
    (stored,) = of(act.StoreCheckpoint, tuple(actions))
    assert [one.parallelism for one in stored.manifest.operators] == [3, 3]
    assert len(stored.manifest.subtasks) == 6


def test_what_tasks_say_that_are_no_more_is_not_heard(rescaling: Rescaling) -> None:
    r = rescaling
    r.after = at(r.before, 1)
    r.starting()
    gone = TaskId("sink", 1)
    assert r.master.on_report(TaskFailed(gone, 0, "late"), 50) == ()
    assert r.master.on_report(TaskFailed(gone, 1, "odd"), 50) == ()
    assert r.master.on_task_lost(gone, 1, "killed", 51) == ()
    r.run(r.after, 1, 60)
    assert r.master.status().total_tasks == 2


def test_without_room_nothing_happens(rescaling: Rescaling) -> None:
    rescaling.ask()
    actions = rescaling.room(why="no CPUs")
    assert error_of(actions) == "not rescaled: no CPUs"
    assert act.LeaveRoom() in actions
    assert rescaling.master.status().status is JobStatus.RUNNING


def test_a_checkpoint_that_fails_leaves_the_job_as_it_was(rescaling: Rescaling) -> None:
    """Nor does it count: none may fail here (tolerable_failures is 0)."""
    r = rescaling
    r.ask()
    r.room()
    actions = r.master.on_report(CheckpointDeclined(TASKS[0], 0, 1, "no disk"), 20)
    assert error_of(actions) == "not rescaled: checkpoint 1: no disk"
    assert r.master.status().status is JobStatus.RUNNING
    assert r.master.status().running_tasks == 4
    r.ask(30)
    assert of(act.Send, r.room(31)), "another one is begun"


@pytest.mark.parametrize("step", ["room", "checkpoint"])
def test_a_task_that_fails_meanwhile_ends_it(rescaling: Rescaling, step: str) -> None:
    r = rescaling
    r.ask()
    if step == "checkpoint":
        r.room()
    actions = r.master.on_report(TaskFailed(TASKS[0], 0, "bug"), 20)
    assert error_of(actions) == "not rescaled: the job is RESTARTING"
    assert r.master.status().restarts == 1
    assert of(act.KeepGraph, r.stopped()) == []
    r.master.validate()


@pytest.mark.parametrize("failure", ["deploy", "sources", "task", "lost", "load"])
def test_what_keeps_the_new_tasks_from_running_takes_the_job_back(
    rescaling: Rescaling, failure: str
) -> None:
    """To its former parallelism, from the same checkpoint, and without a restart being counted."""
    r = rescaling
    if failure in ("sources", "load"):
        r.ask()
        r.room()
        r.complete()
        r.stopped()
        r.master.on_graph_kept(30)
        r.job.fail_make = True
        actions = r.load(40) if failure == "sources" else r.master.on_load_failed("no disk", 40)
        r.job.fail_make = False
    else:
        r.starting()
        new = TaskId("sink", 2)
        match failure:
            case "deploy":
                actions = r.master.on_deploy_failed(1, "no slots", 50)
            case "task":
                actions = r.master.on_report(TaskFailed(new, 1, "bug", recoverable=False), 50)
            case _:
                actions = r.master.on_task_lost(new, 1, "killed", 50)
        assert act.CancelAll(1) in actions
        actions = r.stopped(55, attempt=1)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(r.before, None)]
    actions = r.master.on_graph_kept(60)
    assert "the job is as it was" in error_of(actions)
    (deployed,) = of(act.DeployAll, r.load(70))
    assert deployed.restore == r.manifest
    r.run(r.before, deployed.attempt, 80)
    state = r.master.status()
    assert (state.status, state.restarts, state.rescales) == (JobStatus.RUNNING, 0, 0)
    assert r.master.graph is r.before


@pytest.mark.parametrize("step", range(5))
def test_a_job_may_be_cancelled_at_every_step(rescaling: Rescaling, step: int) -> None:
    r = rescaling
    r.ask()
    steps: list[Callable[[], Any]] = [
        r.room,
        r.complete,
        r.stopped,
        lambda: r.master.on_graph_kept(30),
    ]
    for one in steps[:step]:
        one()
    actions = r.master.on_cancel(100)
    assert "CANCELLING" in error_of(actions)
    if act.CancelAll(0) in actions or step == 2:
        actions = r.stopped(110)
    assert act.JobEnded(JobStatus.CANCELED) in actions
    assert r.master.on_graph_kept(120) == ()
    r.master.validate()


def test_what_speaks_against_it(rescaling: Rescaling) -> None:
    r = rescaling
    r.ask()
    other = r.master.on_rescale(2, r.after, Asker.SOMEBODY, 12)
    assert "being rescaled already" in error_of(other)
    (refused,) = r.master.on_savepoint(Savepoint(3, "/s"), 13)
    assert "being rescaled" in refused.error
    r.master.on_room(2, None, 14)
    r.room(why="none")
    r.master.on_savepoint(Savepoint(4, "/s", "halt"), 15)
    assert "stopped with a savepoint" in error_of(r.ask(16))
    r.master.on_cancel(20)
    assert "CANCELLING, and not running" in error_of(r.ask(21))


# --- one that nobody asks for but the job's load, or room -----------------------------------------


def own(r: Rescaling, asker: Asker = Asker.LOAD, now: int = 10) -> Any:
    return r.master.on_rescale(1, r.after, asker, now)


@pytest.mark.parametrize("step", ["reserving", "checkpointing"])
@pytest.mark.parametrize("wanted", ["savepoint", "stop", "rescale"])
@pytest.mark.parametrize("asker", [Asker.LOAD, Asker.ROOM])
def test_it_gives_way_to_what_others_want(
    graph: Graphs, asker: Asker, wanted: str, step: str
) -> None:
    r = Rescaling(graph, wanted=3)
    assert of(act.MakeRoom, own(r, asker))
    if step == "checkpointing":
        r.room()
    match wanted:
        case "rescale":
            actions = r.master.on_rescale(2, r.after, Asker.SOMEBODY, 20)
            assert "gave way to another rescale" in error_of(actions)
            assert actions.index(act.LeaveRoom()) < actions.index(act.MakeRoom(2, r.after))
        case stop:
            asked = Savepoint(2, "/s", "halt" if stop == "stop" else None)
            actions = r.master.on_savepoint(asked, 20)
            assert "gave way to a savepoint" in error_of(actions)
            assert not of(act.AnswerSavepoint, actions)
    assert r.room(21) == (), "room comes too late"
    r.master.validate()


def test_from_when_tasks_stop_on_it_gives_way_to_nobody(rescaling: Rescaling) -> None:
    r = rescaling
    own(r)
    r.room()
    r.complete()
    (refused,) = r.master.on_savepoint(Savepoint(3, "/s"), 21)
    assert "not running" in refused.error
    assert "already" in error_of(r.master.on_rescale(2, r.after, Asker.SOMEBODY, 22))
    r.stopped()
    r.master.on_graph_kept(30)
    r.load(40)
    (answer,) = of(act.AnswerRescale, tuple(r.run(r.after, 1, 75)))
    assert answer.figures.after == {"Numbers": 3, "Collect": 3}


def test_it_waits_for_savepoints_and_all_else_that_is_on(rescaling: Rescaling) -> None:
    r = rescaling
    assert r.master.why_no_rescale(Asker.LOAD) is None
    r.master.on_savepoint(Savepoint(3, "/s"), 5)
    assert r.master.why_no_rescale(Asker.LOAD) == "a savepoint is being taken"
    assert "a savepoint is being taken" in error_of(own(r))
    r.ask()
    assert "already" in str(r.master.why_no_rescale(Asker.LOAD)), "who asks need not wait"
    r.master.on_cancel(20)
    assert "CANCELLING" in str(r.master.why_no_rescale(Asker.LOAD))


# --- too little room ------------------------------------------------------------------------------


class Little:
    """A job of two subtasks each, of which there is room for one when it is deployed."""

    def __init__(self, graph: Graphs, **options: Any) -> None:
        self.whole = graph(TWICE, interval_ms=None, **options)
        self.small = at(self.whole, 1)
        self.job = Job(self.whole)
        self.master: Any = self.job.master

    def deployed(self) -> Any:
        self.master.start(0)
        return self.master.on_loaded(Latest(None), 1)

    def shrinks(self, actions: Any, attempt: int, now: int) -> None:
        """All up to the deployment of one each."""
        assert of(act.CancelAll, actions) == [act.CancelAll(attempt)]
        kept = self.master.on_all_stopped(attempt, now)
        assert of(act.KeepGraph, kept) == [act.KeepGraph(self.small, None)]
        assert act.LoadLatest() in self.master.on_graph_kept(now)
        self.master.validate()

    def run(self, graph: ExecutionGraph, attempt: int, now: int) -> None:
        for task in graph.tasks:
            self.master.on_report(TaskRunning(task, attempt), now)
        self.master.validate()


@pytest.fixture
def little(graph: Graphs) -> Little:
    return Little(graph)


def test_a_job_starts_with_what_there_is_room_for_and_grows(little: Little) -> None:
    master = little.master
    (deployed,) = of(act.DeployAll, little.deployed())
    actions = master.on_little_room(deployed.attempt, little.small, "one CPU is free", 2)
    assert act.Warn("runs with 1 of 2: one CPU is free") in actions
    little.shrinks(actions, deployed.attempt, 3)
    (deployed,) = of(act.DeployAll, master.on_loaded(Latest(None), 4))
    little.run(little.small, deployed.attempt, 5)
    state = master.status()
    assert (state.status, state.restarts, state.rescales) == (JobStatus.RUNNING, 0, 0)
    assert state.shortage == "runs with 1 of 2: one CPU is free"
    assert master.wanted is little.whole

    assert of(act.MakeRoom, master.on_rescale(1, little.whole, Asker.ROOM, 10))
    master.on_room(1, None, 11)
    reports = [
        CheckpointAcknowledged(t, deployed.attempt, 1, SubtaskSnapshot(t))
        for t in little.small.tasks
    ]
    said = tuple(action for one in reports for action in master.on_report(one, 12))
    (stored,) = of(act.StoreCheckpoint, said)
    master.on_stored(1, 13)
    kept = master.on_all_stopped(deployed.attempt, 14)
    assert of(act.KeepGraph, kept) == [act.KeepGraph(little.whole, little.small)]
    master.on_graph_kept(15)
    (grown,) = of(act.DeployAll, master.on_loaded(Latest(stored.manifest, (), (1, 1)), 16))
    little.run(little.whole, grown.attempt, 17)
    state = master.status()
    assert (state.restarts, state.rescales, state.shortage) == (0, 1, None)


def test_a_job_that_runs_goes_on_smaller_when_its_slots_are_gone(little: Little) -> None:
    """A task was lost: that is a restart. That there is no room for it is none."""
    master = little.master
    little.job.run()
    master.on_task_lost(TASKS[0], 0, "its node died", 10)
    master.on_all_stopped(0, 11)
    master.on_tick(10_000)
    (deployed,) = of(act.DeployAll, master.on_loaded(Latest(None), 10_001))
    actions = master.on_little_room(deployed.attempt, little.small, "no room", 10_002)
    little.shrinks(actions, deployed.attempt, 10_003)
    assert master.status().restarts == 1


def test_it_may_find_less_room_twice_or_be_cancelled_meanwhile(graph: Graphs) -> None:
    little = Little(graph)
    master, three = little.master, at(little.whole, 3)
    little.small = little.whole
    little.job = Job(three)
    master = little.master = little.job.master
    (deployed,) = of(act.DeployAll, little.deployed())
    actions = master.on_little_room(deployed.attempt, little.small, "two", 2)
    little.shrinks(actions, deployed.attempt, 3)
    (deployed,) = of(act.DeployAll, master.on_loaded(Latest(None), 4))
    little.small = at(three, 1)
    actions = master.on_little_room(deployed.attempt, little.small, "one", 5)
    assert act.Warn("runs with 1 of 3: one") in actions
    assert master.on_little_room(deployed.attempt, little.small, "late", 6) == ()
    master.on_cancel(7)
    assert act.JobEnded(JobStatus.CANCELED) in master.on_all_stopped(deployed.attempt, 8)
    master.validate()


def test_a_rescale_that_finds_no_room_in_the_end_goes_back(rescaling: Rescaling) -> None:
    """Its slots are gone again: it goes to its former parallelism, and not to another one."""
    r = rescaling
    r.starting()
    actions = r.master.on_little_room(1, at(r.before, 1), "a node died", 50)
    assert act.CancelAll(1) in actions
    actions = r.stopped(55, attempt=1)
    assert of(act.KeepGraph, actions) == [act.KeepGraph(r.before, None)]
    assert "a node died" in error_of(r.master.on_graph_kept(60))


def test_who_asks_for_a_parallelism_says_what_the_job_is_to_be(rescaling: Rescaling) -> None:
    """From the moment on when it is written down, and until it goes back."""
    r = rescaling
    r.ask()
    r.room()
    r.complete()
    assert r.master.wanted is r.before
    r.stopped()
    assert r.master.wanted is r.after
    r.master.on_graph_kept(30)
    (deployed,) = of(act.DeployAll, r.load(40))
    r.run(r.after, deployed.attempt, 50)
    assert r.master.wanted is r.after
    assert r.master.status().shortage is None
    too_much = r.master.on_rescale(2, at(r.before, 4), Asker.ROOM, 60)
    assert "fewer subtasks by now" in error_of(too_much)
    too_few = r.master.on_rescale(3, at(r.before, 1), Asker.ROOM, 61)
    assert "more subtasks by now" in error_of(too_few)
    r.master.validate()


@pytest.mark.parametrize("asker", [Asker.SOMEBODY, Asker.LOAD])
def test_so_does_the_load_of_a_job_that_runs_smaller(graph: Graphs, asker: Asker) -> None:
    """It is asked to grow by less than there was no room for: then it is that, and grows no more.
    What cannot be carried out changes nothing."""
    r = Rescaling(graph, wanted=4)
    r.master.on_rescale(1, r.after, asker, 5)
    r.room(6, why="no slots")
    assert r.master.status().shortage == "runs with 2 of 4"
    r.master.on_rescale(1, r.after, asker, 10)
    r.room()
    r.complete()
    r.stopped()
    r.master.on_graph_kept(30)
    (deployed,) = of(act.DeployAll, r.load(40))
    r.run(r.after, deployed.attempt, 50)
    assert r.master.wanted is r.after
    assert r.master.status().shortage is None
    r.master.validate()


def test_growth_leaves_what_a_job_is_to_be(graph: Graphs) -> None:
    r = Rescaling(graph, wanted=4)
    r.master.on_rescale(1, r.after, Asker.ROOM, 10)
    r.room()
    r.complete()
    r.stopped()
    r.master.on_graph_kept(30)
    (deployed,) = of(act.DeployAll, r.load(40))
    r.run(r.after, deployed.attempt, 50)
    assert r.master.status().shortage == "runs with 3 of 4"
    assert r.master.why_no_rescale(Asker.LOAD) is None
    r.master.validate()
