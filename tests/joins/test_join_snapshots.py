"""Snapshots of joins: taken, left unread while the join goes on, and encoded by another thread.

Each restored join must go on as one that was never stopped, at the point of the snapshot; and what
a snapshot costs before the barrier must not depend on how much is held.
"""

from __future__ import annotations

import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import pairs, seeds
from strom import DataStream, StreamExecutionEnvironment
from strom.api.windows.time_windows import SlidingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.row_kind import ROW_KIND, with_kinds
from strom.operators.joins import regular, temporal, waiting
from strom.state.backend import KeyedSnapshot
from strom.state.rows import chunks
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

LEFT = pa.schema([("k", pa.int64()), ("v", pa.string())])
RIGHT = pa.schema([("k", pa.int64()), ("w", pa.string_view())])
SCHEMAS = (LEFT, RIGHT)

Step = Callable[[OperatorHarness], None]
"""Something that happens to a join: it may happen to several alike."""


def keyed() -> tuple[Any, Any]:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in range(2))
    return left, right


def regular_join(how: str, **options: Any) -> DataStream:
    left, right = keyed()
    return left.join(right, how, left_type=LEFT, right_type=RIGHT, **options)


def temporal_join(how: str, **options: Any) -> DataStream:
    left, right = keyed()
    return left.temporal_join(right, how, left_type=LEFT, right_type=RIGHT, **options)


def interval_join(how: str) -> DataStream:
    left, right = keyed()
    return left.interval_join(right, -30, 20, how, left_type=LEFT, right_type=RIGHT)


def window_join(how: str) -> DataStream:
    left, right = keyed()
    window = SlidingEventTimeWindows(60, 20)
    return left.window_join(right, window, how, left_type=LEFT, right_type=RIGHT)


def batch(port: int, keys: Any, numbers: Any, times: Any, kinds: Any = None) -> ColumnBatch:
    texts = pa.array([f"a value of side {port}: {n}" for n in numbers], SCHEMAS[port].types[1])
    data = pa.RecordBatch.from_arrays(
        [pa.array(np.asarray(keys, np.int64)), texts], schema=SCHEMAS[port]
    )
    if kinds is not None:
        data = with_kinds(data, np.asarray(kinds, np.int8))
    return ColumnBatch(data, np.asarray(times, np.int64))


def pushed(port: int, *columns: Any) -> Step:
    made = batch(port, *columns)
    return lambda harness: harness.push(made, port=port)


def moved(watermark: int | None = None, clock: int | None = None) -> Step:
    def step(harness: OperatorHarness) -> None:
        if clock is not None:
            harness.advance_processing_time(clock)
        if watermark is not None:
            harness.watermark(watermark)

    return step


def taken(harness: OperatorHarness) -> tuple[KeyedSnapshot, int]:
    """The synchronous part of a snapshot, and the time."""
    harness.operator.prepare_snapshot(1)
    return harness.keyed_state.snapshot(), harness.clock.now_ms()


class Reader(threading.Thread):
    """Encodes a snapshot beside the join."""

    def __init__(self, snapshot: KeyedSnapshot, now_ms: int) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._now_ms = now_ms

    def run(self) -> None:
        self._tables = tuple(self._snapshot.tables())

    def found(self) -> OperatorSnapshotTables:
        self.join()
        return OperatorSnapshotTables(self._tables, (), self._now_ms)


def outputs(harness: OperatorHarness) -> Counter[Any]:
    """What came out since the last call."""
    found: Counter[Any] = Counter()
    for out in harness.batches():
        columns = [column.to_pylist() for column in out.data.columns]
        stamps = [None] * len(out) if out.timestamps is None else out.timestamps.tolist()
        found.update(zip(*columns, stamps, strict=True))
    harness.output.elements.clear()
    return found


def validate(harness: OperatorHarness) -> None:
    check = getattr(harness.operator, "validate", None)
    if check is not None:
        check()


