"""One operator in one subtask or in two of half the key groups each, with snapshots and rescales
between batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...api.specs.records import OperatorSpec
from ...core.batch import Batch
from ...core.config import JobConfig
from ...core.ids import KeyGroupRange
from ...operators.base import Operator
from ...state.key_groups import key_groups_of
from ..backends import state_of_step
from ..operator_harness import OperatorHarness, OperatorSnapshotTables, regroup

GROUPS = 16
WHOLE = [KeyGroupRange(0, GROUPS - 1)]
HALVES = [KeyGroupRange(0, 6), KeyGroupRange(7, GROUPS - 1)]


class Subtasks:
    """`make` gives the operator, anew for each subtask and each restore; `key`: the selector by
    which its input is partitioned; `batch_size`: the job's; `seed` says where state lies, which
    changes with restores."""

    def __init__(self, make: Any, key: Any, batch_size: int, seed: int = 0) -> None:
        self._make = make
        self._config = JobConfig(max_parallelism=GROUPS, batch_size=batch_size)
        self._seed = seed
        self._key = key
        self._ranges = WHOLE
        self._restores = 0
        self.batches: list[Batch] = []
        """The main output."""
        self.late: list[Batch] = []
        """Side outputs."""
        self.dropped = 0
        """Late records that went nowhere."""
        self.parked = 0
        """How often a snapshot was taken of one that had more to emit."""
        self._tasks = [self._task(one, None) for one in self._ranges]

    def push(self, records: Batch) -> None:
        if len(self._tasks) == 1:
            self._tasks[0].push(records)
            return
        groups = key_groups_of(self._key.key_columns(records), GROUPS)
        for task, own in zip(self._tasks, self._ranges, strict=True):
            mine = (groups >= own.first) & (groups <= own.last)
            if mine.any():
                task.push(records.filter(mine))

    def watermark(self, timestamp: int) -> None:
        for task in self._tasks:
            task.watermark(timestamp)

    def watermark_cut_off(
        self, timestamp: int, steps: int, again: bool, ranges: Sequence[KeyGroupRange]
    ) -> None:
        """A watermark that is in the middle of what it makes come out when all start anew: so many
        steps later, or at the next pause where a snapshot may be taken. `again`: whether it comes
        once more before anything else; records may be ahead of it, too."""
        for task in self._tasks:
            task.pausing = True
            task.watermark(timestamp)
            task.resume(steps)
            while task.busy and not task.settled:
                task.resume()
        self.parked += sum(task.busy for task in self._tasks)
        self.restore(ranges)
        if again:
            self.watermark(timestamp)

    def restore(self, ranges: Sequence[KeyGroupRange]) -> None:
        """Snapshot and start anew, with these ranges of key groups."""
        snapshots = [task.snapshot() for task in self._tasks]
        self._take()
        for task in self._tasks:
            task.close()
        self._restores += 1
        self._ranges = list(ranges)
        self._tasks = [self._task(one, regroup(snapshots, one)) for one in self._ranges]

    def finish(self) -> None:
        self.end_input()
        for task in self._tasks:
            task.close()

    def end_input(self) -> None:
        """All input has ended."""
        for task in self._tasks:
            task.finish()
        self._take()

    def operators(self) -> list[Operator]:
        """Those that run now."""
        return [task.operator for task in self._tasks]

    def _task(
        self, groups: KeyGroupRange, restored: OperatorSnapshotTables | None
    ) -> OperatorHarness:
        operator: Operator | OperatorSpec = self._make()
        return OperatorHarness(
            operator,
            config=replace(self._config, state=state_of_step(self._seed, self._restores)),
            max_parallelism=GROUPS,
            key_groups=groups,
            restored=restored,
            attempt=self._restores,
        )

    def _take(self) -> None:
        for task in self._tasks:
            self.batches += task.batches()
            self.late += [batch for side in task.output.side.values() for batch in side]
            self.dropped += task.metrics.get_count("numLateRecordsDropped")
