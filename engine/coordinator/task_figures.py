"""What the tasks say of themselves, for whoever looks. Nothing of the job depends on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...core.ids import TaskId
from ..messages import MetricsReported


class TaskFigures:
    """The last figures of each task of the current attempt, or the last one."""

    def __init__(self) -> None:
        self._of: dict[TaskId, dict[str, Any]] = {}

    def on_report(self, report: MetricsReported) -> None:
        self._of[report.task] = report.metrics

    def clear(self) -> None:
        """All tasks begin anew."""
        self._of.clear()

    def forget(self, tasks: Iterable[TaskId]) -> None:
        """These begin again."""
        for task in tasks:
            self._of.pop(task, None)

    def all(self) -> dict[TaskId, dict[str, Any]]:
        """By task; the caller's."""
        return dict(self._of)

    def host_of(self, task: TaskId | None) -> str | None:
        """Where it runs in this attempt, as far as it has told; None for no task."""
        report = {} if task is None else self._of.get(task, {})
        host: str | None = report.get("process", {}).get("host")
        return host
