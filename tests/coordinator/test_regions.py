"""Which tasks are restarted together, and what a job master does when it restarts some of them.
Times are ms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from regions_kit import EVERY, FOUR, SINKS, SOURCES, A, B, Parts
from scripted_job import NONE, TWICE
from strom.checkpoint.savepoints import Savepoint
from strom.checkpoint.storage import Latest, Rejected
from strom.core.config import FixedDelayRestart, JobConfig, NoRestart
from strom.core.ids import ChannelId, TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.regions import Region, regions_of
from strom.engine.graph.model import (
    ChainedOperator,
    Channel,
    ExecutionGraph,
    JobGraph,
    JobVertex,
)
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    SplitsAssigned,
    SplitsRequested,
    TaskDrained,
    TaskFailed,
    TaskRunning,
    TriggerCheckpoint,
)

# --- which tasks ---------------------------------------------------------------------------------


def two_chains(**said: bool) -> ExecutionGraph:
    """source -> sink, forward, at parallelism 2."""
    source = SimpleNamespace(source=SimpleNamespace(independent_readers=said["readers"]))
    sink = SimpleNamespace(sink=SimpleNamespace(independent_writers=said["writers"]))
    vertices = (
        JobVertex("s", "S", (ChainedOperator("s", "S", source, is_source=True),), 2, 128),
        JobVertex("k", "K", (ChainedOperator("k", "K", sink, is_sink=True),), 2, 128),
    )
    tasks = tuple(TaskId(v, i) for v in "sk" for i in range(2))
    channels = tuple(
        Channel(ChannelId(i), 0, TaskId("s", i), TaskId("k", i), 0, 0) for i in range(2)
    )
    return ExecutionGraph(JobGraph("two", vertices, (), JobConfig()), tasks, channels)


def test_forward_edges_make_a_region_of_each_subtask() -> None:
    regions = regions_of(two_chains(readers=True, writers=True))
    assert [region.tasks for region in regions] == [
        (TaskId("s", 0), TaskId("k", 0)),
        (TaskId("s", 1), TaskId("k", 1)),
    ]
    assert [region.readers for region in regions] == [
        (("s", TaskId("s", 0)),),
        (("s", TaskId("s", 1)),),
    ]


@pytest.mark.parametrize(("readers", "writers"), [(False, True), (True, False), (False, False)])
def test_connectors_that_need_it_are_restarted_whole(readers: bool, writers: bool) -> None:
    (region,) = regions_of(two_chains(readers=readers, writers=writers))
    assert len(region.tasks) == 4
    assert region.sources == ("s",)
    assert region.readers == ()


def test_channels_join(parts: Callable[..., ExecutionGraph]) -> None:
    assert regions_of(parts()) == (
        Region(FOUR, ("source",)),
        Region((A,), (), (("solo", A),)),
        Region((B,), (), (("solo", B),)),
    )


# --- what the master does ------------------------------------------------------------------------


@pytest.fixture
def job(parts: Callable[..., ExecutionGraph]) -> Parts:
    return Parts(parts(TWICE))


def test_one_task_begins_again_and_the_others_hear_of_its_checkpoint(job: Parts) -> None:
    """A fails while checkpoint 2 is on: it is given up, and A goes back to checkpoint 1."""
    master = job.master
    manifest = job.checkpoint(1, 100)
    assert job.told(master.on_stored(1, 110), CheckpointCompleted) == [*EVERY]
    assert any(isinstance(a, act.SnapshotSources) for a in master.on_tick(200))
    actions = master.on_report(TaskFailed(A, 0, "ValueError: x"), 220)
    assert act.CancelTasks(0, (A,)) in actions
    assert job.told(actions, CheckpointAborted) == [*FOUR, B]
    state = master.status()
    assert (state.status, state.restarts, state.running_tasks) == (JobStatus.RUNNING, 1, 5)
    assert state.history.failures[-1].task == A
    # Meanwhile there is neither a checkpoint nor a savepoint, and what A says is its end only.
    assert not job.told(master.on_tick(230), TriggerCheckpoint)
    assert master.on_trigger(231) == ()
    (refused,) = master.on_savepoint(Savepoint(1, "/s", None), 232)
    assert "a part of the job is being restarted" in str(refused)
    assert master.on_report(TaskDrained(A, 0), 233) == ()
    # Others read on.
    asked = master.on_report(SplitsRequested(B, 0, "solo"), 234)
    assert act.AskForSplits(0, "solo", B) in asked
    asked = job.restart((A,), 0, 1, 240, Latest(manifest))
    assert asked == act.RestartReaders(1, 0, (), {}, (("solo", A),))
    again = SplitsAssigned("solo", ("again",))
    actions = master.on_readers_ready(1, [(A, again)], 300)
    assert act.DeployTasks(1, (A,), manifest, own_share=frozenset({"solo"})) in actions
    # It asks before it is known to run: what it had comes first.
    assert master.on_report(SplitsRequested(A, 1, "solo"), 301) == ()
    actions = job.say(TaskRunning, (A,), 1, 302)
    assert actions[:2] == (act.Send(A, again), act.AskForSplits(0, "solo", A))
    assert any(isinstance(a, act.SnapshotSources) for a in actions), "a checkpoint that was due"
    attempts = {task: record.attempt for task, record in master.status().history.tasks.items()}
    assert attempts == {**dict.fromkeys(EVERY, 0), A: 1}


def test_a_checkpoint_that_is_being_stored_is_waited_for(job: Parts) -> None:
    """And told to those who go on, for they commit; the region goes back to it."""
    job.checkpoint(1, 100)
    job.master.on_report(TaskFailed(A, 0, "x"), 110)
    job.master.on_tasks_stopped(0, (A,), 120)
    assert not any(isinstance(a, act.LoadForRegion) for a in job.master.on_tick(500))
    actions = job.master.on_stored(1, 600)
    assert job.told(actions, CheckpointCompleted) == [*FOUR, B]
    assert act.ForgetSplits(1) in actions
    assert act.LoadForRegion(1, 0, 1) in actions


def test_a_source_of_one_region_begins_again_with_its_enumerator(job: Parts) -> None:
    manifest = job.checkpoint(1, 100)
    job.master.on_stored(1, 110)
    job.master.on_task_lost(SINKS[0], 0, "killed", 120)
    asked = job.restart(FOUR, 0, 1, 130, Latest(manifest))
    assert asked == act.RestartReaders(1, 0, ("source",), {"source": b"s"}, ())


def test_what_the_job_started_from_is_dealt_out_as_it_was_then(job: Parts) -> None:
    job.master.on_report(TaskFailed(A, 0, "x"), 10)
    asked = job.restart((A,), 0, 1, 20)
    assert asked.states == {}
    actions = job.master.on_readers_ready(1, [], 80)
    assert act.DeployTasks(1, (A,), None, own_share=frozenset()) in actions


def test_regions_that_fail_together_count_once(parts: Callable[..., ExecutionGraph]) -> None:
    """As with the loss of a machine; the second is restarted when the first is."""
    job = Parts(parts(FixedDelayRestart(1, TWICE.delay)))
    job.master.on_task_lost(A, 0, "node died", 10)
    actions = job.master.on_task_lost(SINKS[1], 0, "node died", 11)
    assert act.CancelTasks(0, FOUR) in actions
    assert job.master.status().restarts == 1
    assert len(job.master.status().history.failures) == 2
    job.master.on_tasks_stopped(0, FOUR, 12)
    job.master.on_tasks_stopped(0, (A,), 13)
    loads = [a for a in job.master.on_tick(60) if isinstance(a, act.LoadForRegion)]
    assert [load.attempt for load in loads] == [1, 2]
    # Both run: the job may fail no more.
    for attempt, tasks in ((1, (A,)), (2, FOUR)):
        job.master.on_region_loaded(attempt, NONE, 61)
        job.master.on_readers_ready(attempt, [], 61)
        job.say(TaskRunning, tasks, attempt, 62)
    assert job.master.status().running_tasks == 6
    actions = job.master.on_report(TaskFailed(B, 0, "and again"), 70)
    assert act.CancelAll(2) in actions
    assert job.master.status().status is JobStatus.FAILING


def test_a_region_that_fails_as_it_starts_is_stopped_again(job: Parts) -> None:
    job.master.on_report(TaskFailed(SOURCES[0], 0, "x"), 10)
    job.restart(FOUR, 0, 1, 20)
    job.master.on_readers_ready(1, [], 80)
    job.say(TaskRunning, SOURCES, 1, 81)
    # Of the attempt before nothing is heard any more.
    assert job.master.on_task_lost(SINKS[0], 0, "late", 82) == ()
    actions = job.master.on_deploy_failed(1, "no room", 83)
    assert act.CancelTasks(1, FOUR) in actions
    assert job.say(TaskRunning, SINKS, 1, 84) == ()
    job.restart(FOUR, 1, 2, 85)
    assert job.master.status().last_failure == "a part of the job could not be deployed: no room"


def test_the_loss_of_a_process_explains_a_broken_connection(job: Parts) -> None:
    job.master.on_report(TaskFailed(SINKS[0], 0, "connection lost", True, symptom=True), 10)
    job.master.on_task_lost(SOURCES[1], 0, "killed", 11)
    assert job.master.status().last_failure == "task Numbers (2/2) was lost: killed"
    assert job.master.status().restarts == 1


def test_the_job_is_restarted_if_the_checkpoint_is_not_the_newest(job: Parts) -> None:
    """The others have gone on from checkpoint 1: a region must not go back behind it."""
    job.checkpoint(1, 100)
    job.master.on_stored(1, 110)
    job.master.on_report(TaskFailed(A, 0, "x"), 120)
    job.master.on_tasks_stopped(0, (A,), 130)
    job.master.on_tick(180)
    damaged = Latest(None, (Rejected(1, "truncated"),))
    actions = job.master.on_region_loaded(1, damaged, 190)
    assert act.CancelAll(1) in actions
    assert job.master.status().status is JobStatus.RESTARTING
    assert "checkpoint 1" in str(job.master.status().last_failure)
    assert act.LoadLatest(0) in job.master.on_all_stopped(1, 200)


@pytest.mark.parametrize("event", ["storage", "enumerator", "stop", "finished", "full", "none"])
def test_what_concerns_all_restarts_all(parts: Callable[..., ExecutionGraph], event: str) -> None:
    graph = parts(NoRestart() if event == "none" else TWICE)
    if event == "full":
        config = replace(graph.job.config, failover_strategy="full")
        graph = replace(graph, job=replace(graph.job, config=config))
    job, failed = Parts(graph), TaskFailed(A, 0, "x")
    match event:
        case "storage":
            job.master.on_report(failed, 10)
            job.master.on_tasks_stopped(0, (A,), 20)
            job.master.on_tick(60)
            actions = job.master.on_region_failed(1, "unreachable", 70)
        case "enumerator":
            actions = job.master.on_source_failed(0, "no folder", 10)
        case "stop":
            job.master.on_savepoint(Savepoint(1, "/s", "halt"), 10)
            actions = job.master.on_report(failed, 11)
        case "finished":  # the terminal checkpoint is complete
            job.say(TaskDrained, EVERY, 0, 10)
            job.checkpoint(1, 11)
            job.master.on_stored(1, 12)
            actions = job.master.on_report(failed, 13)
        case _:
            actions = job.master.on_report(failed, 10)
    assert any(isinstance(action, act.CancelAll) for action in actions)
    job.master.validate()


def test_a_region_that_was_done_is_not_restarted_with_another(job: Parts) -> None:
    """A runs again and drains; then the terminal checkpoint is taken."""
    job.say(TaskDrained, (*FOUR, B), 0, 10)
    job.master.on_report(TaskFailed(A, 0, "x"), 20)
    job.restart((A,), 0, 1, 30)
    job.master.on_readers_ready(1, [], 90)
    job.say(TaskRunning, (A,), 1, 91)
    actions = job.say(TaskDrained, (A,), 1, 92)
    pending = [a for a in actions if isinstance(a, act.SnapshotSources)]
    assert pending or job.master.status().checkpoints.in_progress is not None


def test_a_cancel_stops_what_is_being_restarted_too(job: Parts) -> None:
    job.master.on_report(TaskFailed(A, 0, "x"), 10)
    job.restart((A,), 0, 1, 20)
    job.master.on_readers_ready(1, [], 80)
    assert act.CancelAll(1) in job.master.on_cancel(81)
    assert job.say(TaskRunning, (A,), 1, 82) == ()
    ended = job.master.on_all_stopped(1, 83)
    assert act.JobEnded(JobStatus.CANCELED) in ended
