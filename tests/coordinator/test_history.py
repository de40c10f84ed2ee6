"""What the job master tells of a job to people who look at it."""

from __future__ import annotations

from strom.checkpoint.coordinator_types import Abort, Complete, Discard, Saved, Trigger
from strom.checkpoint.handles import FileHandle, OperatorHandle, OperatorSnapshot, SubtaskSnapshot
from strom.checkpoint.savepoints import Savepoint
from strom.core.ids import Attempt, CheckpointId, OperatorId, TaskId, VertexId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import history as module
from strom.engine.coordinator.history import JobHistory
from strom.engine.messages import CheckpointAcknowledged, TaskFailed, TaskFinished, TaskRunning

A, B = (TaskId(VertexId("v"), subtask) for subtask in range(2))
FIRST = Attempt(0)


def acknowledged(
    task: TaskId, checkpoint: int, *files: tuple[str, int, bool]
) -> CheckpointAcknowledged:
    """`files`: path, size, whether it is shared."""
    operators = tuple(
        OperatorSnapshot(
            OperatorId(path),
            operator_state=OperatorHandle(FileHandle(path, size, "", None, shared)),
        )
        for path, size, shared in files
    )
    n = CheckpointId(checkpoint)
    return CheckpointAcknowledged(task, FIRST, n, SubtaskSnapshot(task, operators), 1.0, 2.0, 3.0)


def trigger(history: JobHistory, n: int, now_ms: int, savepoint: str | None = None) -> None:
    wanted = None if savepoint is None else Savepoint(1, savepoint)
    history.on_checkpoint(Trigger(CheckpointId(n), now_ms, False, savepoint=wanted), now_ms)


def test_tasks_in_their_attempts() -> None:
    history = JobHistory([A, B])
    assert {r.status for r in history.picture.tasks.values()} == {"CREATED"}
    history.on_deploying(FIRST, 10)
    history.on_report(TaskRunning(A, FIRST), 20)
    before = history.picture
    history.on_report(TaskFailed(A, FIRST, "odd"), 30)
    history.on_failure("odd", A, FIRST, 30)
    history.on_stopping(31)
    history.on_stopped(40)
    tasks = history.picture.tasks
    assert (tasks[A].status, tasks[B].status) == ("FAILED", "CANCELED")
    assert dict(tasks[B].since) == {
        "CREATED": 10,
        "DEPLOYING": 10,
        "CANCELING": 31,
        "CANCELED": 40,
    }
    assert before.tasks[A].status == "RUNNING"
    history.on_deploying(Attempt(1), 50)
    assert history.picture.tasks[A].attempt == 1
    history.on_report(TaskRunning(A, Attempt(1)), 51)
    history.on_report(TaskFinished(A, Attempt(1)), 60)
    history.on_stopping(61)
    assert history.picture.tasks[A].status == "FINISHED"


def test_the_loss_behind_a_failure() -> None:
    history = JobHistory([A, B])
    history.on_failure("a connection broke", A, FIRST, 30, "host-a")
    history.on_explained("a connection broke", B, "host-b")
    (before,) = history.picture.failures
    assert (before.task, before.host) == (A, "host-a")
    history.on_explained("task B was lost", B, "host-b")
    (after,) = history.picture.failures
    assert (after.cause, after.task, after.host) == ("task B was lost", B, "host-b")


def test_a_checkpoint_on_its_way() -> None:
    history = JobHistory([A, B])
    trigger(history, 1, 100)
    history.on_report(acknowledged(A, 1, ("a", 10, False)), 130)
    history.on_report(acknowledged(A, 1, ("a", 99, False)), 131)
    history.on_report(acknowledged(B, 9, ("b", 99, False)), 132)
    going = history.picture.checkpoints[-1].summed()
    assert (going.status, going.acknowledged, going.size) == ("IN_PROGRESS", 1, 10)
    history.on_report(acknowledged(B, 1, ("b", 5, False)), 140)
    history.on_checkpoint(Complete(CheckpointId(1), False), 150)
    (done,) = history.picture.checkpoints
    assert (done.status, done.ended_ms, done.size, done.last_acknowledged_ms) == (
        "COMPLETED",
        150,
        15,
        140,
    )
    assert done.parts is not None
    part = done.parts[A]
    assert (part.sync_ms, part.async_ms, part.alignment_ms) == (1.0, 2.0, 3.0)
    assert history.picture.completed == done
    history.on_checkpoint(Complete(CheckpointId(1), False), 160)
    assert history.picture.checkpoints == (done,)


