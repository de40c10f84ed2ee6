"""Runs one operator without a task: push batches, watermarks and time in, look at what comes out.

    harness = OperatorHarness.of(stream.key_by(...).window(...).reduce(...))
    harness.push([("a", 1), ("b", 2)], timestamps=[3, 7])
    harness.watermark(9)
    assert harness.outputs() == [("a", 1), ("b", 2)]

Processing time is a virtual clock that only `advance_processing_time` moves; it stops at each time
the operator asked to be called at. Snapshots go through the same encoding as a checkpoint's.

Work in steps (see `operators.base`) is done to its end before a call returns. With `pausing` it is
left at its first pause; `resume` takes more steps, and what is pushed meanwhile waits its turn:

    harness.pausing = True
    harness.watermark(9)
    while harness.busy:
        if harness.settled:
            snapshots.append(harness.snapshot())
        harness.resume()
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from ..api.specs.records import OperatorSpec
from ..api.streams.data_stream import DataStream
from ..core.batch import Batch, ObjectBatch
from ..core.clock import VirtualClock
from ..core.config import JobConfig
from ..core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, StreamStatus, Watermark
from ..core.ids import KeyGroupRange, OperatorId
from ..operators.base import IN_STATE, Operator, OperatorContext, Steps, Work
from ..operators.registry import build_operator
from ..state.backend import KEY_GROUP, OperatorStateTable, StateTable
from ..state.memory import MemoryKeyedStateBackend
from ..state.operator_state import OperatorStateBackend


class CollectingOutput:
    """An operator's Output that keeps everything, in order. Empty batches are dropped."""

    def __init__(self) -> None:
        self.elements: list[Batch | Watermark | StreamStatus] = []
        self.side: dict[str, list[Batch]] = {}
        self.watermark: int = MIN_TIMESTAMP
        """The last watermark; an operator must never send a smaller one."""

    def emit(self, batch: Batch) -> None:
        if len(batch):
            self.elements.append(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if len(batch):
            self.side.setdefault(tag, []).append(batch)

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp < self.watermark:
            raise AssertionError(f"watermark goes back from {self.watermark} to {timestamp}")
        self.watermark = timestamp
        self.elements.append(Watermark(timestamp))

    def emit_status(self, active: bool) -> None:
        self.elements.append(StreamStatus(active))


class CountingMetrics:
    """Counters and gauges in dictionaries."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.gauges: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None:
        self.gauges[name] = value

    def get_count(self, name: str) -> int:
        return self.counts.get(name, 0)


@dataclass(frozen=True)
class OperatorSnapshotTables:
    """One subtask's state as a checkpoint holds it, and the clock's time."""

    keyed: tuple[StateTable, ...]
    operator: tuple[OperatorStateTable, ...]
    now_ms: int = 0


def regroup(
    snapshots: Sequence[OperatorSnapshotTables], key_groups: KeyGroupRange
) -> OperatorSnapshotTables:
    """What a subtask with these key groups starts from, after a job with other ones: the keyed
    state of `snapshots`, which are of all its subtasks, that belongs to them."""
    tables = []
    for table in (table for snapshot in snapshots for table in snapshot.keyed):
        mine = [group in key_groups for group in table.data.column(KEY_GROUP).to_pylist()]
        if any(mine):
            data = table.data.filter(pa.array(mine))
            tables.append(StateTable(table.name, table.kind, data, table.metadata))
    return OperatorSnapshotTables(tuple(tables), (), snapshots[0].now_ms)


@dataclass
class _Alarms:
    """Times at which the operator wants to be called."""

    times: list[int] = field(default_factory=list)

    def add(self, time: int) -> None:
        heapq.heappush(self.times, time)

    def pop_due(self, now_ms: int) -> bool:
        due = False
        while self.times and self.times[0] <= now_ms:
            heapq.heappop(self.times)
            due = True
        return due


class OperatorHarness:
    """One operator in one subtask, opened. `spec`: an operator spec, or an operator not yet set up.

    restored: what `snapshot` gave; the operator starts from it.
    """

    def __init__(
        self,
        spec: OperatorSpec | Operator,
        *,
        config: JobConfig | None = None,
        max_parallelism: int = 128,
        key_groups: KeyGroupRange | None = None,
        start_ms: int = 0,
        restored: OperatorSnapshotTables | None = None,
        attempt: int = 0,
    ) -> None:
        groups = key_groups or KeyGroupRange(0, max_parallelism - 1)
        self.keyed_state = MemoryKeyedStateBackend(groups, max_parallelism)
        self.operator_state = OperatorStateBackend()
        self.clock = VirtualClock(start_ms if restored is None else restored.now_ms)
        self.output = CollectingOutput()
        self.metrics = CountingMetrics()
        self.published: list[tuple[str, Any]] = []
        self.split_requests = 0
        self._alarms = _Alarms()
        self._checkpoint = 0
        self._ended: set[int] = set()
        """Ports that have no more records."""
        self.pausing = False
        """Whether work in steps is left at its pauses."""
        self._work: Steps | None = None
        self._in_state = False
        self._calls: deque[Callable[[], Work]] = deque()
        """What waits for `_work` to end."""
        if restored is not None:
            self.keyed_state.restore(restored.keyed)
            self.operator_state.restore(restored.operator)
        self.operator = spec if isinstance(spec, Operator) else build_operator(spec)
        self.context = OperatorContext(
            operator_id=OperatorId("operator"),
            name="operator",
            job_id="job",
            job_name="job",
            subtask=0,
            parallelism=1,
            max_parallelism=max_parallelism,
            attempt=attempt,
            key_groups=groups,
            config=config or JobConfig(max_parallelism=max_parallelism),
            clock=self.clock,
            keyed_state=self.keyed_state,
            operator_state=self.operator_state,
            metrics=self.metrics,
            wake_at=self._alarms.add,
            publish=lambda key, value: self.published.append((key, value)),
            request_splits=self._count_request,
            restored=restored is not None,
        )
        self.operator.setup(self.context, self.output)
        self.operator.open()

    @classmethod
    def of(cls, stream: DataStream, **settings: Any) -> OperatorHarness:
        """The operator that `stream` is the direct result of; `settings` as for the class.

        >>> from strom import StreamExecutionEnvironment
        >>> env = StreamExecutionEnvironment.get_execution_environment()
        >>> harness = OperatorHarness.of(env.from_collection([]).map(lambda n: n + 1))
        >>> harness.push([1, 2])
        >>> harness.outputs()
        [2, 3]
        """
        return cls(stream._settable("OperatorHarness.of").spec, **settings)

    def push(
        self, records: Batch | Iterable[Any], timestamps: Sequence[int] | None = None, port: int = 0
    ) -> None:
        """One batch: as it is, or made of values and their timestamps (ms)."""
        batch: Any = records
        if not hasattr(records, "rows"):
            stamps = None if timestamps is None else np.array(timestamps, dtype=np.int64)
            batch = ObjectBatch(list(records), stamps)
        if len(batch):
            self._call(lambda: self.operator.process(batch, port))

    def watermark(self, timestamp: int) -> None:
        self._call(lambda: self.operator.process_watermark(timestamp))

    def status(self, active: bool) -> None:
        self._call(lambda: self.operator.process_status(active))

    @property
    def busy(self) -> bool:
        """Whether work is parked; only while `pausing`."""
        return self._work is not None

    @property
    def settled(self) -> bool:
        """Whether a task would take a snapshot now."""
        return self._work is None or (self._in_state and not self._calls)

    def resume(self, steps: int | None = 1) -> None:
        """Take so many steps of the parked work and of what waits for it; None: all."""
        while self._work is not None and steps != 0:
            self._step(self._work)
            steps = None if steps is None else steps - 1
            while self._work is None and self._calls:
                self._begin(self._calls.popleft()())

    def _call(self, call: Callable[[], Work]) -> None:
        if self._work is not None:
            self._calls.append(call)
        else:
            self._begin(call())
        if not self.pausing:
            self.resume(None)

    def _begin(self, work: Work) -> None:
        if work is not None:
            self._work = work
            self._step(work)

    def _step(self, work: Steps) -> None:
        try:
            self._in_state = next(work) is IN_STATE
        except StopIteration:
            self._work = None
        except BaseException:  # a task would end here; what is left of the work is no more
            self._work = None
            raise

    def advance_processing_time(self, now_ms: int) -> None:
        """Move the clock to `now_ms`, calling the operator at each time it asked for on the way."""
        while self._alarms.times and self._alarms.times[0] <= now_ms:
            self.clock.advance_to(self._alarms.times[0])
            self._alarms.pop_due(self.clock.now_ms())
            self._call(partial(self.operator.on_processing_time, self.clock.now_ms()))
        self.clock.advance_to(now_ms)

    def end_input(self, port: int = 0) -> None:
        """No more records come on this port."""
        self._ended.add(port)
        self._call(lambda: self.operator.end_input(port))

    def finish(self, ports: int = 1) -> None:
        """All of the operator's inputs have ended: the greatest watermark, `end_input` for the
        ports that had none, then `finish`."""
        if self.output.watermark < MAX_TIMESTAMP:
            self.watermark(MAX_TIMESTAMP)
        for port in range(ports):
            if port not in self._ended:
                self.end_input(port)
        self._call(self.operator.finish)

    def snapshot(self) -> OperatorSnapshotTables:
        """Take a checkpoint now; the operator goes on unharmed. Only while `settled`."""
        assert self.settled, "the operator's work pauses where no checkpoint may be taken"
        self._checkpoint += 1
        self.operator.prepare_snapshot(self._checkpoint)
        keyed = self.keyed_state.snapshot()
        operator = self.operator_state.snapshot()
        return OperatorSnapshotTables(
            tuple(keyed.tables()), tuple(operator.tables()), self.clock.now_ms()
        )

    def outputs(self) -> list[Any]:
        """All records of the main output as rows, in order."""
        return [row for batch in self.batches() for row in batch.rows()]

    def stamped_outputs(self) -> list[tuple[Any, int | None]]:
        """All records of the main output with their timestamps."""
        return [pair for batch in self.batches() for pair in _stamped(batch)]

    def side_outputs(self, tag: str) -> list[Any]:
        """All records of a side output as rows, in order."""
        return [row for batch in self.output.side.get(tag, ()) for row in batch.rows()]

    def batches(self) -> list[Batch]:
        """All batches of the main output."""
        return [e for e in self.output.elements if not isinstance(e, (Watermark, StreamStatus))]

    def controls(self) -> list[Watermark | StreamStatus]:
        """All watermarks and statuses that came out, in order."""
        return [e for e in self.output.elements if isinstance(e, (Watermark, StreamStatus))]

    def take_outputs(self) -> list[Any]:
        """`outputs()`, forgetting everything that came out so far."""
        rows = self.outputs()
        self.output.elements.clear()
        return rows

    def close(self) -> None:
        self.operator.close()

    def _count_request(self) -> None:
        self.split_requests += 1


def _stamped(batch: Batch) -> list[tuple[Any, int | None]]:
    stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
    return list(zip(batch.rows(), stamps, strict=True))
