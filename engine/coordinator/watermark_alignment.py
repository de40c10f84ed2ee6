"""How far sources that read too fast may run ahead of the others of their group, in event time.

    source subtask   --WatermarkReported, each interval-->   least watermark of the group
                     <--AlignWatermarks(limit)------------   + the subtask's own allowed drift

Only who reports is answered, so the cost is one message each way per subtask and interval; and a
subtask that waits goes on reporting, so it hears when the others have come on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...core.elements import MIN_TIMESTAMP
from ...core.ids import OperatorId, TaskId

Reader = tuple[OperatorId, TaskId]


@dataclass(frozen=True)
class AlignmentGroup:
    """The group of a source, and how far (ms) its splits may be ahead of the group's least
    watermark."""

    name: str
    drift_ms: int
    tasks: tuple[TaskId, ...]
    """That run the source."""


class WatermarkAlignment:
    """Of one attempt. A reader that has not reported yet holds all others back: they must not run
    away from it while it starts."""

    def __init__(self, groups: Mapping[OperatorId, AlignmentGroup]) -> None:
        self._groups = groups
        self._watermarks: dict[str, dict[Reader, int]] = {
            group.name: {} for group in groups.values()
        }
        """By group, of those that hold it back: None was reported by the others."""
        self._told: dict[Reader, int | None] = {}
        self.restart([task for group in groups.values() for task in group.tasks])

    def adopt(
        self, groups: Mapping[OperatorId, AlignmentGroup], starts: Collection[TaskId]
    ) -> None:
        """The job has these from now on: of vertices of which any is in `starts` the tasks are
        those, and begin; the others stay."""
        self._groups = groups
        vertices = {task.vertex for task in starts}
        for members in self._watermarks.values():
            for reader in [one for one in members if one[1].vertex in vertices]:
                del members[reader]
        self._told = {r: limit for r, limit in self._told.items() if r[1].vertex not in vertices}
        self.restart(starts)

    def resume(self, told: Iterable[tuple[OperatorId, TaskId, int | None]]) -> None:
        """What readers have told a coordinator before this."""
        for operator, task, watermark in told:
            group = self._groups.get(operator)
            if group is None:
                continue
            if watermark is None:
                self._watermarks[group.name].pop((operator, task), None)
            else:
                self._watermarks[group.name][operator, task] = watermark

    def restart(self, tasks: Collection[TaskId]) -> None:
        """The readers in these begin again."""
        tasks = frozenset(tasks)
        for operator, group in self._groups.items():
            for task in group.tasks:
                if task in tasks:
                    self._watermarks[group.name][operator, task] = MIN_TIMESTAMP
                    self._told.pop((operator, task), None)

    def on_report(
        self, operator: OperatorId, task: TaskId, watermark: int | None
    ) -> tuple[int | None] | None:
        """What to tell the reader: its limit (ms; None: there is none), in a tuple; or nothing,
        because it knows, or because its operator aligns with nobody."""
        group = self._groups.get(operator)
        if group is None:
            return None
        reader = (operator, task)
        members = self._watermarks[group.name]
        if watermark is None:
            members.pop(reader, None)
        else:
            members[reader] = watermark
        limit = min(members.values()) + group.drift_ms if members else None
        if reader in self._told and self._told[reader] == limit:
            return None
        self._told[reader] = limit
        return (limit,)
