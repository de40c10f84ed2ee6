"""When a checkpoint on its way is too late, and of what. Pure, and a part of the coordinator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ..core.ids import TaskId
from .coordinator_types import PendingCheckpoint

MOST_NAMED: Final = 4
"""So many late tasks a message names."""


class Lateness:
    """Of one job's checkpoints."""

    def __init__(
        self, timeout_ms: int, tasks: Collection[TaskId], labels: Mapping[TaskId, str]
    ) -> None:
        """`tasks`: who acknowledges each. `labels`: what messages call them."""
        self._timeout_ms = timeout_ms
        self._tasks = tasks
        self._labels = labels

    def adopt(self, tasks: Collection[TaskId], labels: Mapping[TaskId, str]) -> None:
        """There are other tasks from now on."""
        self._tasks, self._labels = tasks, labels

    def deadline(self, pending: PendingCheckpoint) -> int:
        """When it is to be complete (ms)."""
        return pending.timestamp_ms + self._timeout_ms

    def why(self, pending: PendingCheckpoint) -> str:
        """What was waited for until then."""
        if pending.storing:
            return (
                "the checkpoint storage did not answer whether its manifest is stored: all tasks "
                f"had acknowledged it, and it was complete for nobody within {self._timeout_ms} ms"
            )
        if not pending.told:
            return f"the sources' enumerators took no snapshot within {self._timeout_ms} ms"
        missing = sorted(set(self._tasks) - pending.acknowledged.keys())
        names = ", ".join(self._labels.get(task, str(task)) for task in missing[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        return f"not acknowledged within {self._timeout_ms} ms by {names}{more}"
