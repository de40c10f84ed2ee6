"""What a job master does when tasks, checkpoints, enumerators or the storage fail. Times are ms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scripted_job import K0, K1, NONE, S0, S1, TWICE, Job, of, to_all
from strom.checkpoint.handles import (
    FileHandle,
    KeyedHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import Latest, Rejected
from strom.core.config import FailureRateRestart, FixedDelayRestart, NoRestart
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import (
    CancelAll,
    DeployAll,
    DiscardCheckpoint,
    JobEnded,
    LoadLatest,
    Send,
    TickAt,
    Warn,
)
from strom.engine.graph.model import ExecutionGraph
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointDeclined,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskRunning,
)


@pytest.fixture
def job(graph: Callable[..., ExecutionGraph]) -> Job:
    return Job(graph(TWICE))


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


def test_restarts_that_are_used_up_are_said_to_be(graph: Callable[..., ExecutionGraph]) -> None:
    """Behind the cause. Of what no restart would help, and where none is wanted, it is not said."""
    said = {}
    for strategy in (FixedDelayRestart(0), FailureRateRestart(0), NoRestart()):
        for recoverable in (True, False):
            job = Job(graph(strategy))
            job.run()
            job.master.on_report(TaskFailed(K0, 0, "odd", recoverable=recoverable), 5)
            (ended,) = of(JobEnded, job.master.on_all_stopped(0, 6))
            said[type(strategy).__name__, recoverable] = ended.error
            assert job.master.status().last_failure == "odd"
    again = "odd\nThe job is not restarted again: its restart strategy allows"
    assert said.pop(("FixedDelayRestart", True)) == f"{again} 0 restarts in all."
    rate = said.pop(("FailureRateRestart", True))
    assert rate == f"{again} 0 failures within 300 s, and this was one more."
    assert set(said.values()) == {"odd"}


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
    assert job.master.on_tick(10_000) == (TickAt(600_100),)
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
    assert "checkpoint 1 failed: disk full (tolerable_failures is 0)" in (
        job.master.status().last_failure or ""
    )


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


def test_unusable_checkpoints_are_told_of_once_in_the_life_of_a_job(job: Job) -> None:
    """Not at each restart; and those that never completed in one line."""
    torn = [Rejected(n, f"chk-{n}/f.arrow is torn") for n in (9, 8, 7, 6, 5)]
    empty = [Rejected(n, f"chk-{n}/manifest.json: missing", True) for n in (4, 3, 2)]

    def load(now: int, *rejected: Rejected) -> list[str]:
        latest = Latest(None, rejected, tuple(sorted(r.checkpoint_id for r in rejected)))
        said = [warn.message for warn in of(Warn, job.master.on_loaded(latest, now))]
        attempt = job.master.status().attempt
        job.master.on_task_lost(S0, attempt, "killed", now)
        job.master.on_all_stopped(attempt, now)
        job.master.on_tick(now + 60)
        return said

    job.master.start(0)
    assert load(0, *torn, *empty) == [
        "checkpoint 9 is not used: chk-9/f.arrow is torn",
        "checkpoint 8 is not used: chk-8/f.arrow is torn",
        "checkpoint 7 is not used: chk-7/f.arrow is torn",
        "2 older checkpoints are not usable, either",
        "checkpoints 2 to 4 not used: no manifest, never completed",
    ]
    new = Rejected(10, "chk-10/manifest.json: missing", True)
    assert load(100, new, *torn, *empty) == ["checkpoint 10 not used: no manifest, never completed"]


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


@pytest.mark.parametrize("resume", [True, False])
def test_attempts_of_a_later_master_have_greater_numbers(
    graph: Callable[..., ExecutionGraph], resume: bool
) -> None:
    job = Job(graph(TWICE), resume=resume, first_attempt=7)
    assert job.master.status().attempt == 7
    job.master.start(0)
    latest = Latest(manifest_with("sink"), (), (4,))
    expected = latest.manifest if resume else None
    assert job.master.on_loaded(latest, 1) == (DeployAll(7, expected),)
    job.report_all(TaskRunning, 2, 6)  # a task of the master before
    assert job.master.status().status == "CREATED"
    job.report_all(TaskRunning, 3, 7)
    assert job.master.status().status == "RUNNING"
    job.master.on_task_lost(S0, 7, "x", 4)
    job.master.on_all_stopped(7, 5)
    job.master.on_tick(60)
    assert job.master.on_loaded(Latest(expected, (), (4,)), 61) == (DeployAll(8, expected),)


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
def test_a_raising_enumerator_fails_the_job(job: Job, broken: str) -> None:
    job.run()
    job.made[0].broken = broken
    if broken == "next":
        actions = job.master.on_report(SplitsRequested(S1, 0, "source"), 5)
    else:
        actions = job.master.on_tick(100)
    assert CancelAll(0) in actions
    assert "RuntimeError('no " in (job.master.status().last_failure or "")
    assert job.made[0].closed == 1
    job.master.validate()


def test_enumerators_that_cannot_be_made(job: Job) -> None:
    job.fail_make = True
    job.master.start(0)
    assert job.master.on_loaded(NONE, 1) == (TickAt(51),)
    assert job.master.status().status is JobStatus.RESTARTING
    job.fail_make = False
    job.master.on_tick(51)
    assert job.master.on_loaded(NONE, 52) == (DeployAll(1, None),)


def test_storage_that_cannot_be_read_and_deployment_that_fails(job: Job) -> None:
    job.master.start(0)
    assert job.master.on_load_failed("S3 is away", 1) == (TickAt(51),)
    assert job.master.on_tick(51) == (LoadLatest(0),)
    job.master.on_loaded(NONE, 52)
    assert job.master.on_deploy_failed(0, "no slots", 53) == (CancelAll(0),)
    assert "no slots" in (job.master.status().last_failure or "")
    assert job.master.on_all_stopped(0, 54) == (TickAt(103),)
