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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from ..core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, LatencyMarker, StreamStatus, Watermark
from ..core.ids import KeyGroupRange, OperatorId
from ..core.taking import take_table
from ..operators.base import (
    HELD,
    IN_STATE,
    WAITING,
    Operator,
    OperatorContext,
    Steps,
    Work,
    pass_watermark,
)
from ..operators.registry import build_operator
from ..state.backend import KEY_GROUP, OperatorStateTable, StateTable
from ..state.column_migration import migrated
from ..state.key_types import StoredKeyType
from ..state.keyed_state import KeyedStates
from ..state.migration import StateMigration
from ..state.operator_state import OperatorStateBackend, redistribute
from ..state.stored_files import InheritedFiles

CONTROLS = (Watermark, StreamStatus, LatencyMarker)


class CollectingOutput:
    """An operator's Output that keeps everything, in order. Empty batches are dropped."""

    def __init__(self) -> None:
        self.elements: list[Batch | Watermark | StreamStatus | LatencyMarker] = []
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

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        self.elements.append(marker)


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
    state of `snapshots`, which are of all its subtasks, that belongs to them, and the operator
    state that every subtask gets."""
    tables = []
    for table in (table for snapshot in snapshots for table in snapshot.keyed):
        groups = table.data.column(KEY_GROUP).to_pylist()
        mine = [at for at, group in enumerate(groups) if group in key_groups]
        if mine:
            data = take_table(table.data, pa.array(mine))
            tables.append(StateTable(table.name, table.kind, data, table.metadata))
    operator = redistribute([snapshot.operator for snapshot in snapshots], 1)[0]
    shared = tuple(table for table in operator if table.mode != "split")
    return OperatorSnapshotTables(tuple(tables), shared, snapshots[0].now_ms)


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

    config: where its state lies (`JobConfig.state`), and all else that a job is told. restored:
    what `snapshot` gave, with whichever state backend; the operator starts from it. state_backend:
    the operator's own. of_another_job: whether `restored` is, so that keys of another type are
    refused. inherited: files of local databases that `restored` lies over (`checkpoint.databases`).
    parallelism: what the operator is told; it is subtask 0. `close` ends what lies outside of
    memory; so does the end of the program.
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
        migrations: Mapping[str | None, StateMigration] | None = None,
        state_backend: str | None = None,
        of_another_job: bool = False,
        inherited: InheritedFiles | None = None,
        parallelism: int = 1,
    ) -> None:
        groups = key_groups or KeyGroupRange(0, max_parallelism - 1)
        config = config or JobConfig(max_parallelism=max_parallelism)
        self.clock = VirtualClock(start_ms if restored is None else restored.now_ms)
        self._states = KeyedStates(config.state)
        self.keyed_state = self._states.make(groups, max_parallelism, self.clock, state_backend)
        self.operator_state = OperatorStateBackend()
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
        self._waiting = False
        """Whether `_work` can do nothing until the operator is woken."""
        self._held = False
        """The same, and no state tells what is left."""
        self._woken = False
        """Whether the operator asked to be woken."""
        self._waking = False
        """Whether it is being woken, as often as it asks."""
        self._calls: deque[Callable[[], Work]] = deque()
        """What waits for `_work` to end."""
        if restored is not None:
            keyed = migrated(restored.keyed, migrations or {}, "operator")
            self.keyed_state.of_another_job = of_another_job
            if inherited is not None:
                self.keyed_state.inherit(inherited)
            self.keyed_state.stored_keys = StoredKeyType.of(keyed) if of_another_job else None
            self.keyed_state.restore(keyed)
            self.operator_state.restore(restored.operator, migrations)
        self.operator = spec if isinstance(spec, Operator) else build_operator(spec)
        self.context = OperatorContext(
            operator_id=OperatorId("operator"),
            name="operator",
            job_id="job",
            job_name="job",
            subtask=0,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            attempt=attempt,
            key_groups=groups,
            config=config,
            clock=self.clock,
            keyed_state=self.keyed_state,
            operator_state=self.operator_state,
            metrics=self.metrics,
            wake_at=self._alarms.add,
            wake=self._wake,
            report_watermark=lambda watermark: None,
            publish=lambda key, value: self.published.append((key, value)),
            request_splits=self._count_request,
            restored=restored is not None,
            threads=False,
        )
        self.operator.setup(self.context, self.output)
        self._begin(self.operator.open())
        self.resume(None)
        self._wake_up()

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
        operator = stream._settable("OperatorHarness.of")
        settings = {"state_backend": operator.state_backend, **settings}
        return cls(operator.spec, migrations=operator.migrations, **settings)

    def push(
        self, records: Batch | Iterable[Any], timestamps: Sequence[int] | None = None, port: int = 0
    ) -> None:
        """One batch: as it is, or made of values and their timestamps (ms)."""
        batch: Any = records
        if not hasattr(records, "rows"):
            stamps = None if timestamps is None else np.array(timestamps, dtype=np.int64)
            batch = ObjectBatch(list(records), stamps)
        if len(batch):
            self.keyed_state.time.begin(len(batch))
            self._call(lambda: self.operator.process(batch, port))

    def watermark(self, timestamp: int) -> None:
        self._call(lambda: pass_watermark(self.operator, self.keyed_state.time, timestamp))

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
        while self._work is not None and steps != 0 and not (self._waiting or self._held):
            self._step(self._work)
            steps = None if steps is None else steps - 1
            while (self._work is None or self._waiting) and self._calls:
                self._begin(self._calls.popleft()())
        self._wake_up()

    def _call(self, call: Callable[[], Work]) -> None:
        if self._work is not None and not self._waiting:
            self._calls.append(call)
        else:
            self._begin(call())
        if not self.pausing:
            self.resume(None)
        self._wake_up()

    def _wake(self) -> None:
        self._woken = True

    def _wake_up(self) -> None:
        """Do what the operator asked to be woken for, and asks for meanwhile."""
        if self._waking:
            return
        self._waking = True
        try:
            while self._woken and not (self.pausing and self.busy and not self._waiting):
                self._woken = False
                self._on_time()
        finally:
            self._waking = False

    def _on_time(self) -> None:
        if self._waiting or self._held:
            self._waiting = self._held = False
            self.resume(1 if self.pausing else None)
        else:
            self._call(partial(self.operator.on_processing_time, self.clock.now_ms()))

    def _begin(self, work: Work) -> None:
        if work is not None:
            assert self._work is None, "more work was begun while the work waits to be woken"
            self._work = work
            self._step(work)

    def _step(self, work: Steps) -> None:
        self._waiting = self._held = False
        try:
            pause = next(work)
            self._waiting, self._held = pause is WAITING, pause is HELD
            self._in_state = pause is IN_STATE or self._waiting
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
            self._on_time()
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
        return [e for e in self.output.elements if not isinstance(e, CONTROLS)]

    def controls(self) -> list[Watermark | StreamStatus | LatencyMarker]:
        """All watermarks and statuses that came out, in order."""
        return [e for e in self.output.elements if isinstance(e, CONTROLS)]

    def take_outputs(self) -> list[Any]:
        """`outputs()`, forgetting everything that came out so far."""
        rows = self.outputs()
        self.output.elements.clear()
        return rows

    def close(self) -> None:
        self.operator.close()
        self._states.close()

    def _count_request(self) -> None:
        self.split_requests += 1


def _stamped(batch: Batch) -> list[tuple[Any, int | None]]:
    stamps = [None] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
    return list(zip(batch.rows(), stamps, strict=True))
