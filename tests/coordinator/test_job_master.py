"""Scripted lives of a job. Times are ms."""

from __future__ import annotations

import random
from collections.abc import Callable

import cloudpickle
import pytest
from scripted_job import K0, K1, NONE, S0, S1, TASKS, TWICE, Job, of, to_all
from strom.checkpoint.storage import Latest
from strom.core.errors import GraphError, IllegalTransitionError
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import (
    CancelAll,
    DeployAll,
    JobEnded,
    LoadLatest,
    Publish,
    Send,
    TickAt,
)
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph, JobGraph
from strom.engine.messages import (
    CheckpointCompleted,
    MetricsReported,
    NoMoreSplits,
    SplitsAssigned,
    SplitsRequested,
    TaskDrained,
    TaskFinished,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
)


@pytest.fixture
def job(graph: Callable[..., ExecutionGraph]) -> Job:
    return Job(graph(TWICE))


def test_a_bounded_job_from_start_to_finish(job: Job) -> None:
    master = job.master
    # Start: look for a checkpoint, then deploy, then wait for every task.
    assert master.start(0) == (LoadLatest(0),)
    assert master.on_loaded(NONE, 1) == (DeployAll(0, None),)
    assert master.on_deployed(0, 2) == ()
    assert master.status().status is JobStatus.CREATED
    assert job.report_all(TaskRunning, 3) == (TickAt(103),)
    assert master.status().status is JobStatus.RUNNING
    # Splits are handed out on request; none now means: asked again at a tick.
    request = SplitsRequested(S0, 0, "source")
    for n in (1, 2, 3):
        assert master.on_report(request, 4) == (Send(S0, SplitsAssigned("source", (n,))),)
    assert master.on_report(request, 5) == (Send(S0, SplitsAssigned("source", ())),)
    job.made[0].sealed = True
    assert Send(S0, NoMoreSplits("source")) in master.on_tick(105)
    # That tick also triggered checkpoint 1, at the sources only.
    manifest = job.store(1, 110)
    assert {s.task for s in manifest.subtasks} == set(TASKS)
    assert manifest.enumerators == {"source": cloudpickle.dumps([])}
    assert master.on_stored(1, 111)[:4] == tuple(to_all(CheckpointCompleted(1)))
    # All tasks drained: the terminal checkpoint.
    drained = job.report_all(TaskDrained, 120)
    trigger = TriggerCheckpoint(2, 120, True, 1)
    assert of(Send, drained) == [Send(S0, trigger), Send(S1, trigger)]
    assert job.store(2, 130).terminal
    done = master.on_stored(2, 131)
    assert of(Send, done) == to_all(CheckpointCompleted(2, terminal=True))
    # Every task commits and finishes; one that is gone afterwards is no failure.
    for task in TASKS[:3]:
        assert master.on_report(TaskFinished(task, 0), 140) == ()
        assert master.on_task_lost(task, 0, "exited", 141) == ()
    assert master.on_report(TaskFinished(K1, 0), 142) == (JobEnded(JobStatus.FINISHED),)
    assert job.made[0].closed == 1
    state = master.status()
    assert (state.status, state.restarts, state.checkpoints.completed) == ("FINISHED", 0, 2)
    master.validate()


def test_terminal_checkpoint_is_taken_without_checkpointing(
    graph: Callable[..., ExecutionGraph],
) -> None:
    job = Job(graph(None, interval_ms=None))
    job.run()
    assert of(Send, job.report_all(TaskDrained, 5)) == [
        Send(t, TriggerCheckpoint(1, 5, True)) for t in (S0, S1)
    ]


def test_no_split_goes_out_before_every_task_runs(job: Job) -> None:
    master = job.master
    master.start(0)
    master.on_loaded(NONE, 1)
    # S0 is up and asks; a tick changes nothing while another task still starts.
    assert master.on_report(TaskRunning(S0, 0), 2) == ()
    assert master.on_report(SplitsRequested(S0, 0, "source"), 3) == ()
    assert of(Send, master.on_tick(500)) == []
    assert job.made[0].left == [1, 2, 3]
    master.validate()
    # The last task is up: the job runs, and the request is answered.
    sent = of(Send, job.report_all(TaskRunning, 600))
    assert sent == [Send(S0, SplitsAssigned("source", (1,)))]
    master.validate()