def test_what_a_checkpoint_wrote_anew() -> None:
    history = JobHistory([A])
    for n, files in enumerate(
        [[("s1", 10, True), ("p", 1, False)], [("s1", 10, True), ("s2", 4, True), ("p", 1, False)]]
    ):
        trigger(history, n + 1, 0)
        history.on_report(acknowledged(A, n + 1, *files), 5)
        history.on_checkpoint(Complete(CheckpointId(n + 1), False), 6)
    sizes = [(one.size, one.new_size) for one in history.picture.checkpoints]
    assert sizes == [(11, 11), (15, 5)]


def test_failures_and_savepoints_stand_apart() -> None:
    history = JobHistory([A])
    trigger(history, 1, 0)
    history.on_checkpoint(Abort(CheckpointId(1), "too slow"), 10)
    trigger(history, 2, 20, "file:///s")
    history.on_checkpoint(Saved(CheckpointId(2)), 30)
    picture = history.picture
    assert picture.completed is None
    assert picture.failed is not None
    assert (picture.failed.id, picture.failed.reason) == (1, "too slow")
    assert picture.savepoint is not None
    assert (picture.savepoint.id, picture.savepoint.location) == (2, "file:///s")


def test_all_of_it_is_bounded() -> None:
    tasks = [TaskId(VertexId("v"), i) for i in range(module.MOST_PARTS // 5)]
    history = JobHistory(tasks)
    for n in range(1, module.MOST_CHECKPOINTS + 20):
        trigger(history, n, n)
        history.on_report(acknowledged(tasks[0], n, ("a", 10, False)), n)
        history.on_checkpoint(Complete(CheckpointId(n), False), n)
        history.on_failure(f"failure {n}", None, FIRST, n)
    kept = history.picture.checkpoints
    assert len(kept) == module.MOST_CHECKPOINTS
    assert kept[-1].id == module.MOST_CHECKPOINTS + 19
    assert [one.parts is not None for one in kept[-6:]] == [False, True, True, True, True, True]
    assert len(history.picture.failures) == module.MOST_FAILURES
    assert history.picture.failures[-1].time_ms == module.MOST_CHECKPOINTS + 19
    # What the parts came to stays.
    assert {(one.size, one.acknowledged, one.alignment_ms) for one in kept} == {(10, 1, 3.0)}


def test_what_was_complete_and_is_deleted() -> None:
    history = JobHistory([A])
    for n, location in ((1, None), (2, "file:///s"), (3, None)):
        trigger(history, n, n, location)
        done = Complete(CheckpointId(n), False) if location is None else Saved(CheckpointId(n))
        history.on_checkpoint(done, n)
        history.on_checkpoint(Discard(CheckpointId(n - 1)), n)
    trigger(history, 4, 4)
    history.on_checkpoint(Abort(CheckpointId(4), "too slow"), 5)
    history.on_checkpoint(Discard(CheckpointId(4)), 5)
    found = [one.discarded for one in history.picture.checkpoints]
    assert found == [True, False, False, False]
    history.on_checkpoint(Discard(CheckpointId(3)), 6)
    assert history.picture.completed is not None
    assert history.picture.completed.discarded


def test_the_job_itself() -> None:
    history = JobHistory([A])
    history.on_status(JobStatus.CREATED, 1)
    history.on_status(JobStatus.RUNNING, 2)
    history.on_restored(CheckpointId(4), True, 3)
    picture = history.picture
    assert dict(picture.since) == {JobStatus.CREATED: 1, JobStatus.RUNNING: 2}
    assert picture.restored is not None
    assert (picture.restored.id, picture.restored.savepoint, picture.restores) == (4, True, 1)
