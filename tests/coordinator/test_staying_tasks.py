"""Tasks of vertices that do not change, in a rescale, up to its checkpoint: the job is that of
`staying_kit`. Times are ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from regions_kit import EVERY, FOUR, SINKS, SOLO, SOURCES, at
from scripted_job import TWICE, of
from staying_kit import NEW, Holding, alone, error_of, held
from strom.checkpoint.savepoints import Savepoint
from strom.core.checkpointing_mode import CheckpointingMode
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.askers import Asker
from strom.engine.coordinator.rescaled_part import part_of, staying_part_of
from strom.engine.graph.model import ExecutionGraph, Rescale
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


def test_who_hears_of_event_time_from_some_of_those_that_change_does_not_stay(
    parts: Graphs,
) -> None:
    """These may get what others had, which were behind."""

    def pointwise(graph: ExecutionGraph) -> ExecutionGraph:
        edges = tuple(replace(edge, partitioner=Rescale()) for edge in graph.job.edges)
        return replace(graph, job=replace(graph.job, edges=edges))

    now = at(parts())
    assert staying_part_of(now, at(now, source=3)) is not None
    assert staying_part_of(pointwise(now), pointwise(at(now, source=3))) is None
    part = staying_part_of(pointwise(now), pointwise(at(now, sink=3)))
    assert part is not None
    assert part.stays == SOURCES


def test_it_may_concern_all(parts: Graphs) -> None:
    now = alone(at(parts()))
    part = staying_part_of(now, alone(at(parts(), source=1)))
    assert part is not None
    assert (part.stops, part.stays) == (SOURCES, SINKS)
    assert part_of(now, alone(at(parts(), source=1))) is None


# --- what the master does ------------------------------------------------------------------------


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
    assert of(act.LoadForRegion, m.stopped()) == [act.LoadForRegion(1, 0, 1)]
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
