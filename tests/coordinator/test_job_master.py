"""Scripted lives of a job. Times are ms."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest
from strom.api.connectors.base import SplitEnumerator
from strom.checkpoint.handles import (
    FileHandle,
    KeyedHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest, Rejected
from strom.core.config import FixedDelayRestart, NoRestart
from strom.core.errors import GraphError, IllegalTransitionError
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import (
    CancelAll,
    DeployAll,
    DiscardCheckpoint,
    JobEnded,
    LoadLatest,
    Publish,
    Send,
    StoreCheckpoint,
    TickAt,
    Warn,
)
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.graph.model import ExecutionGraph, JobGraph
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    MetricsReported,
    NoMoreSplits,
    SplitsAssigned,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
)

S0, S1 = TaskId("source", 0), TaskId("source", 1)
K0, K1 = TaskId("sink", 0), TaskId("sink", 1)
TASKS = (S0, S1, K0, K1)
NONE = Latest(None)
TWICE = FixedDelayRestart(2, timedelta(milliseconds=50))


class Numbers(SplitEnumerator):
    """Splits from a list; None once `sealed`. `broken` names the method that raises."""

    def __init__(self, left: list[int]) -> None:
        self.left, self.sealed, self.closed, self.broken = left, False, 0, ""

    def next_splits(self, subtask: int) -> list[int] | None:
        if self.broken == "next":
            raise RuntimeError("no bucket")
        if self.left:
            return [self.left.pop(0)]
        return None if self.sealed else []

    def snapshot(self) -> list[int]:
        if self.broken == "snapshot":
            raise RuntimeError("no snapshot")
        return self.left

    def close(self) -> None:
        self.closed += 1
        if self.broken == "close":
            raise RuntimeError("no close")


class Job:
    """A job master with its enumerators kept for inspection."""

    def __init__(self, graph: ExecutionGraph, **options: Any) -> None:
        self.made: list[Numbers] = []
        self.restored: list[dict[Any, Any]] = []
        self.fail_make = False
        self.master = JobMaster("job", graph, self.make, random.Random(0), **options)

    def make(self, restored: dict[Any, Any]) -> dict[Any, SplitEnumerator]:
        if self.fail_make:
            raise RuntimeError("no such folder")
        self.restored.append(restored)
        self.made.append(Numbers(restored.get("source", [1, 2, 3])))
        return {"source": self.made[-1]}

    def report_all(self, kind: Any, now: int, attempt: int = 0) -> tuple[Any, ...]:
        return tuple(a for t in TASKS for a in self.master.on_report(kind(t, attempt), now))

    def acknowledge_all(self, n: int, now: int, attempt: int = 0) -> tuple[Any, ...]:
        reports = [CheckpointAcknowledged(t, attempt, n, SubtaskSnapshot(t)) for t in TASKS]
        return tuple(a for r in reports for a in self.master.on_report(r, now))

    def run(self, now: int = 0) -> None:
        self.master.start(now)
        self.master.on_loaded(NONE, now)
        self.report_all(TaskRunning, now)
        self.master.validate()

    def store(self, n: int, now: int, attempt: int = 0) -> Manifest:
        (stored,) = [
            a for a in self.acknowledge_all(n, now, attempt) if isinstance(a, StoreCheckpoint)
        ]
        return stored.manifest


@pytest.fixture
def job(graph: Callable[..., ExecutionGraph]) -> Job:
    return Job(graph(TWICE))


def of(kind: type, actions: tuple[Any, ...]) -> list[Any]:
    return [a for a in actions if isinstance(a, kind)]


def to_all(mail: Any) -> list[Send]:
    return [Send(task, mail) for task in TASKS]


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
    assert master.on_report(request, 5) == ()
    job.made[0].sealed = True
    assert master.on_tick(105)[-2:-1] == (Send(S0, NoMoreSplits("source")),)
    # That tick also triggered checkpoint 1, at the sources only.
    manifest = job.store(1, 110)
    assert {s.task for s in manifest.subtasks} == set(TASKS)
    assert manifest.enumerators == {"source": cloudpickle.dumps([])}
    assert master.on_stored(1, 111)[:4] == tuple(to_all(CheckpointCompleted(1)))
    # All tasks drained: the terminal checkpoint.
    drained = job.report_all(TaskDrained, 120)
    trigger = TriggerCheckpoint(2, 120, True)
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


def test_a_failure_restarts_after_the_delay(job: Job) -> None:
    job.run()
    job.master.on_tick(100)
    # The pending checkpoint is given up; only the first cause counts.
    actions = job.master.on_report(TaskFailed(K0, 0, "ValueError: x"), 120)
    assert actions == (CancelAll(0), DiscardCheckpoint(1))
    assert job.made[0].closed == 1
    assert job.master.on_report(TaskFailed(K1, 0, "peer is gone", False), 121) == ()
    assert job.master.on_report(TaskCancelled(S0, 0), 121) == ()
    assert job.master.status().status is JobStatus.RESTARTING
    assert job.master.status().last_failure == "ValueError: x"
    # The delay counts from the failure, and runs while the tasks stop.
    assert job.master.on_all_stopped(0, 130) == (TickAt(170),)
    assert job.master.on_tick(169) == (TickAt(170),)
    assert job.master.on_tick(170) == (LoadLatest(0),)
    assert job.master.on_loaded(NONE, 171) == (DeployAll(1, None),)
    # Reports of the former attempt are ignored.
    assert job.report_all(TaskRunning, 172, attempt=0) == ()
    assert job.report_all(TaskRunning, 173, attempt=1) == (TickAt(273),)
    # Ids go on.
    assert of(Send, job.master.on_tick(273))[0].mail.checkpoint_id == 2
    assert job.master.status().restarts == 1
    job.master.validate()


def test_restarts_run_out_with_the_first_cause(graph: Callable[..., ExecutionGraph]) -> None:
    job = Job(graph(NoRestart()))
    job.run()
    assert job.master.on_report(TaskFailed(K0, 0, "first"), 5) == (CancelAll(0),)
    assert job.master.on_report(TaskFailed(K1, 0, "second"), 6) == ()
    assert job.master.status().status is JobStatus.FAILING
    ended = JobEnded(JobStatus.FAILED, "first")
    assert job.master.on_all_stopped(0, 7) == (ended,)
    # Nothing wakes a dead job.
    assert job.master.on_cancel(8) == ()
    assert job.master.on_tick(10**9) == ()
    assert job.report_all(TaskRunning, 9) == ()


def test_a_lost_process_explains_a_broken_connection(graph: Callable[..., ExecutionGraph]) -> None:
    job = Job(graph(NoRestart()))
    job.run()
    job.master.on_report(TaskFailed(K0, 0, "it hung up", symptom=True), 5)
    assert job.master.on_task_lost(K1, 0, "killed", 6) == ()
    assert job.master.on_task_lost(S0, 0, "killed by the way", 7) == ()
    (ended,) = job.master.on_all_stopped(0, 8)
    assert isinstance(ended, JobEnded)
    assert ended.error is not None
    assert "was lost: killed" in ended.error
    assert "by the way" not in ended.error


def test_an_unrecoverable_failure_never_restarts(job: Job) -> None:
    job.run()
    job.master.on_report(TaskFailed(K0, 0, "not picklable", recoverable=False), 5)
    assert of(JobEnded, job.master.on_all_stopped(0, 6))[0].status is JobStatus.FAILED


def test_a_checkpoint_being_stored_is_waited_for_before_the_next_attempt(job: Job) -> None:
    job.run()
    job.master.on_tick(100)
    manifest = job.store(1, 110)
    # The job fails while the host publishes: no abort, no discard, no load yet.
    assert job.master.on_task_lost(S0, 0, "killed", 111) == (CancelAll(0),)
    assert job.master.on_all_stopped(0, 112) == ()
    assert job.master.on_tick(10_000) == ()
    # Published: complete, told to nobody (nobody is there), and restored from.
    assert job.master.on_stored(1, 10_001) == (LoadLatest(0),)
    loaded = job.master.on_loaded(Latest(manifest, (), (1,)), 10_002)
    assert loaded == (DeployAll(1, manifest),)
    assert job.master.status().checkpoints.restored_from == 1


def test_failure_after_the_terminal_checkpoint_restarts_from_it(job: Job) -> None:
    job.run()
    job.report_all(TaskDrained, 10)
    manifest = job.store(1, 20)
    job.master.on_stored(1, 21)
    job.master.on_report(TaskFinished(S0, 0), 22)
    assert job.master.on_task_lost(K0, 0, "killed", 23) == (CancelAll(0),)
    job.master.on_all_stopped(0, 24)
    job.master.on_tick(80)
    latest = Latest(manifest, (), (1,))
    assert job.master.on_loaded(latest, 81) == (DeployAll(1, manifest),)
    # Everything drains again, and the job ends with another terminal checkpoint.
    job.report_all(TaskRunning, 90, 1)
    job.report_all(TaskDrained, 91, 1)
    job.store(2, 92, 1)
    assert of(DiscardCheckpoint, job.master.on_stored(2, 93)) == [DiscardCheckpoint(1)]
    assert of(JobEnded, job.report_all(TaskFinished, 94, 1)) == [JobEnded(JobStatus.FINISHED)]


def test_declined_checkpoints_are_told_to_all_and_fail_the_job(job: Job) -> None:
    job.run()
    job.master.on_tick(100)
    actions = job.master.on_report(CheckpointDeclined(K1, 0, 1, "disk full"), 110)
    assert of(Send, actions) == to_all(CheckpointAborted(1))
    assert of(CancelAll, actions) == [CancelAll(0)]
    assert "declined by sink[1]: disk full" in (job.master.status().last_failure or "")


def test_rejected_checkpoints_are_warned_about(
    graph: Callable[..., ExecutionGraph],
) -> None:
    job = Job(graph())
    job.master.start(0)
    latest = Latest(None, (Rejected(7, "f.arrow is missing"),), (7,))
    warn, deploy = job.master.on_loaded(latest, 1)
    assert warn == Warn("checkpoint 7 is not used: f.arrow is missing")
    assert deploy == DeployAll(0, None)
    job.report_all(TaskRunning, 2)
    # Its id is not used again.
    assert of(Send, job.master.on_tick(102))[0].mail.checkpoint_id == 8


def manifest_with(operator: str, n: int = 4) -> Manifest:
    keyed = KeyedHandle("s", "value", FileHandle("f", 1, "0" * 16), ((0, 0, 1),))
    snapshot = SubtaskSnapshot(TaskId("v", 0), (OperatorSnapshot(operator, (keyed,)),))
    return Manifest("job", "demo", n, 0, (), (snapshot,))


def test_resume_false_never_goes_back_to_an_earlier_life(
    graph: Callable[..., ExecutionGraph],
) -> None:
    job = Job(graph(TWICE), resume=False)
    job.master.start(0)
    latest = Latest(manifest_with("sink"), (), (4,))
    assert job.master.on_loaded(latest, 1) == (DeployAll(0, None),)
    job.master.on_task_lost(S0, 0, "x", 2)
    job.master.on_all_stopped(0, 3)
    assert job.master.on_tick(60) == (LoadLatest(4),)
    assert job.master.on_loaded(Latest(None, (), (4,)), 61) == (DeployAll(1, None),)
    job.report_all(TaskRunning, 70, 1)
    assert of(Send, job.master.on_tick(170))[0].mail.checkpoint_id == 5
    job.store(5, 171, 1)
    assert of(DiscardCheckpoint, job.master.on_stored(5, 172)) == []


def test_unmatched_state_fails_the_job_unless_allowed(
    graph: Callable[..., ExecutionGraph],
) -> None:
    latest = Latest(manifest_with("dropped"), (), (4,))
    strict = Job(graph(TWICE))
    strict.master.start(0)
    (ended,) = strict.master.on_loaded(latest, 1)
    assert ended.status is JobStatus.FAILED
    assert "lacks: dropped" in ended.error
    lenient = Job(graph(TWICE), allow_unmatched=True)
    lenient.master.start(0)
    assert lenient.master.on_loaded(latest, 1) == (DeployAll(0, latest.manifest),)


@pytest.mark.parametrize("broken", ["next", "snapshot"])
def test_a_raising_enumerator_fails_the_job_with_its_operator(job: Job, broken: str) -> None:
    job.run()
    job.made[0].broken = broken
    if broken == "next":
        actions = job.master.on_report(SplitsRequested(S1, 0, "source"), 5)
    else:
        actions = job.master.on_tick(100)
    assert actions[0] == CancelAll(0)
    failure = job.master.status().last_failure or ""
    assert "operator 'Numbers'" in failure
    assert "RuntimeError: no " in failure
    job.master.validate()


def test_enumerators_that_cannot_be_made_or_closed(job: Job) -> None:
    job.fail_make = True
    job.master.start(0)
    assert job.master.on_loaded(NONE, 1) == (TickAt(51),)
    assert job.master.status().status is JobStatus.RESTARTING
    job.fail_make = False
    job.master.on_tick(51)
    job.master.on_loaded(NONE, 52)
    job.made[0].broken = "close"
    assert of(Warn, job.master.on_cancel(53)) == [
        Warn("operator 'Numbers': closing its enumerator failed: RuntimeError: no close")
    ]


def test_storage_that_cannot_be_read_and_deployment_that_fails(job: Job) -> None:
    job.master.start(0)
    assert job.master.on_load_failed("S3 is away", 1) == (TickAt(51),)
    assert job.master.on_tick(51) == (LoadLatest(0),)
    job.master.on_loaded(NONE, 52)
    assert job.master.on_deploy_failed(0, "no slots", 53) == (CancelAll(0),)
    assert "no slots" in (job.master.status().last_failure or "")
    assert job.master.on_all_stopped(0, 54) == (TickAt(103),)


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
        JobMaster("job", empty, lambda restored: {}, random.Random(0))
