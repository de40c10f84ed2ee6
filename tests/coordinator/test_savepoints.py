"""Savepoints as the job master sees them: what it asks of tasks and host, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from scripted_job import K0, S0, S1, TWICE, Job, of, to_all
from strom.checkpoint.savepoints import Savepoint, Stop
from strom.checkpoint.storage import Latest
from strom.core.job_status import JobStatus
from strom.engine.coordinator.actions import (
    AnswerSavepoint,
    CancelAll,
    DeployAll,
    JobEnded,
    RemoveSavepoint,
    Send,
    StoreCheckpoint,
)
from strom.engine.graph.model import ExecutionGraph
from strom.engine.messages import (
    CheckpointCompleted,
    CheckpointDeclined,
    EndSources,
    TaskDrained,
    TaskFinished,
    TaskRunning,
    TriggerCheckpoint,
)


@pytest.fixture
def job(graph: Callable[..., ExecutionGraph]) -> Job:
    made = Job(graph(TWICE))
    made.run()
    return made


def ask(job: Job, stop: Stop | None = None, now: int = 10) -> tuple[Any, ...]:
    return tuple(job.master.on_savepoint(Savepoint(1, "/s/1", stop), now))


def triggered(n: int, now: int, **more: Any) -> list[Send]:
    mail = TriggerCheckpoint(n, now, **more)
    return [Send(S0, mail), Send(S1, mail)]


def store(job: Job, n: int, now: int, attempt: int = 0) -> StoreCheckpoint:
    (found,) = of(StoreCheckpoint, job.acknowledge_all(n, now, attempt))
    return found


def test_it_is_stored_in_its_own_folder_and_told_to_no_task(job: Job) -> None:
    assert of(Send, ask(job)) == triggered(1, 10, savepoint="/s/1")
    found = store(job, 1, 20)
    assert (found.savepoint, found.manifest.savepoint) == ("/s/1", True)
    done = job.master.on_stored(1, 30)
    assert done[0] == AnswerSavepoint(1, "/s/1")
    assert not of(Send, done)
    job.master.validate()


def test_a_stop_commits_by_a_terminal_checkpoint_and_ends_the_job(job: Job) -> None:
    assert of(Send, ask(job, "halt")) == triggered(1, 10, savepoint="/s/1", halt=True)
    store(job, 1, 20)
    done = job.master.on_stored(1, 30)
    assert of(Send, done) == triggered(2, 30, terminal=True, halt=True)
    assert not of(AnswerSavepoint, done)
    terminal = store(job, 2, 40)
    assert (terminal.savepoint, terminal.manifest.stopped) == (None, True)
    done = job.master.on_stored(2, 50)
    assert of(Send, done) == to_all(CheckpointCompleted(2, terminal=True))
    # Those that had drained before say so late, or never.
    job.master.on_report(TaskDrained(S0, 0), 51)
    ended = job.report_all(TaskFinished, 60)
    assert of(AnswerSavepoint, ended) == [AnswerSavepoint(1, "/s/1")]
    assert ended[-1] == JobEnded(JobStatus.FINISHED)


def test_a_coordinator_that_dies_while_tasks_commit_does_not_undo_the_stop(
    job: Job, graph: Callable[..., ExecutionGraph]
) -> None:
    ask(job, "halt")
    store(job, 1, 20)
    job.master.on_stored(1, 30)
    manifest = store(job, 2, 40).manifest
    job.master.on_stored(2, 50)
    lost = Job(graph(TWICE))
    lost.master.start(100)
    (deploy,) = of(DeployAll, lost.master.on_loaded(Latest(manifest, (), (2,)), 101))
    assert deploy.halted
    begun = lost.report_all(TaskRunning, 110)
    assert of(Send, begun) == to_all(CheckpointCompleted(2, terminal=True))
    assert of(AnswerSavepoint, ask(lost, now=111))[0].error is not None
    lost.master.validate()
    # No checkpoint is taken any more, and all finish.
    assert not of(Send, lost.master.on_tick(10_000))
    assert lost.report_all(TaskFinished, 120)[-1] == JobEnded(JobStatus.FINISHED)
    # A job that was only told to start from there is another one, and goes on.
    other = Job(graph(TWICE))
    other.master.start(100)
    foreign = replace(manifest, job_id="another")
    (deploy,) = of(DeployAll, other.master.on_loaded(Latest(foreign, (), (2,)), 101))
    assert not deploy.halted


def test_a_task_that_dies_while_it_commits_does_not_undo_the_stop(job: Job) -> None:
    ask(job, "halt")
    store(job, 1, 20)
    job.master.on_stored(1, 30)
    manifest = store(job, 2, 40).manifest
    job.master.on_stored(2, 50)
    failed = job.master.on_task_lost(K0, 0, "killed", 60)
    assert of(CancelAll, failed)
    assert not of(AnswerSavepoint, failed)
    job.master.on_all_stopped(0, 70)
    job.master.on_tick(1000)
    (deploy,) = of(DeployAll, job.master.on_loaded(Latest(manifest, (), (2,)), 1001))
    assert (deploy.attempt, deploy.halted) == (1, True)
    job.report_all(TaskRunning, 1010, attempt=1)
    ended = job.report_all(TaskFinished, 1020, attempt=1)
    assert of(AnswerSavepoint, ended) == [AnswerSavepoint(1, "/s/1")]
    assert ended[-1] == JobEnded(JobStatus.FINISHED)


def test_a_drain_ends_the_sources_and_is_taken_behind_the_last_task(job: Job) -> None:
    assert of(Send, ask(job, "drain")) == [Send(S0, EndSources()), Send(S1, EndSources())]
    drained = job.report_all(TaskDrained, 20)
    assert of(Send, drained) == triggered(1, 20, savepoint="/s/1", halt=True)
    store(job, 1, 30)
    assert of(Send, job.master.on_stored(1, 40)) == triggered(2, 40, terminal=True, halt=True)


def test_a_drain_that_fails_restarts_the_job_whatever_its_strategy(
    graph: Callable[..., ExecutionGraph],
) -> None:
    job = Job(graph(None, None))
    job.run()
    ask(job, "drain")
    job.report_all(TaskDrained, 20)
    actions = job.master.on_report(CheckpointDeclined(S0, 0, 1, "no space"), 30)
    assert of(RemoveSavepoint, actions) == [RemoveSavepoint("/s/1")]
    (answer,) = of(AnswerSavepoint, actions)
    assert answer.error == "the savepoint /s/1 failed: no space"
    assert of(CancelAll, actions)
    assert job.master.status().status is JobStatus.RESTARTING
    job.master.on_all_stopped(0, 40)
    assert of(DeployAll, job.master.on_loaded(Latest(None), 41)) == [DeployAll(1, None)]
    assert not of(AnswerSavepoint, job.report_all(TaskRunning, 50, attempt=1))
    assert job.master.status().status is JobStatus.RUNNING


def test_who_asks_at_the_wrong_time_is_told(graph: Callable[..., ExecutionGraph]) -> None:
    job = Job(graph(TWICE))
    (answer,) = ask(job)
    assert answer.error.startswith("no savepoint was taken: the job is CREATED, and not running")
    job.run()
    job.report_all(TaskDrained, 20)
    (answer,) = ask(job, now=30)
    assert answer == AnswerSavepoint(1, error="no savepoint was taken: the job is finishing")
    cancelled = job.master.on_cancel(40)
    assert not of(AnswerSavepoint, cancelled)


@pytest.mark.parametrize("end", ["cancel", "loss"])
def test_a_job_that_stops_running_answers_with_why(job: Job, end: str) -> None:
    ask(job)
    if end == "cancel":
        actions, why = job.master.on_cancel(20), "the job is CANCELLING"
    else:
        actions = job.master.on_task_lost(K0, 0, "killed", 20)
        why = "the job failed: task Collect (1/2) was lost: killed"
    assert of(AnswerSavepoint, actions) == [
        AnswerSavepoint(1, error=f"the savepoint /s/1 failed: {why}")
    ]
    assert of(RemoveSavepoint, actions)
    job.master.validate()


def test_a_stream_that_is_cached_is_not_taken_for_whole(
    graph: Callable[..., ExecutionGraph],
) -> None:
    execution = graph(TWICE)
    plain = Job(execution)
    plain.master._master._job.plan = replace(plain.master._master._plan, caches=("kept",))
    plain.run()
    (answer,) = ask(plain, "drain")
    assert "'kept' keeps a stream that would be taken for whole" in answer.error
    assert of(Send, ask(plain, "halt"))