def check(stream: DataStream, steps: list[Step], every: int = 5) -> None:
    """A join that is snapshotted after every few steps, each snapshot read only when the join is
    three steps on, by another thread; restored from each it gives what it gave."""
    harness = OperatorHarness.of(stream)
    given: list[Counter[Any]] = []
    waits: list[tuple[int, KeyedSnapshot, int]] = []
    reading: list[tuple[int, Reader]] = []
    for number, step in enumerate(steps):
        if number % every == 0:
            waits.append((number, *taken(harness)))
        while waits and number >= waits[0][0] + 3:
            at, snapshot, now = waits.pop(0)
            reading.append((at, Reader(snapshot, now)))
            reading[-1][1].start()
        step(harness)
        validate(harness)
        given.append(outputs(harness))
    for at, snapshot, now in waits:
        reading.append((at, Reader(snapshot, now)))
        reading[-1][1].start()
    assert sum(map(len, given[len(steps) // 2 :])), "the steps give nothing"
    for at, reader in reading:
        again = OperatorHarness.of(stream, restored=reader.found())
        validate(again)
        for number in range(at, len(steps)):
            steps[number](again)
            assert outputs(again) == given[number], f"restored before step {at}, at {number}"


@pytest.mark.parametrize("how", ["inner", "left", "full", "semi", "anti"])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_regular_join_of_changelogs(how: str, seed: int, monkeypatch: Any) -> None:
    """Rows come and are taken back on both sides, and are numbered anew again and again."""
    monkeypatch.setattr(regular, "FIRST_COMPACTION", 20)
    random = np.random.default_rng(seed)
    held: tuple[list[tuple[int, int]], ...] = ([], [])
    steps: list[Step] = []
    for _ in range(60):
        port = int(random.integers(2))
        rows, kinds, changes = held[port], [], []
        for _ in range(40):
            if rows and random.random() < 0.48:
                changes.append(rows.pop(int(random.integers(len(rows)))))
                kinds.append(3)
            else:
                rows.append((int(random.integers(60)), int(random.integers(1000))))
                changes.append(rows[-1])
                kinds.append(0)
        keys, values = zip(*changes, strict=True)
        steps.append(pushed(port, keys, values, [0] * len(keys), kinds))
    check(regular_join(how), steps)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_regular_join_of_rows_that_expire(how: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(regular, "FIRST_COMPACTION", 20)
    random = np.random.default_rng(0)
    steps: list[Step] = []
    for number in range(40):
        keys = random.integers(0, 10, 20)
        steps.append(pushed(number % 2, keys, random.integers(0, 99, 20), np.arange(20)))
        steps.append(moved(clock=(number + 1) * 10))
    check(regular_join(how, ttl=55), steps)


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("options", [{}, {"ttl": 55}], ids=str)
def test_a_temporal_join(how: str, options: Any, monkeypatch: Any) -> None:
    """Versions are replaced and ended; records are taken when they are due, others wait."""
    monkeypatch.setattr(temporal, "FIRST_COMPACTION", 20)
    monkeypatch.setattr(waiting, "FIRST_COMPACTION", 20)
    random = np.random.default_rng(1)
    steps: list[Step] = []
    for number in range(30):
        at = 10 * number
        keys, values = random.integers(0, 8, 20), random.integers(0, 1000, 20)
        kinds = random.choice([0, 0, 0, 1, 2, 3], 20)
        times = at + 1 + random.permutation(20)  # no two versions of one time
        steps.append(pushed(1, keys, values, times, kinds))
        keys, times = random.integers(0, 9, 25), at + 1 + random.integers(0, 40, 25)
        steps.append(pushed(0, keys, np.arange(25), times))
        steps.append(moved(watermark=at + 5, clock=at))
    check(temporal_join(how, **options), steps)


def event_time_steps(seed: int) -> list[Step]:
    """Both sides, somewhat out of order; the watermark is behind."""
    random = np.random.default_rng(seed)
    steps: list[Step] = []
    for number in range(40):
        at = 10 * number
        for port in (0, 1):
            count = int(random.integers(1, 30))
            keys, values = random.integers(0, 60, count), random.integers(0, 1000, count)
            steps.append(pushed(port, keys, values, at + random.integers(-8, 25, count)))
        steps.append(moved(watermark=at - 10))
    return [*steps, moved(watermark=10**6)]


@pytest.mark.parametrize(("how", "merged"), pairs(["inner", "full", "semi", "anti"], [4, 2]))
def test_an_interval_join(how: str, merged: int, monkeypatch: Any) -> None:
    """Rows expire, and meet partners, while a snapshot waits to be read; chunks are merged."""
    monkeypatch.setattr(chunks, "MERGED", merged)
    check(interval_join(how), event_time_steps(2))


@pytest.mark.parametrize("how", ["inner", "full", "anti"])
def test_a_window_join(how: str) -> None:
    check(window_join(how), event_time_steps(3))


HELD = 200_000


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(regular_join("left"), id="regular"),
        pytest.param(temporal_join("left"), id="temporal"),
        pytest.param(interval_join("full"), id="interval"),
        pytest.param(window_join("full"), id="window"),
    ],
)
def test_nothing_is_copied_before_a_snapshot(stream: DataStream) -> None:
    """What the synchronous part allocates does not depend on how many rows are held: not even a
    byte a row."""
    harness, keys = OperatorHarness.of(stream), np.arange(HELD // 10)
    for number in range(10):
        at = np.full(len(keys), number)
        for port in (0, 1):
            harness.push(batch(port, keys + number * len(keys), [0] * len(at), at), port=port)
    harness.output.elements.clear()
    harness.operator.prepare_snapshot(1)
    harness.keyed_state.snapshot()
    tracemalloc.start()
    try:
        harness.operator.prepare_snapshot(2)
        snapshot = harness.keyed_state.snapshot()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < HELD
    assert sum(table.data.num_rows for table in snapshot.tables()) >= HELD


def test_a_changelog_keeps_its_row_kinds_after_a_restore() -> None:
    """Also if nothing but inserts comes then."""
    harness = OperatorHarness.of(regular_join("inner"))
    pushed(0, [1], [2], [3], [0])(harness)
    reader = Reader(*taken(harness))
    reader.start()
    again = OperatorHarness.of(regular_join("inner"), restored=reader.found())
    pushed(1, [1], [4], [5])(again)
    assert again.batches()[0].data.schema.names[-1] == ROW_KIND
