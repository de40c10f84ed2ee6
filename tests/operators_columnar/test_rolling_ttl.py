"""Rolling aggregates and reductions that forget keys after a time to live, on rows and columns."""

from __future__ import annotations

import random
from typing import Any

import event_streams
import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom import ColumnBatch, StateTtlConfig, StreamExecutionEnvironment
from strom.core.batch import ObjectBatch
from strom.core.errors import StateError, TypeMismatchError
from strom.testing import OperatorHarness
from strom.testing.backends import job_of

TTL = 10
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("n", pa.int64())])

Record = tuple[int, int, int]


def keyed() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([(1, 1, 1)]).key_by(lambda r: r[0])


def by_column() -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection([{"k": 1, "v": 1, "n": 1}]).key_by("k")


def add(so_far: Any, record: Any) -> Any:
    return (record[0], so_far[1] + record[1], record[2])


CASES: dict[str, Any] = {
    "sum": (lambda k, ttl=TTL: k.sum(1, ttl=ttl), add),
    "max": (lambda k, ttl=TTL: k.max(1, ttl=ttl), lambda a, r: (r[0], max(a[1], r[1]), r[2])),
    "min_by": (lambda k, ttl=TTL: k.min_by(1, ttl=ttl), lambda a, r: r if r[1] < a[1] else a),
    "reduce": (lambda k, ttl=TTL: k.reduce(add, ttl=ttl), add),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("columns", [False, True])
def test_as_the_model(case: str, columns: bool) -> None:
    make, fold = CASES[case]
    of_first = case in ("sum", "max") and not columns  # the key is a function
    for seed in seeds(20, least=8):
        rng, now = random.Random(seed), 1000
        stream = make(by_column() if columns else keyed())
        harness = OperatorHarness.of(stream, start_ms=now, config=job_of(seed))
        held: dict[int, tuple[Record, int]] = {}
        for number in range(30):
            records = [
                (rng.randrange(4), rng.randrange(9), number * 10 + i)
                for i in range(rng.randint(1, 6))
            ]
            expected = []
            for record in records:
                before, stamp = held.get(record[0], (None, 0))
                live = before is not None and stamp + TTL > now
                result = fold(before, record) if live else record
                if live and of_first:
                    result = (*result[:2], before[2])
                held[record[0]] = (result, now)
                expected.append(held[record[0]][0])
            pushed: Any = records
            if columns:
                rows = [dict(zip(SCHEMA.names, r, strict=True)) for r in records]
                pushed = ColumnBatch(pa.RecordBatch.from_pylist(rows, SCHEMA))
            harness.push(pushed)
            assert [tuple(r) for r in harness.take_outputs()] == expected, (seed, number)
            now += rng.choice([0, 1, 4, 9, 10])
            harness.advance_processing_time(now)
            if rng.random() < 0.2:
                harness = OperatorHarness.of(
                    stream, restored=harness.snapshot(), config=job_of(seed)
                )


def pushed(records: list[Record], stamps: list[int], columns: bool) -> Any:
    times = np.array(stamps, np.int64)
    if not columns:
        return ObjectBatch(list(records), times)
    rows = [dict(zip(SCHEMA.names, r, strict=True)) for r in records]
    return ColumnBatch(pa.RecordBatch.from_pylist(rows, SCHEMA), times)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("columns", [False, True])
def test_by_event_time_as_the_model(case: str, columns: bool) -> None:
    """Whatever the batches, watermarks and restores: a batch may span several times to live."""
    make, fold = CASES[case]
    of_first = case in ("sum", "max") and not columns  # the key is a function
    config = StateTtlConfig.new_builder(TTL).use_event_time().build()
    for seed in seeds(15, least=8):
        rng = random.Random(seed)
        stream = make(by_column() if columns else keyed(), config)
        stamps = event_streams.times(rng, 80, TTL)
        records = [(rng.randrange(3), rng.randrange(9), n) for n in range(len(stamps))]
        harness = OperatorHarness.of(stream, config=job_of(seed))
        found: list[Any] = []
        for what, value in event_streams.steps(rng, stamps):
            if what == "rows":
                harness.push(pushed(records[value], stamps[value], columns))
                found += [tuple(r) for r in harness.take_outputs()]
            elif what == "watermark":
                harness.watermark(value)
            else:
                harness = OperatorHarness.of(
                    stream, restored=harness.snapshot(), config=job_of(seed)
                )
        held: dict[int, tuple[Record, int]] = {}
        expected = []
        for record, time in zip(records, stamps, strict=True):
            before, stamp = held.get(record[0], (None, time))
            live = before is not None and stamp + TTL > time
            result = fold(before, record) if live else record
            if live and of_first:
                result = (*result[:2], before[2])
            held[record[0]] = (result, max(stamp, time))
            expected.append(held[record[0]][0])
        assert found == expected, seed


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_event_times_are_needed_and_are_their_own(case: str, columns: bool) -> None:
    config = StateTtlConfig.new_builder(TTL).use_event_time().build()
    stream = CASES[case][0](by_column() if columns else keyed(), config)
    harness = OperatorHarness.of(stream)
    with pytest.raises(TypeMismatchError, match="it forgets by event time, and a record has none"):
        harness.push(ColumnBatch(pushed([(1, 1, 1)], [0], True).data) if columns else [(1, 1, 1)])
    old = OperatorHarness.of(CASES[case][0](by_column() if columns else keyed(), TTL))
    old.push(pushed([(1, 1, 1)], [0], columns))
    with pytest.raises(StateError, match=r"state '.*stamp"):
        OperatorHarness.of(stream, restored=old.snapshot())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("columns", [False, True])
def test_what_is_held_does_not_grow(case: str, columns: bool) -> None:
    harness = OperatorHarness.of(CASES[case][0](by_column() if columns else keyed()))
    for number in range(40):
        records = [(k, 1, 1) for k in range(number * 1000, number * 1000 + 1000)]
        rows = [dict(zip(SCHEMA.names, r, strict=True)) for r in records]
        data = ColumnBatch(pa.RecordBatch.from_pylist(rows, SCHEMA)) if columns else records
        harness.push(data)
        harness.take_outputs()
        harness.advance_processing_time(harness.clock.now_ms() + 2)
        held = max(table.data.num_rows for table in harness.snapshot().keyed)
        assert held <= 8_000
    states = [one for one in harness.keyed_state.time.states if hasattr(one, "spaces")]
    assert sum(len(state.spaces[None]) for state in states) <= 8_000
    face = getattr(harness.operator, "face", None)
    if columns and case != "reduce":
        assert len(face._state.table(0)) <= 20_000  # type: ignore[union-attr]
