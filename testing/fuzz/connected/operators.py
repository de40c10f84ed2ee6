"""A case run by its operator, in one subtask or in two of half the key groups each, with snapshots
between records and in the middle of firings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ....api.specs.connected import KeyedBroadcastProcessSpec, KeyedCoProcessSpec
from ....api.specs.records import OperatorSpec
from ....core.batch import Batch, ColumnBatch, ObjectBatch
from ....core.config import JobConfig
from ....core.ids import KeyGroupRange
from ....core.keys import ColumnKey, FunctionKey, KeySelector
from ....core.row import Row
from ....operators.base import Operator
from ....operators.registry import build_operator
from ....state.key_groups import key_group
from ...backends import state_of_step
from ...operator_harness import OperatorHarness, OperatorSnapshotTables, regroup
from ..stored import Step, StoredSubtasks
from ..subtasks import GROUPS, HALVES, WHOLE
from .cases import LAST, ConnectedCase, Record
from .functions import RULES, SIDE, DrawnBroadcast, DrawnCo
from .model import Results


def on_operator(case: ConnectedCase, cuts: bool) -> Results:
    tasks = _Tasks(case)
    cutting = random.Random(f"cuts {case.seed}")
    for kind, *rest in case.script:
        if kind == "rows":
            tasks.push(*rest)
        elif kind == "mark" and cuts and cutting.random() < 0.5:
            ranges = HALVES if cutting.random() < 0.5 else WHOLE
            tasks.cut_off(rest[0], cutting.randrange(4), ranges)
            if rest[0] == LAST or cutting.random() < 0.5:
                tasks.watermark(rest[0])
        elif kind == "mark":
            tasks.watermark(rest[0])
        elif cuts:
            tasks.restore(HALVES if rest[0] else WHOLE)
    tasks.finish()
    return tasks.results


def stored(case: ConnectedCase) -> Results:
    """Through checkpoints of files, with crashes after which what came since comes again."""
    key = _key(case)

    def make() -> Operator:
        return build_operator(_spec(case, key))

    def groups_of(records: Batch, port: int) -> Any:
        if case.broadcast and port == 1:
            return None
        return np.array([key_group(k, GROUPS) for k in key.keys(records)])

    tasks = StoredSubtasks(make, groups_of, case.batch_size, random.Random(f"stored {case.seed}"))
    steps: list[Step | None] = []
    for kind, *rest in case.script:
        if kind == "rows":
            records = _batch(case, rest[1])
            steps.append(partial(StoredSubtasks.push, records=records, port=rest[0]))
        elif kind == "mark":
            steps.append(partial(StoredSubtasks.watermark, timestamp=rest[0]))
        else:
            steps.append(None)
    try:
        tasks.go_through(steps)
    finally:
        tasks.close()
    results: Results = {}
    for side, batches in ((False, tasks.batches), (True, tasks.late)):
        for result in (row for batch in batches for row in batch.rows()):
            results.setdefault((result[0], side), []).append(result)
    return results


class _Tasks:
    def __init__(self, case: ConnectedCase) -> None:
        self._case = case
        self._key = _key(case)
        self._ranges: Sequence[KeyGroupRange] = WHOLE
        self._restores = 0
        self._tasks = [self._task(one, None) for one in self._ranges]
        self.results: Results = {}

    def push(self, port: int, records: list[Record]) -> None:
        for task, own in zip(self._tasks, self._ranges, strict=True):
            everywhere = self._case.broadcast and port == 1
            mine = [r for r in records if everywhere or key_group(r.k, GROUPS) in own]
            if mine:
                task.push(_batch(self._case, mine), port=port)

    def watermark(self, timestamp: int) -> None:
        for task in self._tasks:
            task.watermark(timestamp)

    def cut_off(self, timestamp: int, steps: int, ranges: Sequence[KeyGroupRange]) -> None:
        """A watermark, and a restore at the first pause after so many steps where one may be."""
        for task in self._tasks:
            task.pausing = True
            task.watermark(timestamp)
            task.resume(steps)
            while task.busy and not task.settled:
                task.resume()
        self.restore(ranges)

    def restore(self, ranges: Sequence[KeyGroupRange]) -> None:
        snapshots = [task.snapshot() for task in self._tasks]
        self._take()
        self._close()
        self._restores += 1
        self._ranges = ranges
        self._tasks = [self._task(one, regroup(snapshots, one)) for one in ranges]

    def finish(self) -> None:
        self._take()
        self._close()

    def _close(self) -> None:
        for task in self._tasks:
            task.close()

    def _task(
        self, groups: KeyGroupRange, restored: OperatorSnapshotTables | None
    ) -> OperatorHarness:
        case = self._case
        state = state_of_step(case.seed, self._restores)
        config = JobConfig(max_parallelism=GROUPS, batch_size=case.batch_size, state=state)
        return OperatorHarness(
            _spec(case, self._key),
            config=config,
            max_parallelism=GROUPS,
            key_groups=groups,
            restored=restored,
        )

    def _take(self) -> None:
        for task in self._tasks:
            for result in task.outputs():
                self.results.setdefault((result[0], False), []).append(result)
            for result in task.side_outputs(SIDE.tag_id):
                self.results.setdefault((result[0], True), []).append(result)


def _key(case: ConnectedCase) -> KeySelector:
    return ColumnKey(("k",)) if case.columns else FunctionKey(_key_of)


def _spec(case: ConnectedCase, key: KeySelector) -> OperatorSpec:
    if case.broadcast:
        return KeyedBroadcastProcessSpec(key, DrawnBroadcast(case), (RULES,))
    return KeyedCoProcessSpec(key, key, DrawnCo(case))


def _batch(case: ConnectedCase, records: list[Record]) -> Batch:
    stamps = np.array([record.ts for record in records], dtype=np.int64)
    if not case.columns:
        return ObjectBatch([Row("n", "k", "ts")(r.n, r.k, r.ts) for r in records], stamps)
    columns = {name: [getattr(r, name) for r in records] for name in ("n", "k", "ts")}
    return ColumnBatch(pa.RecordBatch.from_pydict(columns), stamps)


def _key_of(row: Any) -> Any:
    return row.k
