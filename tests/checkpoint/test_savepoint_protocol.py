"""Scripted sequences for savepoints in the checkpoint protocol. Times are ms."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom.checkpoint.coordinator import CheckpointCoordinator
from strom.checkpoint.coordinator_types import (
    Abort,
    Complete,
    Discard,
    Drain,
    GoBack,
    Halted,
    Saved,
    Store,
    Trigger,
)
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.savepoints import Answer, DiscardSavepoint, Savepoint, Stop
from strom.core.config import CheckpointConfig
from strom.core.ids import CheckpointId, TaskId
from strom.core.job_status import JobStatus

A, B = TaskId("a", 0), TaskId("b", 0)


def running(**config: Any) -> CheckpointCoordinator:
    config.setdefault("interval", timedelta(milliseconds=100))
    config.setdefault("timeout", timedelta(milliseconds=50))
    c = CheckpointCoordinator([A, B], CheckpointConfig(**config))
    c.start(0)
    return c


def savepoint(n: int, stop: Stop | None = None) -> Savepoint:
    return Savepoint(n, f"/s/{n}", stop)


def acknowledged(c: CheckpointCoordinator, n: int, now: int) -> Store:
    c.on_acknowledge(A, n, SubtaskSnapshot(A), now)
    (store,) = c.on_acknowledge(B, n, SubtaskSnapshot(B), now)
    assert isinstance(store, Store)
    return store


def stored(c: CheckpointCoordinator, n: int, now: int) -> tuple[Any, ...]:
    acknowledged(c, n, now)
    answer = c.on_stored(n, now)
    c.validate()
    return answer


def test_savepoints_and_checkpoints_take_turns() -> None:
    c = running(retained=1)
    assert c.on_tick(100) == (Trigger(1, 100, False),)
    # Two are asked for while checkpoint 1 is pending: they wait, in order.
    assert c.request_savepoint(savepoint(7), 110) == ()
    assert c.request_savepoint(savepoint(8), 111) == ()
    assert stored(c, 1, 120) == (Complete(1, False), Trigger(2, 120, False, 1, savepoint(7)))
    assert acknowledged(c, 2, 130).checkpoint.savepoint == savepoint(7)
    # Stored: no task is told; the next one's turn, though a checkpoint is due as well.
    done = c.on_stored(2, 230)
    assert done == (Saved(2), Answer(7, path="/s/7"), Trigger(3, 230, False, 1, savepoint(8)))
    assert stored(c, 3, 240) == (Saved(3), Answer(8, path="/s/8"), Trigger(4, 240, False, 1))
    # Retention counts the job's own only, and discards no savepoint.
    assert stored(c, 4, 250) == (Complete(4, False), Discard(1))
    figures = c.statistics()
    assert (figures.triggered, figures.completed, figures.savepoints) == (2, 2, 2)
    assert c.newest_complete == 4
    assert c.on_job_end(JobStatus.FINISHED) == ()


def test_a_savepoint_is_not_what_a_failure_goes_back_to() -> None:
    c = running()
    c.request_savepoint(savepoint(1), 5)
    stored(c, 1, 10)
    assert c.newest_complete == 0


@pytest.mark.parametrize("how", ["decline", "timeout", "store"])
def test_its_failure_is_the_askers_alone(how: str) -> None:
    c = running(tolerable_failures=0)
    assert c.request_savepoint(savepoint(1), 10) == (Trigger(1, 10, False, 0, savepoint(1)),)
    c.on_told(1)
    match how:
        case "decline":
            actions, why = c.on_decline(A, 1, "no space", 20), "no space"
        case "timeout":
            c.on_acknowledge(A, 1, SubtaskSnapshot(A), 15)
            actions, why = c.on_tick(60), "not acknowledged within 50 ms by b[0]"
        case _:
            acknowledged(c, 1, 15)
            why = "the manifest could not be stored: no space"
            actions = c.on_store_failed(1, "no space", 20)
    assert actions == (
        Abort(1, why),
        DiscardSavepoint("/s/1"),
        Answer(1, error=f"the savepoint /s/1 failed: {why}"),
    )
    c.validate()
    # The job's own go on without a pause; with the next one what was left is removed again.
    assert c.next_tick_ms() == 100
    c.on_tick(100)
    assert stored(c, 2, 110) == (Complete(2, False), DiscardSavepoint("/s/1"))
    assert (c.statistics().failed, c.statistics().savepoints_failed) == (0, 1)


def test_a_stop_is_answered_when_the_job_has_finished() -> None:
    c = running()
    stop = savepoint(1, "halt")
    assert c.request_savepoint(stop, 10) == (Trigger(1, 10, False, 0, stop),)
    c.request_savepoint(savepoint(2), 11)
    # Stored: whoever waits will not be served; the terminal checkpoint of the job's own follows.
    assert stored(c, 1, 20) == (
        Saved(1),
        Answer(2, error="no savepoint was taken: the job is stopped by another"),
        Halted(),
        Trigger(2, 20, True, stopped=True),
    )
    (refused,) = c.request_savepoint(savepoint(3), 21)
    assert refused == Answer(3, error="no savepoint was taken: the job is finishing")
    assert acknowledged(c, 2, 30).checkpoint.stopped
    assert c.on_stored(2, 30) == (Complete(2, True),)
    assert c.on_job_end(JobStatus.FINISHED) == (Answer(1, path="/s/1"),)


def test_a_stop_is_asked_for_again_when_its_coordinator_died() -> None:
    c = running()
    c.request_savepoint(savepoint(1, "halt"), 10)
    stored(c, 1, 20)
    assert acknowledged(c, 2, 30).checkpoint.stopped_with == "/s/1"
    # Nobody was told. The next coordinator begins at that checkpoint, to commit it.
    other = CheckpointCoordinator([A, B], CheckpointConfig(interval=timedelta(milliseconds=100)))
    other.on_restored(CheckpointId(2), [CheckpointId(2)], 2)
    other.on_stopped_before("/s/1")
    again, elsewhere = savepoint(1, "drain"), Savepoint(2, "/other/2", "halt")
    assert other.repeats(again)
    assert not other.repeats(elsewhere)
    assert not other.repeats(savepoint(3))
    assert other.request_savepoint(again, 40) == ()
    assert other.on_job_end(JobStatus.FINISHED) == (Answer(1, path="/s/1"),)
    assert other.stopped_with == "/s/1"
    # If the job goes on from elsewhere, or ends otherwise, there is none.
    for end in (lambda o: o.on_job_end(JobStatus.FAILED), lambda o: o.start(50)):
        one = CheckpointCoordinator([A, B], CheckpointConfig(interval=None))
        one.on_stopped_before("/s/1")
        one.request_savepoint(again, 40)
        (answer,) = (a for a in end(one) if isinstance(a, Answer))
        assert (answer.path, answer.request) == (None, 1)


def test_a_stop_that_fails_lets_the_job_go_on() -> None:
    c = running()
    c.request_savepoint(savepoint(1, "halt"), 10)
    c.request_savepoint(savepoint(2), 11)
    assert c.on_decline(A, 1, "no space", 20)[-2:] == (
        Answer(1, error="the savepoint /s/1 failed: no space"),
        Trigger(2, 20, False, 0, savepoint(2)),
    )
    c.validate()


def test_a_drain_waits_for_the_end_of_all_tasks() -> None:
    c = running()
    drain = savepoint(1, "drain")
    assert c.request_savepoint(drain, 10) == (Drain(),)
    # Meanwhile nothing is taken: windows have fired that would fire again if it fails.
    assert c.on_tick(100) == ()
    assert c.next_tick_ms() is None
    assert c.trigger(105) == ()
    assert c.request_savepoint(savepoint(2), 111) == ()
    assert c.trigger_terminal(120) == (Trigger(1, 120, False, 0, drain),)
    assert stored(c, 1, 130) == (
        Saved(1),
        Answer(2, error="no savepoint was taken: the job is stopped by another"),
        Halted(),
        Trigger(2, 130, True, 0, stopped=True),
    )
    stored(c, 2, 140)
    assert c.on_job_end(JobStatus.FINISHED) == (Answer(1, path="/s/1"),)


def test_a_drain_begins_behind_what_is_pending() -> None:
    """Else a source could hear of it first, and the checkpoint would have what was drained."""
    c = running()
    assert c.on_tick(100) == (Trigger(1, 100, False),)
    assert c.request_savepoint(savepoint(1), 105) == ()
    assert c.request_savepoint(savepoint(2, "drain"), 110) == ()
    assert stored(c, 1, 120) == (Complete(1, False), Trigger(2, 120, False, 1, savepoint(1)))
    assert stored(c, 2, 130) == (Saved(2), Answer(1, path="/s/1"), Drain())
    assert c.on_job_restart("a task was lost")[0] == Answer(
        2, error="no savepoint was taken: a task was lost"
    )
    c.start(200)
    assert c.on_tick(300) == (Trigger(3, 300, False, 1),)


def test_a_drain_that_fails_goes_back_as_its_sources_have_ended() -> None:
    c = running()
    c.request_savepoint(savepoint(1, "drain"), 10)
    c.trigger_terminal(20)
    actions = c.on_decline(A, 1, "no space", 30)
    assert actions[-1] == GoBack("the job goes on, as its savepoint failed: no space")
    assert not [a for a in actions if isinstance(a, Trigger)]
    assert Answer(1, error="the savepoint /s/1 failed: no space") in actions


def test_a_restart_answers_all_and_one_that_is_being_stored_later() -> None:
    c = running()
    c.request_savepoint(savepoint(1), 10)
    c.request_savepoint(savepoint(2, "halt"), 11)
    acknowledged(c, 1, 20)
    gone = "no savepoint was taken: a task was lost"
    assert c.on_job_restart("a task was lost") == (Answer(2, error=gone),)
    assert c.on_stored(1, 30) == (Saved(1), Answer(1, path="/s/1"))
    c.validate()


def test_a_stop_whose_attempt_fails_names_the_savepoint_that_there_is() -> None:
    c = running()
    c.request_savepoint(savepoint(1, "halt"), 10)
    stored(c, 1, 20)
    *_, answer = c.on_job_restart("a task was lost")
    assert answer.error is not None
    assert answer.error.startswith("the savepoint /s/1 is complete, but the job was not stopped")
    assert answer.error.endswith("a task was lost")


@pytest.mark.parametrize("published", [True, False])
def test_a_stop_whose_terminal_checkpoint_is_being_stored_waits_for_it(published: bool) -> None:
    c = running()
    c.request_savepoint(savepoint(1, "halt"), 10)
    stored(c, 1, 20)
    acknowledged(c, 2, 30)
    assert c.on_job_restart("a task was lost") == ()
    if not published:
        (*_, answer) = c.on_store_failed(2, "no space", 40)
        assert answer.request == 1
        assert answer.error is not None
        return
    assert c.on_stored(2, 40) == (Complete(2, True),)
    # The next attempt commits it, and fails; the one after that does it.
    c.on_restored(2, [2], 2)
    assert c.on_job_restart("another was lost") == ()
    assert c.on_job_end(JobStatus.FINISHED) == (Answer(1, path="/s/1"),)


def test_a_job_that_runs_on_after_all_says_so() -> None:
    c = running()
    c.request_savepoint(savepoint(1, "halt"), 10)
    stored(c, 1, 20)
    stored(c, 2, 30)
    assert c.on_job_restart("a task was lost") == ()
    (answer,) = c.start(50)
    assert isinstance(answer, Answer)
    assert "its last checkpoint could not be used" in str(answer.error)


@pytest.mark.parametrize("status", [JobStatus.CANCELED, JobStatus.FAILED])
def test_the_end_of_the_job_leaves_nobody_without_an_answer(status: JobStatus) -> None:
    c = running()
    c.request_savepoint(savepoint(1), 10)
    c.request_savepoint(savepoint(2), 10)
    acknowledged(c, 1, 20)
    answers = {a.request: a for a in c.on_job_end(status) if isinstance(a, Answer)}
    assert sorted(answers) == [1, 2]
    assert all(status.value in str(a.error) for a in answers.values())
