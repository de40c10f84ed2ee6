"""Measuring delays: loads in steps, what is said of an overload, both pipelines in small."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from strom import ColumnBatch, Emit, NeedSplit, ReaderContext, Wait
from strom.benchmarks import latency, overload
from strom.benchmarks.delays import DelaySink, joined, percentiles
from strom.benchmarks.stepped import (
    Part,
    PartEnumerator,
    Step,
    SteppedReader,
    due_records,
    due_times,
)
from strom.benchmarks.streams import KEY_VALUE
from strom.testing import VirtualClock

STEPS = [Step(100, 1.0), Step(1000, 0.5), Step(50, 2.0)]


def test_due_records_of_a_load_in_steps() -> None:
    """
    elapsed   0   0.5   1    1.25   1.5   3.5   10
    records   0   50    100  350    600   700   700
    """
    elapsed = [0, 0.5, 1, 1.25, 1.5, 3.5, 10]
    assert [due_records(STEPS, 1.0, t) for t in elapsed] == [0, 50, 100, 350, 600, 700, 700]
    assert [due_records(STEPS, 0.5, t) for t in elapsed] == [0, 25, 50, 175, 300, 350, 350]


@given(st.integers(0, 349), st.sampled_from([0.5, 0.25]))
def test_a_record_is_due_at_its_time_and_not_before(number: int, share: float) -> None:
    number = min(number, round(700 * share) - 1)
    due = float(due_times(STEPS, share, np.array([number]))[0])
    assert due_records(STEPS, share, due + 1e-6) >= number + 1
    assert due_records(STEPS, share, due - 1e-6) <= number


def context() -> ReaderContext:
    return ReaderContext("stepped", 0, 2, 64, VirtualClock(0))


def drain(reader: SteppedReader) -> list[Any]:
    """All batches of a reader whose records are all due."""
    batches = []
    while isinstance(polled := reader.poll(), Emit):
        batches.append(polled)
    assert isinstance(polled, NeedSplit)
    return batches


def test_all_that_is_due_leaves_batch_by_batch() -> None:
    """A part whose time is over gives its records at once, stamped with when they were due."""
    reader = SteppedReader([Step(200, 1.0)], context())
    began = 10**9
    reader.add_splits([Part(0, 2, origin_ns=began)])
    batches = drain(reader)
    assert [len(b.batch) for b in batches] == [64, 36]
    assert [b.finished for b in batches] == [False, True]
    due = np.concatenate([b.batch.data.column("v").to_numpy() for b in batches])
    assert due.tolist() == [began + 10**7 * (i + 1) for i in range(100)]


def test_a_restored_part_goes_on_where_it_was() -> None:
    first = SteppedReader([Step(200, 1.0)], context())
    first.add_splits([Part(1, 2, origin_ns=10**9)])
    head = first.poll()
    assert isinstance(head, Emit)
    second = SteppedReader([Step(200, 1.0)], context())
    second.add_splits(first.snapshot())
    (rest,) = drain(second)
    keys = [b.batch.data.column("k").to_pylist() for b in (head, rest)]
    assert len(keys[0] + keys[1]) == 100
    assert keys[1] == [
        b for batch in drain(first) for b in batch.batch.data.column("k").to_pylist()
    ]


def test_a_part_that_has_just_begun_waits() -> None:
    reader = SteppedReader([Step(0.001, 1000.0)], context())
    reader.add_splits([Part(0, 2)])
    assert isinstance(reader.poll(), Wait)
    (part,) = reader.snapshot()
    assert part.origin_ns is not None


def test_each_part_is_given_out_once() -> None:
    enumerator = PartEnumerator([Part(0, 2), Part(1, 2)])
    assert len(enumerator.snapshot()) == 2
    given_out = [enumerator.next_splits(i) for i in range(3)]
    assert {part.index for parts in given_out[:2] for part in parts or ()} == {0, 1}
    assert given_out[2] is None


def test_one_record_in_so_many_is_measured() -> None:
    writer = DelaySink(sample=4).create_writer(SimpleNamespace(subtask=1))
    for start, count in ((0, 3), (3, 6), (9, 1), (10, 7)):
        values = pa.array(range(start, start + count), pa.int64())
        batch = pa.RecordBatch.from_arrays([values, values], schema=KEY_VALUE)
        writer.write(ColumnBatch(batch))
    ((key, times),) = writer.prepare_commit(3)
    assert key == "1-3"
    assert (times[0] - times[1]).tolist() == [0, 4, 8, 12, 16]
    ((_, empty),) = writer.prepare_commit(4)
    assert empty.shape == (2, 0)


def test_percentiles_in_ms() -> None:
    found = percentiles(np.arange(1001) * 1_000_000)
    assert found == {"p50_ms": 500.0, "p99_ms": 990.0, "p999_ms": 999.0, "max_ms": 1000.0}


MS = 1_000_000


def overloaded(drained_after_s: float) -> Any:
    """A record due each ms for 9 s; ages 5 ms, under overload from 3 s on growing to 2 s at 6 s and
    then falling back.

    age     5 ms ___/‾‾\\____
            0    3  6   6 + drained_after_s
    """
    due = np.arange(0, 9000) * MS
    ages = np.interp(due / 1e9, [0, 3, 6, 6 + drained_after_s, 9], [5, 5, 2000, 5, 5]) * MS
    return np.stack([due + ages.astype(np.int64), ages.astype(np.int64)])


def test_recovery_is_when_latency_is_calm_again() -> None:
    verdict = overload.judge(overloaded(2.2), 3.0)
    assert verdict.before_p50_ms == 5.0
    assert verdict.worst_ms == 2000.0
    assert verdict.recovery_s is not None
    assert 2.0 <= verdict.recovery_s <= 2.4
    assert verdict.after_p50_ms == 5.0
    assert verdict.after_p99_ms is not None
    assert verdict.after_p99_ms <= 20.0


def test_what_does_not_come_back_is_said() -> None:
    times = overloaded(3.0)
    times[:, -1000:] += 500 * MS
    verdict = overload.judge(times, 3.0)
    assert verdict.recovery_s is None
    assert verdict.after_p50_ms is None


def test_joined_nothing() -> None:
    assert joined([]).shape == (2, 0)


def test_latency_in_small() -> None:
    line = latency.measure_latency(2_000, 0.5, 2, "local", buffer_timeout=0)
    assert (line["events"], line["buffer_timeout_ms"]) == (1000, 0)
    assert 0 < line["p50_ms"] <= line["p99_ms"] <= line["p999_ms"] <= line["max_ms"]


def test_overload_in_small(monkeypatch: Any) -> None:
    monkeypatch.setattr(overload, "CAPACITY_EVENTS", 200_000)
    line = overload.measure_overload(2_000, 1.5, 2, "local")
    assert line["offered"] == round(line["capacity"] * overload.OVERLOAD)
    assert line["in_flight_mb"] <= line["in_flight_bound_mb"]
    assert line["worst_ms"] >= line["before_p99_ms"]
