"""Runs table operators over batches, with snapshots and rescales between, and reads changelogs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from strom.api.specs.records import OperatorSpec
from strom.core.batch import ColumnBatch
from strom.core.config import JobConfig
from strom.core.ids import KeyGroupRange
from strom.core.row_kind import ROW_KIND
from strom.core.state_config import StateConfig
from strom.state.key_groups import key_groups_of
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables, regroup

GROUPS = 16
HALVES = [KeyGroupRange(0, 6), KeyGroupRange(7, GROUPS - 1)]
WHOLE = [KeyGroupRange(0, GROUPS - 1)]


class Subtasks:
    """One operator in one subtask, or in two of half the key groups each. `states`: where its state
    lies, from one restore to the next in turn; none: in memory."""

    def __init__(
        self, spec: OperatorSpec, start_ms: int = 0, states: Sequence[StateConfig] = ()
    ) -> None:
        self.spec = spec
        self.start_ms = start_ms
        self.states = states or [StateConfig()]
        self.starts = 0
        self.ranges = WHOLE
        self.output: list[ColumnBatch] = []
        self.late = 0
        self.tasks = [self._task(one, None) for one in self.ranges]

    def push(self, records: ColumnBatch) -> list[tuple[Any, ...]]:
        """The rows that come out, with their row kinds if they have any."""
        keys = self.spec.key.key_columns(records)
        groups = key_groups_of(keys, GROUPS)
        for task, own in zip(self.tasks, self.ranges, strict=True):
            mine = (groups >= own.first) & (groups <= own.last)
            if mine.any():
                task.push(records.filter(mine))
        return self._take()

    def watermark(self, timestamp: int) -> list[tuple[Any, ...]]:
        for task in self.tasks:
            task.watermark(timestamp)
        return self._take()

    def time(self, now_ms: int) -> None:
        for task in self.tasks:
            task.advance_processing_time(now_ms)

    def restore(self, ranges: Sequence[KeyGroupRange]) -> None:
        """Snapshot and start anew, with these ranges of key groups."""
        snapshots = [task.snapshot() for task in self.tasks]
        self._take()
        self.close()
        self.late += sum(task.metrics.get_count("numLateRecordsDropped") for task in self.tasks)
        self.ranges = list(ranges)
        self.starts += 1
        self.tasks = [self._task(one, regroup(snapshots, one)) for one in self.ranges]

    def close(self) -> None:
        for task in self.tasks:
            task.close()

    def freeze(self) -> Callable[[], list[OperatorSnapshotTables]]:
        """The synchronous part of a snapshot; the result encodes it, on any thread."""
        frozen = []
        for task in self.tasks:
            task.operator.prepare_snapshot(1)
            frozen.append((task.keyed_state.snapshot(), task.clock.now_ms()))
        return lambda: [
            OperatorSnapshotTables(tuple(keyed.tables()), (), now) for keyed, now in frozen
        ]

    def restored(
        self, snapshots: Sequence[OperatorSnapshotTables], ranges: Sequence[KeyGroupRange]
    ) -> Subtasks:
        """Others, that begin with these snapshots."""
        again = Subtasks(self.spec, self.start_ms)
        again.ranges = list(ranges)
        again.tasks = [again._task(one, regroup(snapshots, one)) for one in again.ranges]
        return again

    def late_records(self) -> int:
        return self.late + sum(t.metrics.get_count("numLateRecordsDropped") for t in self.tasks)

    def _task(
        self, groups: KeyGroupRange, restored: OperatorSnapshotTables | None
    ) -> OperatorHarness:
        state = self.states[self.starts % len(self.states)]
        return OperatorHarness(
            self.spec,
            config=JobConfig(max_parallelism=GROUPS, state=state),
            max_parallelism=GROUPS,
            key_groups=groups,
            restored=restored,
            start_ms=self.start_ms,
        )

    def _take(self) -> list[tuple[Any, ...]]:
        batches = [b for task in self.tasks for b in task.batches()]
        self.output += batches
        for task in self.tasks:
            task.output.elements.clear()
        return [tuple(row) for b in batches for row in b.rows()]


class Materialised:
    """The table that a changelog describes: a multiset of rows. Checks the changelog as it goes."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[Any, ...]] = Counter()

    def apply(self, changes: Sequence[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
        for at, (*row, kind) in enumerate(changes):
            key = tuple(plain(value) for value in row)
            if kind in (0, 2):
                self.rows[key] += 1
                continue
            assert self.rows[key] > 0, f"{row} is retracted and was not there"
            self.rows[key] -= 1
            if kind == 1:
                assert changes[at + 1][-1] == 2, "-U without its +U behind it"
        return +self.rows


def applied(changes: Sequence[Any]) -> Counter[tuple[Any, ...]]:
    """The table that a changelog leaves, whatever the order of its changes."""
    table: Counter[tuple[Any, ...]] = Counter()
    for *row, kind in changes:
        table[tuple(row)] += 1 if kind in (0, 2) else -1
    assert all(n >= 0 for n in table.values())
    return +table


def plain(value: Any) -> Any:
    """NaN as something equal to itself."""
    return "nan" if isinstance(value, float) and value != value else value


def has_kinds(batches: Sequence[ColumnBatch]) -> bool:
    return any(ROW_KIND in b.data.schema.names for b in batches)
