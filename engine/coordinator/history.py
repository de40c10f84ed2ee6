"""What has become of a job, for people who look at it: its statuses, tasks, checkpoints, failures.

Pure and bounded. The job master tells it what happens; nothing of the job depends on it. What is in
a `Picture` is replaced, never changed, so that other threads read it while the job goes on; but for
the acknowledgements of a checkpoint that is on, which only become more: whoever reads these copies
them in one step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ...checkpoint.coordinator_types import Abort, Complete, Discard, Saved, Trigger
from ...checkpoint.coordinator_types import Action as CheckpointAction
from ...checkpoint.handles import FileHandle
from ...core.ids import Attempt, CheckpointId, TaskId
from ...core.job_status import JobStatus
from ...core.paged import Paged
from ..messages import CheckpointAcknowledged, TaskFailed, TaskFinished, TaskReport, TaskRunning

MOST_CHECKPOINTS: Final = 100
"""So many of the last checkpoints are known."""

MOST_PARTS: Final = 10_000
"""So many subtasks' parts of checkpoints are known; of older checkpoints only sums."""

MOST_FAILURES: Final = 20

FIRST: Final = Attempt(0)

TaskStatus = Literal[
    "CREATED", "DEPLOYING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED"
]
"""Flink's names. DEPLOYING lasts until the task is open, restored and wired."""

CheckpointStatus = Literal["IN_PROGRESS", "COMPLETED", "FAILED"]

OVER: Final = frozenset({"FINISHED", "CANCELED", "FAILED"})


@dataclass(frozen=True)
class TaskRecord:
    """A task in its current attempt, or the last. `since`: when it came to each status (ms)."""

    status: TaskStatus = "CREATED"
    attempt: Attempt = FIRST
    since: Mapping[TaskStatus, int] = field(default_factory=dict)

    def became(self, status: TaskStatus, now_ms: int) -> TaskRecord:
        return replace(self, status=status, since={**self.since, status: now_ms})


@dataclass(frozen=True)
class Part:
    """One subtask's part of a checkpoint. `size`: bytes of all its files; `new_size`: of those that
    no checkpoint before had; `persisted`: of what it overtook."""

    acknowledged_ms: int
    size: int
    new_size: int
    sync_ms: float
    async_ms: float
    alignment_ms: float
    persisted: int = 0


@dataclass(frozen=True)
class CheckpointRecord:
    """A checkpoint, or savepoint (`location`: its folder). `parts`: None when they are no longer
    known. `ended_ms`: when it was complete, or given up. `alignment_ms`: the longest of its parts.
    `discarded`: it was complete, and its files are deleted since."""

    id: CheckpointId
    triggered_ms: int
    subtasks: int
    location: str | None = None
    terminal: bool = False
    status: CheckpointStatus = "IN_PROGRESS"
    ended_ms: int | None = None
    reason: str | None = None
    acknowledged: int = 0
    last_acknowledged_ms: int | None = None
    size: int = 0
    new_size: int = 0
    alignment_ms: float = 0.0
    persisted: int = 0
    discarded: bool = False
    parts: Mapping[TaskId, Part] | None = field(default_factory=dict)

    @property
    def is_savepoint(self) -> bool:
        return self.location is not None

    def summed(self) -> CheckpointRecord:
        """With what its parts so far come to."""
        if self.parts is None or self.status != "IN_PROGRESS":
            return self
        parts = list(self.parts.copy().values()) if isinstance(self.parts, dict) else []
        return replace(
            self,
            acknowledged=len(parts),
            last_acknowledged_ms=max((part.acknowledged_ms for part in parts), default=None),
            size=sum(part.size for part in parts),
            new_size=sum(part.new_size for part in parts),
            alignment_ms=max((part.alignment_ms for part in parts), default=0.0),
            persisted=sum(part.persisted for part in parts),
        )


@dataclass(frozen=True)
class FailureRecord:
    """Why an attempt ended. `task`: the one that failed, if it was one; `host`: where it ran, if it
    had told."""

    cause: str
    time_ms: int
    attempt: Attempt
    task: TaskId | None = None
    host: str | None = None


@dataclass(frozen=True)
class Restored:
    """The checkpoint that the current attempt, or the last, began with."""

    id: CheckpointId
    time_ms: int
    savepoint: bool


