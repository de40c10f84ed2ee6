"""What the tasks say of themselves, for whoever looks. Nothing of the job depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...core.ids import TaskId
from ...core.paged import Paged
from ..messages import MetricsReported


class TaskFigures:
    """The last figures of each task of the current attempt, or the last one."""

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._none: Paged[TaskId, dict[str, Any]] = Paged(tasks)
        self._of = self._none

    def adopt(self, tasks: Iterable[TaskId], going: Iterable[TaskId] = ()) -> None:
        """The job has these tasks from now on, and none of them has told anything but those that
        are `going`."""
        before, self._none = self._of, Paged(tasks)
        self._of = self._none.changed({task: before[task] for task in going if task in before})

    def on_report(self, report: MetricsReported) -> None:
        self._of = self._of.changed({report.task: report.metrics})

    def clear(self) -> None:
        """All tasks begin anew."""
        self._of = self._none

    def forget(self, tasks: Iterable[TaskId]) -> None:
        """These begin again."""
        self._of = self._of.without(tasks)

    def all(self) -> Mapping[TaskId, dict[str, Any]]:
        """By task; never changes."""
        return self._of

    def host_of(self, task: TaskId | None) -> str | None:
        """Where it runs in this attempt, as far as it has told; None for no task."""
        report = {} if task is None else self._of.get(task, {})
        host: str | None = report.get("process", {}).get("host")
        return host
