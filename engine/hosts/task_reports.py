"""Reports of tasks on their way to the driver: in the order in which each task gave them."""

from __future__ import annotations

import pickle

from ...core.failure_text import described
from ...core.ids import Attempt, TaskId
from ..messages import TaskFailed, TaskReport
from .resequencer import Resequencer


class TaskReports:
    """Of one job. Bounded: of each task there is the newest attempt in which it has told
    anything."""

    def __init__(self) -> None:
        self._of: dict[TaskId, tuple[Attempt, Resequencer[TaskReport]]] = {}

    def __len__(self) -> int:
        """Of how many tasks something was heard."""
        return len(self._of)

    def accept(self, task: TaskId, attempt: Attempt, number: int, data: bytes) -> list[TaskReport]:
        """A task numbers its reports and pickles them: what may be heard now. One that cannot be
        read here is a failure of the task, and holds up none of those behind it. Once a later
        attempt of it tells anything, nobody hears those before it any more: the job master would
        pass them over."""
        known = self._of.get(task)
        if known is None or known[0] < attempt:
            known = self._of[task] = (attempt, Resequencer())
        if attempt < known[0]:
            return []
        try:
            report: TaskReport = pickle.loads(data)
        except Exception as error:
            why = f"a report of task {task} cannot be read by the coordinator: {described(error)}"
            report = TaskFailed(task, attempt, why)
        return list(known[1].accept(number, report))