@dataclass(frozen=True)
class Picture:
    """All of it at one moment. `checkpoints` and `failures`: the oldest first."""

    since: Mapping[JobStatus, int] = field(default_factory=dict)
    tasks: Mapping[TaskId, TaskRecord] = field(default_factory=dict)
    checkpoints: tuple[CheckpointRecord, ...] = ()
    completed: CheckpointRecord | None = None
    savepoint: CheckpointRecord | None = None
    failed: CheckpointRecord | None = None
    restored: Restored | None = None
    restores: int = 0
    failures: tuple[FailureRecord, ...] = ()


class JobHistory:
    """Of one job, over all its attempts."""

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._tasks = tuple(tasks)
        self._records: Paged[TaskId, TaskRecord] = Paged(
            self._tasks, dict.fromkeys(self._tasks, TaskRecord())
        )
        """Those of the picture."""
        self._picture = Picture(tasks=self._records)
        self._going: dict[CheckpointId, dict[TaskId, Part]] = {}
        """Of the checkpoints that are on: what their records hold."""
        self._shared: dict[TaskId, frozenset[str]] = {}
        """The shared files of the last part of each task."""

    @property
    def picture(self) -> Picture:
        return self._picture

    def adopt(self, tasks: Iterable[TaskId], going: Collection[TaskId] = ()) -> None:
        """The job has other tasks from now on; `going`: those of them that go on. Of what those
        before did only their parts of checkpoints are known."""
        self._tasks = tuple(tasks)
        records = {task: self._records[task] for task in going}
        records = {task: records.get(task, TaskRecord()) for task in self._tasks}
        self._records = Paged(self._tasks, records)
        self._shared = {task: files for task, files in self._shared.items() if task in going}
        self._change(tasks=self._records)

    # --- the job and its tasks -------------------------------------------------------------------

    def on_status(self, status: JobStatus, now_ms: int) -> None:
        """The job came to it."""
        self._change(since={**self._picture.since, status: now_ms})

    def on_deploying(
        self, attempt: Attempt, now_ms: int, tasks: Iterable[TaskId] | None = None
    ) -> None:
        """All tasks, or these, are about to be started."""
        record = TaskRecord("CREATED", attempt, {"CREATED": now_ms}).became("DEPLOYING", now_ms)
        started = dict.fromkeys(self._tasks if tasks is None else tasks, record)
        self._change_tasks(started)

    def on_found(self, attempts: Mapping[TaskId, Attempt], now_ms: int) -> None:
        """These run, as another coordinator has left them."""
        found = {t: TaskRecord("RUNNING", a, {"RUNNING": now_ms}) for t, a in attempts.items()}
        self._change_tasks(found)

    def on_restored(self, checkpoint_id: CheckpointId, savepoint: bool, now_ms: int) -> None:
        """An attempt begins with it."""
        restored = Restored(checkpoint_id, now_ms, savepoint)
        self._change(restored=restored, restores=self._picture.restores + 1)

    def on_report(self, report: TaskReport, now_ms: int) -> None:
        """Of the current attempt."""
        match report:
            case TaskRunning(task=task):
                self._became("RUNNING", (task,), now_ms)
            case TaskFinished(task=task):
                self._became("FINISHED", (task,), now_ms)
            case TaskFailed(task=task):
                self._became("FAILED", (task,), now_ms)
            case CheckpointAcknowledged():
                self._on_acknowledged(report, now_ms)

    def on_lost(self, task: TaskId, now_ms: int) -> None:
        """Its process is gone."""
        self._became("FAILED", (task,), now_ms)

    def on_stopping(self, now_ms: int, tasks: Iterable[TaskId] | None = None) -> None:
        """All tasks, or these, are told to stop."""
        self._became("CANCELING", self._tasks if tasks is None else tasks, now_ms)

    def on_stopped(self, now_ms: int, tasks: Iterable[TaskId] | None = None) -> None:
        """None of them runs any more."""
        self._became("CANCELED", self._tasks if tasks is None else tasks, now_ms)

    def on_failure(
        self,
        cause: str,
        task: TaskId | None,
        attempt: Attempt,
        now_ms: int,
        host: str | None = None,
    ) -> None:
        """The attempt ends for that. `host`: that of the task, which the next attempt may have
        elsewhere."""
        failure = FailureRecord(cause, now_ms, attempt, task, host)
        self._change(failures=(*self._picture.failures, failure)[-MOST_FAILURES:])

    def on_explained(self, cause: str | None, task: TaskId, host: str | None = None) -> None:
        """The loss of a task turned out to be behind the last failure, if that is its cause now."""
        failures = self._picture.failures
        if failures and cause is not None and failures[-1].cause != cause:
            found = replace(failures[-1], cause=cause, task=task, host=host)
            self._change(failures=(*failures[:-1], found))

    def _became(self, status: TaskStatus, tasks: Iterable[TaskId], now_ms: int) -> None:
        changed = {}
        for task in tasks:
            record = self._records[task]
            if record.status != status and record.status not in OVER and record.since:
                changed[task] = record.became(status, now_ms)
        self._change_tasks(changed)

    def _change_tasks(self, changed: Mapping[TaskId, TaskRecord]) -> None:
        self._records = self._records.changed(changed)
        self._change(tasks=self._records)

    # --- checkpoints -----------------------------------------------------------------------------

    def on_checkpoint(self, action: CheckpointAction, now_ms: int) -> None:
        """What the checkpoint protocol decided."""
        match action:
            case Trigger(checkpoint_id=n, timestamp_ms=time_ms, savepoint=savepoint):
                self._going[n] = {}
                location = None if savepoint is None else savepoint.location
                record = CheckpointRecord(
                    n, time_ms, len(self._tasks), location, action.terminal, parts=self._going[n]
                )
                self._keep(record)
            case Complete(checkpoint_id=n) | Saved(checkpoint_id=n):
                self._ended(n, "COMPLETED", None, now_ms)
            case Abort(checkpoint_id=n, reason=reason):
                self._ended(n, "FAILED", reason, now_ms)
            case Discard(checkpoint_id=n):
                self._discarded(n)

    def _on_acknowledged(self, report: CheckpointAcknowledged, now_ms: int) -> None:
        """Late and repeated ones are passed over."""
        parts = self._going.get(report.checkpoint_id)
        if parts is None or report.task in parts:
            return
        in_flight, files = report.snapshot.in_flight, report.snapshot.files
        parts[report.task] = Part(
            now_ms,
            sum([file.size for file in files]),
            self._new_size(report.task, files),
            report.sync_ms,
            report.async_ms,
            report.alignment_ms,
            0 if in_flight is None else in_flight.file.size,
        )

    def _new_size(self, task: TaskId, files: tuple[FileHandle, ...]) -> int:
        before = self._shared.get(task, frozenset())
        self._shared[task] = frozenset([file.path for file in files if file.shared])
        return sum([file.size for file in files if _is_new(file, before)])

    def _ended(
        self, n: CheckpointId, status: CheckpointStatus, reason: str | None, now_ms: int
    ) -> None:
        parts = self._going.pop(n, None)
        record = next((one for one in self._picture.checkpoints if one.id == n), None)
        if parts is None or record is None:
            return
        record = replace(record.summed(), status=status, reason=reason, ended_ms=now_ms)
        self._keep(record)
        if status == "FAILED":
            self._change(failed=record)
        elif record.is_savepoint:
            self._change(savepoint=record)
        else:
            self._change(completed=record)

    def _discarded(self, checkpoint_id: CheckpointId) -> None:
        """By retention, or with the job. What failed was never there, and savepoints stay."""

        def after(one: CheckpointRecord) -> CheckpointRecord:
            gone = one.id == checkpoint_id and one.status == "COMPLETED" and not one.is_savepoint
            return replace(one, discarded=True) if gone else one

        picture = self._picture
        completed = None if picture.completed is None else after(picture.completed)
        checkpoints = tuple(after(one) for one in picture.checkpoints)
        self._change(checkpoints=checkpoints, completed=completed)

    def _keep(self, record: CheckpointRecord) -> None:
        others = [one for one in self._picture.checkpoints if one.id != record.id]
        kept = sorted([*others, record], key=lambda one: one.id)[-MOST_CHECKPOINTS:]
        room = MOST_PARTS // max(1, len(self._tasks))
        for i, old in enumerate(kept[: -max(1, room)]):
            kept[i] = old if old.parts is None else replace(old, parts=None)
        self._change(checkpoints=tuple(kept))

    def _change(self, **changes: object) -> None:
        self._picture = replace(self._picture, **changes)  # type: ignore[arg-type]


def _is_new(file: FileHandle, before: frozenset[str]) -> bool:
    return not (file.shared and file.path in before)
