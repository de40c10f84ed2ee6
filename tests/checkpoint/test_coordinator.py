"""Scripted sequences for the checkpoint protocol. Times are ms."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from strom.checkpoint.coordinator import CheckpointCoordinator
from strom.checkpoint.coordinator_types import (
    Abort,
    Complete,
    Discard,
    FailJob,
    Forget,
    Say,
    Store,
    Trigger,
)
from strom.checkpoint.handles import FileHandle, KeyedHandle, OperatorSnapshot, SubtaskSnapshot
from strom.core.config import CheckpointConfig
from strom.core.errors import ConfigurationError, IllegalTransitionError
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.core.retention import ExternalizedCheckpointRetention

A, B = TaskId("a", 0), TaskId("b", 0)


def coordinator(highest: int = 0, **config: Any) -> CheckpointCoordinator:
    config.setdefault("interval", timedelta(milliseconds=100))
    config.setdefault("timeout", timedelta(milliseconds=50))
    return CheckpointCoordinator([A, B], CheckpointConfig(**config), highest)


def snapshot(task: TaskId, size: int = 0) -> SubtaskSnapshot:
    keyed = KeyedHandle("s", "value", FileHandle("f", size, "0" * 16), ())
    return SubtaskSnapshot(task, (OperatorSnapshot("o", (keyed,)),))


def acknowledge_all(c: CheckpointCoordinator, n: int, now: int) -> tuple[Any, ...]:
    c.on_acknowledge(A, n, snapshot(A, 10), now)
    return c.on_acknowledge(B, n, snapshot(B, 5), now)


def complete(c: CheckpointCoordinator, n: int, now: int) -> tuple[Any, ...]:
    (store, *_) = acknowledge_all(c, n, now)
    assert isinstance(store, Store)
    return c.on_stored(n, now)


def test_periodic_checkpoints_one_at_a_time() -> None:
    c = coordinator()
    c.start(0)
    assert c.next_tick_ms() == 100
    # Early ticks do nothing.
    assert c.on_tick(99) == ()
    assert c.on_tick(100) == (Trigger(1, 100, False),)
    assert c.next_tick_ms() == 150
    # Collecting, then storing: the timeout holds for both.
    assert c.on_acknowledge(A, 1, snapshot(A, 10), 110) == ()
    (store,) = c.on_acknowledge(B, 1, snapshot(B, 5), 120)
    assert isinstance(store, Store)
    assert set(store.checkpoint.acknowledged) == {A, B}
    assert c.storing
    assert c.next_tick_ms() == 150
    assert c.on_tick(149) == ()
    # Stored: complete, and told late; the next one was due long ago.
    assert c.on_stored(1, 10_000) == (Complete(1, False), Trigger(2, 10_000, False, 1))
    assert c.next_tick_ms() == 10_050
    statistics = c.statistics()
    assert (statistics.triggered, statistics.completed, statistics.failed) == (2, 1, 0)
    assert (statistics.last_duration_ms, statistics.last_size) == (9_900, 15)
    assert (statistics.in_progress, statistics.latest_completed) == ((2,), 1)
    c.validate()


def test_minimum_pause_counts_from_the_end_of_the_one_before() -> None:
    c = coordinator(min_pause=timedelta(milliseconds=80), timeout=timedelta(seconds=9))
    c.start(0)
    c.on_tick(100)
    # Ends at 190; due again at 200, but the pause lasts until 270.
    assert complete(c, 1, 190) == (Complete(1, False),)
    assert c.next_tick_ms() == 270
    assert c.on_tick(200) == ()
    assert c.on_tick(270) == (Trigger(2, 270, False, 1),)


def test_timeout_names_the_missing_tasks_and_fails_the_job_when_not_tolerable() -> None:
    c = coordinator()
    c.start(0)
    c.on_tick(100)
    c.on_told(1)
    c.on_acknowledge(A, 1, snapshot(A), 120)
    assert c.on_tick(149) == ()
    abort, discard, fail = c.on_tick(150)
    assert abort == Abort(1, "not acknowledged within 50 ms by b[0]")
    assert discard == Discard(1)
    assert isinstance(fail, FailJob)
    assert fail.reason == (
        "checkpoint 1 failed: not acknowledged within 50 ms by b[0] (tolerable_failures is 0)"
    )
    # The acknowledgement that comes too late is ignored.
    assert c.on_acknowledge(B, 1, snapshot(B), 160) == ()
    c.validate()


def test_of_many_late_tasks_some_are_named_as_users_know_them() -> None:
    tasks = [TaskId("v", n) for n in range(6)]
    labels = {task: f"sums ({task.subtask + 1}/6)" for task in tasks}
    timeout = CheckpointConfig(timedelta(seconds=1), timeout=timedelta(milliseconds=50))
    c = CheckpointCoordinator(tasks, timeout, labels=labels)
    c.start(0)
    c.on_tick(1000)
    c.on_told(1)
    c.on_acknowledge(tasks[0], 1, snapshot(tasks[0]), 1001)
    (abort, *_) = c.on_tick(1050)
    late = "sums (2/6), sums (3/6), sums (4/6), sums (5/6) and 1 more"
    assert abort == Abort(1, f"not acknowledged within 50 ms by {late}")


def test_timeout_names_the_enumerators_if_the_sources_were_never_told() -> None:
    c = coordinator()
    c.start(0)
    c.on_tick(100)
    (abort, *_) = c.on_tick(150)
    assert abort == Abort(1, "the sources' enumerators took no snapshot within 50 ms")
    c.on_told(1)  # too late, and without effect
    c.validate()


def test_tolerable_failures_count_in_a_row_and_are_forgiven_by_success() -> None:
    c = coordinator(tolerable_failures=1)
    c.start(0)
    c.on_tick(100)
    assert c.on_decline(B, 1, "disk", 110)[:2] == (
        Abort(1, "disk"),
        Discard(1),
    )
    # Success forgives; the leftovers of checkpoint 1 go a second time.
    c.on_tick(200)
    assert complete(c, 2, 210)[:2] == (Complete(2, False), Discard(1))
    # Two in a row are too many.
    c.on_tick(300)
    assert not any(isinstance(a, FailJob) for a in c.on_decline(A, 3, "x", 310))
    c.on_tick(400)
    (fail,) = [a for a in c.on_decline(A, 4, "x", 410) if isinstance(a, FailJob)]
    assert fail.reason.endswith("(2 in a row, tolerable_failures is 1)")
    assert c.statistics().failed == 3
    c.validate()


def test_a_store_that_fails_is_a_failure_like_others() -> None:
    c = coordinator(tolerable_failures=5)
    c.start(0)
    c.on_tick(100)
    acknowledge_all(c, 1, 110)
    reason = "the manifest could not be stored: disk full"
    assert c.on_store_failed(1, "disk full", 120)[:2] == (Abort(1, reason), Discard(1))
    assert c.on_tick(200)[0] == Trigger(2, 200, False)
    with pytest.raises(IllegalTransitionError, match="not being stored"):
        c.on_stored(1, 210)


def test_retention_keeps_the_newest() -> None:
    c = coordinator(retained=2)
    c.start(0)
    discarded = []
    for n in range(1, 6):
        c.on_tick(n * 100)
        actions = complete(c, n, n * 100 + 1)
        discarded += [a.checkpoint_id for a in actions if isinstance(a, Discard)]
        c.validate()
    assert discarded == [1, 2, 3]


def test_restart_aborts_what_is_collected_and_keeps_what_is_stored() -> None:
    c = coordinator(tolerable_failures=0)
    # Collecting when the job restarts: aborted, not counted as a failure of checkpointing.
    c.start(0)
    c.on_tick(100)
    assert c.on_job_restart() == (
        Abort(1, "the job is being restarted or stopped"),
        Discard(1),
    )
    assert c.on_tick(1000) == ()
    # Storing when the job restarts: the answer decides.
    c.on_restored(None, [], 0)
    c.start(2000)
    c.on_tick(2100)
    acknowledge_all(c, 2, 2110)
    assert c.on_job_restart() == ()
    assert c.storing
    with pytest.raises(IllegalTransitionError, match="pending"):
        c.on_restored(None, [], 0)
    assert c.on_stored(2, 2120) == (Complete(2, False), Discard(1))
    # Ids go on after the restart.
    c.on_restored(2, [2], 2)
    c.start(3000)
    assert c.on_tick(3100)[0] == Trigger(3, 3100, False, 2)
    c.validate()


def test_at_the_end_of_the_job_aborted_ones_are_discarded_again_and_rejected_ones_kept() -> None:
    c = coordinator(tolerable_failures=1)
    c.on_restored(5, [5, 6], 6)
    c.start(0)
    c.on_tick(100)
    c.on_decline(A, 7, "disk full", 110)  # B may still be writing
    c.on_tick(200)
    abort = Abort(8, "the job is being restarted or stopped")
    assert c.on_job_restart() == (abort, Discard(8))
    assert c.on_job_end(JobStatus.CANCELED) == (Discard(7), Discard(8))
    assert c.on_job_end(JobStatus.CANCELED) == ()
    c.validate()


ENDS = (JobStatus.FINISHED, JobStatus.CANCELED, JobStatus.FAILED)
DELETE = ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION
NEVER = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS


def test_at_the_end_of_the_job_what_a_coordinator_before_had_begun_goes() -> None:
    c = coordinator(retained=2)
    c.on_left([3, 4])
    c.on_restored(2, [1, 2], 2)
    assert c.on_job_end(JobStatus.CANCELED) == (Discard(3), Discard(4))


def test_what_tasks_write_behind_a_takeover_at_the_end_of_the_job_goes_with_its_end() -> None:
    c = coordinator(retained=2)
    c.on_left([3])
    c.on_restored(2, [1, 2], 2)
    assert c.sweep() == (Discard(3),)
    assert c.on_job_end(JobStatus.FINISHED) == (Discard(3),)
    assert c.on_job_end(JobStatus.FINISHED) == ()
    c.validate()


def test_at_the_end_of_the_job_what_never_completed_goes_and_what_is_damaged_stays() -> None:
    c = coordinator(retained=3)
    # 4 is damaged, 9 not this job's; nor is 3 that it starts from, and there was one here, too.
    c.on_restored(3, [1, 2, 3, 4, 5], 5, torn=[1, 3, 5, 9])
    c.start(0)
    assert c.on_job_end(JobStatus.FAILED) == (Discard(1), Discard(5))
    c.validate()


def test_which_ends_remove_checkpoints() -> None:
    removing = {
        retention: {status for status in ENDS if retention.removes(status)}
        for retention in ExternalizedCheckpointRetention
    }
    assert removing == {
        ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION: set(),
        DELETE: {JobStatus.FINISHED, JobStatus.CANCELED},
        NEVER: set(ENDS),
    }
    going_on = [status for status in JobStatus if not status.is_terminal]
    assert not any(r.removes(s) for r in removing for s in going_on)


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("retention", [DELETE, NEVER])
def test_at_the_end_of_the_job_its_checkpoints_go(
    retention: ExternalizedCheckpointRetention, status: JobStatus
) -> None:
    c = coordinator(tolerable_failures=1, retained=2, retention=retention)
    c.on_restored(5, [4, 5, 6], 6)  # 6 could not be restored from
    c.start(0)
    c.on_tick(100)
    c.on_decline(A, 7, "disk full", 110)
    c.on_tick(200)
    acknowledge_all(c, 8, 210)  # being stored: whether it completes is not known yet
    # The job only restarts: nothing is removed for that.
    assert c.on_job_restart() == ()
    if retention.removes(status):
        # The oldest first; 8 behind its Store, which the host has begun.
        assert c.on_job_end(status) == (*map(Discard, (4, 5, 6, 7, 8)), Forget())
    else:
        assert c.on_job_end(status) == (Discard(7),)
    c.on_stored(8, 300)
    c.validate()


def test_older_ones_that_never_completed_go_with_the_next_that_does() -> None:
    c = coordinator(retained=3)
    c.on_restored(5, [3, 4, 5], 5, [3])
    c.start(0)
    c.on_tick(100)
    acknowledge_all(c, 6, 110)
    assert Discard(3) in c.on_stored(6, 120)
    c.on_tick(200)
    acknowledge_all(c, 7, 210)
    assert [a for a in c.on_stored(7, 220) if isinstance(a, Discard)] == [Discard(4)]
    c.validate()


def test_what_is_aborted_by_the_end_is_discarded_once() -> None:
    c = coordinator(retention=DELETE)
    c.on_restored(2, [2], 2)
    c.start(0)
    c.on_tick(100)
    abort = Abort(3, "the job is being restarted or stopped")
    assert c.on_job_end(JobStatus.CANCELED) == (abort, Discard(3), Discard(2), Forget())
    assert c.on_job_end(JobStatus.CANCELED) == (Forget(),)
    c.validate()


def test_ids_continue_above_everything_in_storage() -> None:
    c = coordinator()
    # 5 restored, 6 and 7 corrupt or torn, 3 from before: all there in the storage.
    c.on_restored(5, [3, 5, 6, 7], 7)
    c.start(0)
    assert c.on_tick(100)[0] == Trigger(8, 100, False)
    actions = complete(c, 8, 110)
    assert sorted(a.checkpoint_id for a in actions if isinstance(a, Discard)) == [3, 5, 6, 7]
    assert c.statistics().restored_from == 5


def test_terminal_checkpoint_triggers_at_once_without_interval() -> None:
    c = coordinator(interval=None)
    c.start(0)
    assert c.next_tick_ms() is None
    assert c.on_tick(10_000) == ()
    assert c.trigger_terminal(20_000) == (Trigger(1, 20_000, True),)
    assert c.next_tick_ms() == 20_050
    # Complete: nothing is ever triggered again.
    assert complete(c, 1, 20_010) == (Complete(1, True),)
    assert c.on_tick(10**9) == ()
    c.validate()


def test_terminal_checkpoint_waits_for_the_running_one_but_not_for_the_pause() -> None:
    c = coordinator(min_pause=timedelta(seconds=5))
    c.start(0)
    c.on_tick(5000)
    assert c.trigger_terminal(5010) == ()
    assert c.next_tick_ms() == 5050
    assert complete(c, 1, 5020) == (Complete(1, False), Trigger(2, 5020, True, 1))


def test_terminal_checkpoint_is_repeated_after_a_tolerable_failure() -> None:
    c = coordinator(interval=None, tolerable_failures=1, min_pause=timedelta(milliseconds=70))
    c.start(0)
    c.trigger_terminal(100)
    assert Trigger(2, 150, True) not in c.on_tick(150)
    assert c.next_tick_ms() == 220  # the configured pause is longer than the first one
    assert c.on_tick(219) == ()
    assert c.on_tick(220) == (Trigger(2, 220, True),)
    assert any(isinstance(a, FailJob) for a in c.on_tick(270))


def fail(c: CheckpointCoordinator, n: int, now: int, cause: str) -> list[Say]:
    return [a for a in c.on_decline(A, n, cause, now) if isinstance(a, Say)]


@pytest.mark.parametrize("terminal", [True, False])
def test_failures_in_a_row_are_followed_by_pauses_that_double(terminal: bool) -> None:
    """Ten minutes with a full disk: without pauses, as many tries as the disk can refuse."""
    c = coordinator(interval=timedelta(milliseconds=1), tolerable_failures=10_000)
    c.start(0)
    if terminal:
        c.trigger_terminal(0)
    pauses = []
    now, n = c.next_tick_ms() or 0, 0
    c.on_tick(now)
    while now < 600_000:
        n += 1
        failed_at = now
        fail(c, n, now, "no space")
        now = c.next_tick_ms() or 0
        assert c.on_tick(now) == (Trigger(n + 1, now, terminal),)
        pauses.append(now - failed_at)
        c.validate()
    assert pauses[:9] == [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000]
    assert set(pauses[9:]) == {10_000}


def test_the_pause_grows_over_restarts_and_success_ends_it() -> None:
    c = coordinator(interval=None, tolerable_failures=9)
    for attempt, pause in enumerate([50, 100, 200]):
        c.start(attempt * 1000)
        c.trigger_terminal(attempt * 1000)  # the restart strategy has waited: at once
        fail(c, attempt + 1, attempt * 1000, "no space")
        assert c.next_tick_ms() == attempt * 1000 + pause
        c.on_job_restart()
        c.on_restored(None, [], 0)
    c.start(9000)
    c.trigger(9000)
    complete(c, 4, 9010)
    c.trigger_terminal(9020)
    fail(c, 5, 9020, "no space")
    assert c.next_tick_ms() == 9070


def test_a_cause_of_failure_is_said_once_until_a_checkpoint_completes() -> None:
    c = coordinator(tolerable_failures=99)
    c.start(0)
    said = []
    causes = ["cannot write /x/chk-1/f-0a.arrow: full", "cannot write /x/chk-2/f-9c.arrow: full"]
    for n, cause in enumerate([*causes, "denied", causes[0], "denied"], start=1):
        c.trigger(n)
        said.append(len(fail(c, n, n, cause)))
    assert said == [1, 0, 1, 0, 0]
    c.trigger(10)
    complete(c, 6, 11)
    c.trigger(12)
    (say,) = fail(c, 7, 13, causes[1])
    assert "checkpoint 7 failed: cannot write /x/chk-2" in say.message
    assert "tolerable_failures is 99" in say.message
    # A restart for the same cause says it itself; the next attempt is silent.
    c.on_job_restart()
    c.on_restored(None, [], 0)
    c.start(20)
    c.trigger(20)
    assert fail(c, 8, 21, causes[0]) == []


def test_manual_trigger_ignores_pause_and_queues_behind_the_pending_one() -> None:
    c = coordinator(min_pause=timedelta(seconds=60))
    c.start(0)
    assert c.trigger(10)[0] == Trigger(1, 10, False)
    assert c.trigger(20) == ()
    assert complete(c, 1, 30)[1] == Trigger(2, 30, False, 1)
    assert complete(c, 2, 40) == (Complete(2, False), Discard(1))
    assert c.next_tick_ms() == 60_040
    with pytest.raises(IllegalTransitionError, match="mode is stopped"):
        coordinator().trigger(0)


def test_terminal_checkpoint_answers_a_manual_trigger_that_waits() -> None:
    c = coordinator()
    c.start(0)
    c.on_tick(100)
    c.trigger(110)  # waits for checkpoint 1
    c.trigger_terminal(120)
    c.validate()
    assert Trigger(2, 130, True, 1) in complete(c, 1, 130)
    assert complete(c, 2, 140) == (Complete(2, True), Discard(1))
    c.validate()


def test_nonsense_is_refused() -> None:
    c = coordinator()
    c.start(0)
    with pytest.raises(IllegalTransitionError, match="never triggered"):
        c.on_acknowledge(A, 1, snapshot(A), 0)
    with pytest.raises(IllegalTransitionError, match="not a task of this job"):
        c.on_decline(TaskId("z", 9), 0, "", 0)
    with pytest.raises(IllegalTransitionError, match="already started"):
        c.start(1)
    with pytest.raises(ConfigurationError, match="retained"):
        coordinator(retained=0)
    with pytest.raises(ConfigurationError, match="interval"):
        coordinator(interval=timedelta(0))