def test_splits_assigned_before_the_trigger_are_not_in_its_snapshot(job: Job) -> None:
    job.run()
    # Split 1 goes out, then the trigger: the snapshot holds 2 and 3 only, whatever comes after.
    job.master.on_report(SplitsRequested(S0, 0, "source"), 50)
    assert of(Send, job.master.on_tick(100))[0] == Send(S0, TriggerCheckpoint(1, 100))
    job.master.on_report(SplitsRequested(S1, 0, "source"), 101)
    manifest = job.store(1, 110)
    assert manifest.enumerators == {"source": cloudpickle.dumps([2, 3])}
    # A restore goes on from there.
    job.master.on_stored(1, 111)
    job.master.on_task_lost(K0, 0, "killed", 120)
    job.master.on_all_stopped(0, 121)
    job.master.on_tick(170)
    assert job.master.on_loaded(Latest(manifest, (), (1,)), 171) == (DeployAll(1, manifest),)
    assert job.restored == [{}, {"source": [2, 3]}]


def cancel_prefix(step: str, job: Job) -> bool:
    """Bring the job to a step; whether tasks are deployed there."""
    master = job.master
    if step != "new":
        master.start(0)
    if step not in ("new", "loading"):
        master.on_loaded(NONE, 0)
    if step in ("running", "stopping", "waiting"):
        job.report_all(TaskRunning, 0)
    if step in ("stopping", "waiting"):
        master.on_task_lost(S0, 0, "x", 1)
    if step == "waiting":
        master.on_all_stopped(0, 1)
    return step in ("deploying", "running", "stopping")


@pytest.mark.parametrize("step", ["new", "loading", "deploying", "running", "stopping", "waiting"])
def test_cancel_at_every_step(job: Job, step: str) -> None:
    deployed = cancel_prefix(step, job)
    actions = job.master.on_cancel(5)
    if deployed:
        assert of(CancelAll, actions) == ([] if step == "stopping" else [CancelAll(0)])
        assert job.master.status().status is JobStatus.CANCELLING
        assert job.master.on_cancel(6) == ()
        actions = job.master.on_all_stopped(0, 7)
    assert of(JobEnded, actions) == [JobEnded(JobStatus.CANCELED)]
    assert all(e.closed == 1 for e in job.made)
    # The answer to a load that was under way comes to nothing.
    assert job.master.on_loaded(NONE, 8) == ()
    job.master.validate()


def test_published_values_come_once(job: Job) -> None:
    job.run()
    value = ValuePublished(K0, 0, "sink", "k1", 42)
    assert job.master.on_report(value, 1) == (Publish("sink", "k1", 42),)
    assert job.master.on_report(value, 2) == ()
    # Also while stopping, and after a restart.
    job.master.on_task_lost(S0, 0, "x", 3)
    late = ValuePublished(K0, 0, "sink", "k2", 43)
    assert of(Publish, job.master.on_report(late, 4)) == [Publish("sink", "k2", 43)]


def test_metrics_are_kept_per_task(job: Job) -> None:
    job.run()
    job.master.on_report(MetricsReported(K0, 0, {"records": 1}), 1)
    job.master.on_report(MetricsReported(K0, 0, {"records": 2}), 2)
    state = job.master.status()
    assert state.metrics == {K0: {"records": 2}}
    assert (state.running_tasks, state.total_tasks) == (4, 4)


def test_a_failure_keeps_its_host(job: Job) -> None:
    """The attempt behind it begins with no figures, and may run elsewhere."""
    job.run()
    job.master.on_report(MetricsReported(K0, 0, {"process": {"host": "node-7"}}), 1)
    job.master.on_task_lost(K0, 0, "killed", 120)
    job.master.on_all_stopped(0, 121)
    job.master.on_tick(170)
    job.master.on_loaded(NONE, 171)
    job.report_all(TaskRunning, 180)
    job.master.on_task_lost(S0, 1, "killed", 190)
    first, second = job.master.status().history.failures
    assert (first.task, first.host) == (K0, "node-7")
    assert (second.task, second.host) == (S0, None)


def test_manual_trigger(job: Job) -> None:
    assert job.master.on_trigger(0) == ()
    job.run()
    assert of(Send, job.master.on_trigger(10))[0] == Send(S0, TriggerCheckpoint(1, 10))


def test_protocol_violations(job: Job) -> None:
    job.run()
    with pytest.raises(IllegalTransitionError, match=r"started twice.*events: \['start'"):
        job.master.start(1)
    with pytest.raises(IllegalTransitionError, match=r"zzz\[0\] reports"):
        job.master.on_report(TaskRunning(TaskId("zzz", 0), 0), 1)
    # A task that ends on its own, too early, is a failure of the job.
    job.master.on_report(TaskFinished(K0, 0), 2)
    assert "finished before the terminal" in (job.master.status().last_failure or "")


def test_a_graph_without_sources_is_refused(graph: Callable[..., ExecutionGraph]) -> None:
    empty = ExecutionGraph(JobGraph("empty", (), (), graph().job.config), (), ())
    with pytest.raises(GraphError, match="'empty' has no source"):
        JobMaster("job", empty, random.Random(0))
