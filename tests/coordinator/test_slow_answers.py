"""What the host's workers answer late, too late, or never. Times are ms."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.storage import Latest
from strom.core.config import FixedDelayRestart
from strom.core.errors import OperatorError
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import (
    AskForSplits,
    CancelAll,
    CloseSources,
    DeployAll,
    DiscardCheckpoint,
    DisownCheckpoint,
    JobEnded,
    LoadLatest,
    PrepareSources,
    Send,
    SnapshotSources,
    StoreCheckpoint,
    TickAt,
    Warn,
)
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.coordinator.split_requests import SplitRequests
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointDeclined,
    NoMoreSplits,
    SplitsAssigned,
    SplitsRequested,
    TaskDrained,
    TaskRunning,
    TriggerCheckpoint,
)

S0, S1 = TaskId("source", 0), TaskId("source", 1)
TASKS = (S0, S1, TaskId("sink", 0), TaskId("sink", 1))
TWICE = FixedDelayRestart(2, timedelta(milliseconds=50))


@pytest.fixture
def master(graph: Callable[..., Any]) -> JobMaster:
    """Of a job that may wait two seconds for a checkpoint when it is to end."""
    return JobMaster("job", graph(TWICE, tolerable_failures=9), random.Random(0))


def prepare(master: JobMaster) -> None:
    master.start(0)
    master.on_loaded(Latest(None), 0)


def run(master: JobMaster, attempt: int = 0, now: int = 0) -> list[Any]:
    master.on_sources_ready(attempt, now)
    actions = [a for t in TASKS for a in master.on_report(TaskRunning(t, attempt), now)]
    master.validate()
    return actions


def of(kind: type, actions: Any) -> list[Any]:
    return [a for a in actions if isinstance(a, kind)]


def acknowledge(master: JobMaster, n: int, now: int) -> list[Any]:
    reports = [CheckpointAcknowledged(t, 0, n, SubtaskSnapshot(t)) for t in TASKS]
    return [a for r in reports for a in master.on_report(r, now)]


# --- sources --------------------------------------------------------------------------------


def test_tasks_are_deployed_when_the_sources_are_ready(master: JobMaster) -> None:
    master.start(0)
    assert master.on_loaded(Latest(None), 1) == (PrepareSources(0, {}),)
    master.validate()
    assert master.on_sources_ready(0, 2) == (DeployAll(0, None),)
    # Said twice, or by a former attempt: nothing.
    assert master.on_sources_ready(0, 3) == ()
    master.validate()


def test_sources_that_cannot_be_made_are_closed_and_made_again(master: JobMaster) -> None:
    prepare(master)
    assert master.on_source_failed(0, "no bucket", 1) == (CloseSources(0), TickAt(51))
    master.validate()
    assert master.status().last_failure == "no bucket"
    assert master.on_tick(51) == (LoadLatest(0),)
    assert master.on_loaded(Latest(None), 52) == (PrepareSources(1, {}),)
    # What the first attempt's sources come to, after all, is of no interest.
    assert master.on_sources_ready(0, 53) == ()
    assert master.on_source_failed(0, "still no bucket", 54) == ()
    assert master.on_sources_ready(1, 55) == (DeployAll(1, None),)


def test_a_cancel_is_heard_while_sources_are_being_made(master: JobMaster) -> None:
    prepare(master)
    assert master.on_cancel(1) == (CloseSources(0), JobEnded(JobStatus.CANCELED))
    assert master.on_sources_ready(0, 2) == ()
    master.validate()


def test_a_cancel_is_heard_while_an_enumerator_is_asked(master: JobMaster) -> None:
    prepare(master)
    run(master)
    asked = master.on_report(SplitsRequested(S0, 0, "source"), 1)
    assert asked == (AskForSplits(0, "source", S0),)
    assert master.on_cancel(2) == (CancelAll(0), CloseSources(0))
    assert master.on_splits(0, "source", S0, SplitsAssigned("source", (1,)), 3) == ()
    assert master.on_source_failed(0, "it raised in the end", 4) == ()
    assert master.on_all_stopped(0, 5) == (JobEnded(JobStatus.CANCELED),)


def test_splits_go_out_ahead_of_the_trigger_as_they_were_given_away(master: JobMaster) -> None:
    """The worker gives split 1 away, then takes the snapshot, then gives away split 2."""
    prepare(master)
    run(master)
    master.on_report(SplitsRequested(S0, 0, "source"), 90)
    assert of(SnapshotSources, master.on_tick(100)) == [SnapshotSources(0, 1)]
    master.on_report(SplitsRequested(S1, 0, "source"), 101)
    sent = [
        *master.on_splits(0, "source", S0, SplitsAssigned("source", (1,)), 102),
        *master.on_sources_snapshot(0, 1, {"source": b"without 1"}, 103),
        *master.on_splits(0, "source", S1, SplitsAssigned("source", (2,)), 104),
    ]
    assert of(Send, sent) == [
        Send(S0, SplitsAssigned("source", (1,))),
        Send(S0, TriggerCheckpoint(1, 100)),
        Send(S1, TriggerCheckpoint(1, 100)),
        Send(S1, SplitsAssigned("source", (2,))),
    ]
    (store,) = of(StoreCheckpoint, acknowledge(master, 1, 110))
    assert store.manifest.enumerators == {"source": b"without 1"}


def test_a_snapshot_that_comes_after_the_abort_triggers_nothing(master: JobMaster) -> None:
    prepare(master)
    run(master)
    master.on_tick(100)
    aborted = master.on_report(CheckpointDeclined(S0, 0, 1, "no"), 110)
    assert of(Send, aborted) == [Send(task, CheckpointAborted(1)) for task in TASKS]
    assert of(SnapshotSources, master.on_tick(200)) == [SnapshotSources(0, 2)]
    assert of(Send, master.on_sources_snapshot(0, 1, {}, 201)) == []
    assert len(of(Send, master.on_sources_snapshot(0, 2, {}, 202))) == 2
    master.validate()


def test_a_snapshot_of_a_former_attempt_triggers_nothing(master: JobMaster) -> None:
    prepare(master)
    run(master)
    master.on_tick(100)
    master.on_task_lost(S0, 0, "killed", 110)
    master.on_all_stopped(0, 111)
    master.on_tick(170)
    master.on_loaded(Latest(None), 171)
    run(master, 1, 172)
    assert master.on_sources_snapshot(0, 1, {}, 173) == ()
    assert master.on_splits(0, "source", S0, NoMoreSplits("source"), 174) == ()
    master.validate()


def test_one_request_is_asked_once_at_a_time() -> None:
    requests = SplitRequests(3, {"source": "Numbers"})
    ask = AskForSplits(3, "source", S0)
    # Before the job runs: remembered once, and not asked at any tick.
    assert requests.request("source", S0) == requests.request("source", S0) == []
    assert requests.retry(10_000) == []
    assert requests.start() == [ask]
    # While the enumerator thinks, nothing is due, however long it takes.
    assert requests.request("source", S0) == []
    assert requests.retry_at_ms is None
    requests.validate()
    # None now: again in a while, until there is an answer.
    none = Send(S0, SplitsAssigned("source", ()))
    assert requests.on_answer("source", S0, None, 20) == [none]
    assert requests.retry_at_ms == 120
    assert requests.retry(119) == []
    assert requests.retry(120) == [ask]
    assert requests.on_answer("source", S0, None, 125) == []  # said once
    assert requests.retry(225) == [ask]
    assert requests.on_answer("source", S0, NoMoreSplits("source"), 130) == [
        Send(S0, NoMoreSplits("source"))
    ]
    assert requests.retry_at_ms is None
    # An answer nobody waits for is no mail.
    assert requests.on_answer("source", S0, NoMoreSplits("source"), 131) == []
    requests.validate()
    with pytest.raises(OperatorError, match="asked for splits but is no source"):
        requests.request("map", S0)


# --- storage --------------------------------------------------------------------------------


def storing(master: JobMaster) -> None:
    """Checkpoint 1 is being published when the job is cancelled, and all tasks have stopped."""
    prepare(master)
    run(master)
    for task in TASKS:
        master.on_report(TaskDrained(task, 0), 50)
    master.on_sources_snapshot(0, 1, {"source": b""}, 51)
    assert of(StoreCheckpoint, acknowledge(master, 1, 60))
    assert master.on_cancel(1000)[0] == CancelAll(0)
    assert master.status().status is JobStatus.CANCELLING


def test_a_cancelled_job_waits_for_a_checkpoint_but_not_for_ever(master: JobMaster) -> None:
    storing(master)
    # Half of the cancellation timeout of ten seconds, from the cancel on.
    assert master.on_all_stopped(0, 1100) == (TickAt(6000),)
    assert master.on_tick(5999) == (TickAt(6000),)
    warn, ended = master.on_tick(6000)
    assert ended == JobEnded(JobStatus.CANCELED)
    assert isinstance(warn, Warn)
    assert warn.message == "the job ends while checkpoint 1 is being published"
    # The answer that comes later still counts, and asks for nothing.
    assert master.on_stored(1, 7000) == ()
    assert master.status().checkpoints.latest_completed == 1
    master.validate()


def test_a_cancelled_job_ends_as_soon_as_the_checkpoint_is_known(master: JobMaster) -> None:
    storing(master)
    master.on_all_stopped(0, 1100)
    assert master.on_stored(1, 1200) == (JobEnded(JobStatus.CANCELED),)
    assert master.status().checkpoints.latest_completed == 1


def test_a_restart_waits_for_a_checkpoint_until_its_timeout(master: JobMaster) -> None:
    """What was just completed would else be lost. Nobody was told that it is: once it is disowned
    the host takes it back, and the job may go back to the one before."""
    prepare(master)
    run(master)
    master.on_tick(100)
    master.on_sources_snapshot(0, 1, {"source": b""}, 101)
    acknowledge(master, 1, 110)
    master.on_task_lost(S0, 0, "killed", 120)
    assert master.on_all_stopped(0, 121) == ()
    late = 100 + 600_000
    assert master.on_tick(late - 1)[:-1] == ()
    disown, *rest = master.on_tick(late)
    assert disown == DisownCheckpoint(1)
    assert rest == [DiscardCheckpoint(1), LoadLatest(0)]
    master.validate()
    assert "did not answer" in (master.status().checkpoints.last_failure or "")
