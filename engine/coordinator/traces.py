"""Spans of a job's checkpoints, starts and recoveries, out of what its job master hears and asks.

    checkpoint 7                         from the trigger until it is complete, or given up
      Map (1/2)                          one per task that has written its part
        alignment | sync | async
      publish
    start, recovery                      until all tasks run
      stop | wait | load | deploy | restore

Pure: events in, finished spans out. Times are the coordinator's, ms since the epoch: a task tells
how long its phases took, and they are laid ahead of the moment when that was heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...core.ids import CheckpointId, TaskId
from ...core.job_status import JobStatus
from ..messages import CheckpointAcknowledged, CheckpointDeclined
from .actions import (
    Action,
    CancelAll,
    CancelTasks,
    DeployAll,
    DeployTasks,
    LoadForRegion,
    LoadLatest,
    StoreCheckpoint,
)
from .job_state import JobState

MOST_TASKS: Final = 256
"""So many tasks of a checkpoint have spans: the first that have written."""


@dataclass
class Span:
    """`end_ms` None: it goes on. `error` None: it went well, as far as it has come."""

    name: str
    start_ms: float
    end_ms: float | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    children: list[Span] = field(default_factory=list)
    error: str | None = None

    def end(self, at_ms: float, error: str | None = None) -> None:
        """And what is open in it."""
        for child in self.children:
            if child.end_ms is None:
                child.end(at_ms, error)
        self.end_ms = max(self.start_ms, at_ms)
        self.error = error


class TraceRecorder:
    """Invariant: `_checkpoints` has an open span for each that the job has in progress."""

    def __init__(self, labels: Mapping[TaskId, str]) -> None:
        """`labels`: what tasks are called."""
        self._labels = labels
        self._checkpoints: dict[CheckpointId, Span] = {}
        self._attempt: Span | None = None
        """A start or recovery that goes on."""

    def adopt(self, labels: Mapping[TaskId, str]) -> None:
        """There are other tasks from now on."""
        self._labels = labels

    def observe(
        self,
        event: str,
        args: Sequence[Any],
        before: JobState,
        after: JobState,
        actions: Sequence[Action],
        now_ms: int,
    ) -> list[Span]:
        """What ended with an event of the job master: its name, arguments and answer, and the job
        before and after it."""
        ended: list[Span] = []
        for arg in args:
            self._on_report(arg, now_ms)
        self._on_checkpoints(before, after, now_ms, ended)
        self._on_status(event, before, after, now_ms, ended)
        for action in actions:
            self._on_action(action, now_ms)
        if event in ("on_all_stopped", "on_tasks_stopped"):
            self._phase("wait", now_ms, unless="load")
        elif event == "on_deployed":
            self._phase("restore", now_ms)
        return ended

    def close(self, now_ms: int, why: str) -> list[Span]:
        """The job is over: what is still open ends, unfinished."""
        left = list(self._checkpoints.values())
        left += [] if self._attempt is None else [self._attempt]
        self._checkpoints.clear()
        self._attempt = None
        for span in left:
            span.end(now_ms, why)
        return left

    # --- checkpoints ------------------------------------------------------------------------

    def _on_report(self, report: Any, now_ms: int) -> None:
        if not isinstance(report, CheckpointAcknowledged | CheckpointDeclined):
            return
        span = self._checkpoints.get(report.checkpoint_id)
        if span is None:
            return
        if isinstance(report, CheckpointDeclined):
            span.attributes["declined.by"] = self._label(report.task)
        elif len(span.children) < MOST_TASKS:
            span.children.append(self._task(report, now_ms))

    def _label(self, task: TaskId) -> str:
        return self._labels.get(task, str(task))

    def _task(self, report: CheckpointAcknowledged, now_ms: int) -> Span:
        phases = (
            ("alignment", report.alignment_ms),
            ("sync", report.sync_ms),
            ("async", report.async_ms),
        )
        at = now_ms - sum(took for _, took in phases)
        told = {"task.subtask": int(report.task.subtask), "checkpoint.bytes": report.snapshot.size}
        span = Span(self._label(report.task), at, now_ms, told)
        for name, took in phases:
            span.children.append(Span(name, at, at + took))
            at += took
        return span

    def _on_checkpoints(
        self, before: JobState, after: JobState, now_ms: int, ended: list[Span]
    ) -> None:
        was, now = before.checkpoints, after.checkpoints
        for n in was.in_progress:
            span = None if n in now.in_progress else self._checkpoints.pop(n, None)
            if span is None:
                continue
            saved = now.savepoints > was.savepoints
            if saved or (now.completed > was.completed and now.latest_completed == n):
                span.attributes["checkpoint.bytes"] = now.last_size or 0
                span.end(now_ms)
            else:
                failed = now.failed > was.failed
                span.end(now_ms, (failed and now.last_failure) or "given up")
            ended.append(span)
        for n in now.in_progress:
            if n not in was.in_progress:
                told = {"checkpoint.id": int(n), "job.attempt": int(after.attempt)}
                self._checkpoints[n] = Span(f"checkpoint {n}", now_ms, attributes=told)

    # --- starts and recoveries ----------------------------------------------------------------

    def _on_status(
        self, event: str, before: JobState, after: JobState, now_ms: int, ended: list[Span]
    ) -> None:
        if event == "start":
            self._attempt = Span("start", now_ms)
        if after.restarts > before.restarts:
            if self._attempt is None:
                self._attempt = Span("recovery", now_ms)
            self._attempt.attributes["failure"] = after.last_failure or ""
            self._attempt.attributes["restart"] = after.restarts
            self._phase("stop", now_ms)
        span = self._attempt
        well = _runs(after)
        if span is None or (after.status is before.status and well is _runs(before)):
            return
        if well or after.status.is_terminal:
            span.attributes["job.attempt"] = int(after.attempt)
            if (restored := after.checkpoints.restored_from) is not None:
                span.attributes["restored.from"] = int(restored)
            span.end(now_ms, None if well else f"the job is {after.status.value}")
            ended.append(span)
            self._attempt = None

    def _on_action(self, action: Action, now_ms: int) -> None:
        match action:
            case CancelAll() | CancelTasks():
                self._phase("stop", now_ms)
            case LoadLatest() | LoadForRegion():
                self._phase("load", now_ms)
            case DeployAll() | DeployTasks():
                self._phase("deploy", now_ms)
            case StoreCheckpoint(manifest) if manifest.checkpoint_id in self._checkpoints:
                span = self._checkpoints[manifest.checkpoint_id]
                span.children.append(Span("publish", now_ms))

    def _phase(self, name: str, now_ms: int, unless: str | None = None) -> None:
        """The next one begins; not if it, or the one that comes behind it, goes on already."""
        if self._attempt is None:
            return
        phases = self._attempt.children
        if phases and phases[-1].end_ms is None:
            if phases[-1].name in (name, unless):
                return
            phases[-1].end(now_ms)
        phases.append(Span(name, now_ms))


def _runs(job: JobState) -> bool:
    """Whether all its tasks do."""
    return job.status is JobStatus.RUNNING and job.running_tasks == job.total_tasks
