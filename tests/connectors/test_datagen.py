"""Number splits, pacing and `DataGenSource`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strom.api.connectors.base import Emit, ReaderContext, Wait
from strom.connectors.datagen import DataGenSource
from strom.connectors.datagen.reader import Pace
from strom.connectors.datagen.stripes import make_splits
from strom.core.clock import VirtualClock
from strom.core.errors import ConfigurationError, TypeMismatchError


def squares(start: int, count: int) -> list[int]:
    return [n * n for n in range(start, start + count)]


def numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def expand(runs: list[tuple[int, int]]) -> list[int]:
    return [n for start, count in runs for n in range(start, start + count)]


def test_blocks_are_dealt_round_robin() -> None:
    #  number  0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10
    #  split    0  |  1  |  2  |  0  |  1  |  2
    splits = make_splits(11, 3, block=2, contiguous=False)
    assert [expand(s.runs(99)) for s in splits] == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10]]
    assert [s.size for s in splits] == [4, 4, 3]
    assert [expand(s.runs(99)) for s in make_splits(5, 3, None, contiguous=True)] == [
        [0, 1],
        [2, 3],
        [4],
    ]


@given(
    count=st.integers(0, 200),
    splits=st.integers(1, 7),
    block=st.integers(1, 30),
    contiguous=st.booleans(),
    chunk=st.integers(1, 20),
)
def test_splits_partition_the_numbers(
    count: int, splits: int, block: int, contiguous: bool, chunk: int
) -> None:
    seen: list[int] = []
    for split in make_splits(count, splits, block, contiguous):
        whole = expand(split.runs(count + 1))
        pieces: list[int] = []
        while split.remaining:
            runs = split.runs(chunk)
            pieces += expand(runs)
            split = split.advanced(min(chunk, split.remaining))
        assert pieces == whole
        assert whole == sorted(whole)
        seen += whole
    assert sorted(seen) == list(range(count))


@settings(max_examples=examples(60), deadline=None)
@given(
    count=st.integers(0, 120),
    splits=st.one_of(st.none(), st.integers(1, 5)),
    block=st.integers(1, 9),
    schedule=st.lists(st.integers(0, 1), max_size=25),
    parallelism=st.integers(1, 4),
)
def test_any_split_batching_and_restore_gives_the_same_records(
    run: Any, count: int, splits: Any, block: int, schedule: list[int], parallelism: int
) -> None:
    source = DataGenSource(squares, count, splits, block=block)
    first = run(source, parallelism=2)
    for subtask in schedule:
        first.step(subtask)
    for reader in first.readers:
        reader.validate()
    rest = first.restored(first.snapshot(), parallelism).finish()
    assert sorted(first.rows() + rest.rows()) == squares(0, count)


def test_unassigned_unbounded_splits_find_a_reader_after_a_rescale(run: Any) -> None:
    source = DataGenSource(numbers, splits=4, block=1)
    first = run(source, parallelism=2)
    first.step(0)  # subtask 0 gets splits 0 and 2; nobody asked for 1 and 3 yet
    after = first.restored(first.snapshot(), 1)
    for _ in range(8):
        after.step(0)
    rows = after.rows()
    assert {n % 4 for n in rows} == {0, 1, 2, 3}
    assert not source.bounded


def test_readers_take_turns_over_their_splits(run: Any) -> None:
    running = run(DataGenSource(numbers, 40, splits=2, block=5), batch_size=5)
    running.finish()
    assert running.rows() == list(range(40))


def test_columns(run: Any) -> None:
    schema = pa.schema([("n", pa.int32())])

    def columns(start: int, count: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": range(start, start + count)}, schema=schema)

    source = DataGenSource(columns, 10, schema=schema, block=3, splits=2)
    assert source.schema is schema
    done = run(source).finish()
    assert sorted(done.rows()) == [(n,) for n in range(10)]
    as_rows = DataGenSource(lambda s, n: [(i,) for i in range(s, s + n)], 4, schema=schema)
    batch = run(as_rows).finish().batches[0][0]
    assert batch.data.schema.equals(schema)


def test_wrong_results_of_generate(run: Any) -> None:
    schema = pa.schema([("n", pa.int32())])
    wrong = pa.RecordBatch.from_pydict({"n": [1, 2]})
    for made, message in (
        ("ab", r"generate\(0, 2\) returned a str"),
        ([1], r"generate\(0, 2\) returned 1 records, not 2"),
        (wrong, "n: int64, declared are n: int32"),
    ):
        source = DataGenSource(lambda s, n, made=made: made, 2, schema=schema)
        with pytest.raises(TypeMismatchError, match=message):
            run(source).finish()


def test_wrong_settings() -> None:
    for kwargs in (
        {"count": -1},
        {"splits": 0},
        {"rate": 0},
        {"rate": float("inf")},
        {"block": 0},
        {"contiguous": True},
    ):
        with pytest.raises(ConfigurationError):
            DataGenSource(numbers, **kwargs)  # type: ignore[arg-type]


def paced(
    clock: VirtualClock, rate: float, splits: int, count: int | None = None, block: int = 50
) -> Any:
    source = DataGenSource(numbers, count, rate=rate, block=1)
    reader = source.create_reader(ReaderContext("op", 0, 1, 1000, clock))
    reader.add_splits(make_splits(count, splits, block, contiguous=False))
    return reader


def read_for(reader: Any, clock: VirtualClock, span_ms: int) -> list[tuple[int, int]]:
    """(time, records) of each emission, following the reader's waits."""
    end, seen = clock.now_ms() + span_ms, []
    while True:
        polled = reader.poll()
        if isinstance(polled, Emit):
            seen.append((clock.now_ms(), len(polled.batch)))
        elif isinstance(polled, Wait):
            assert polled.until_ms is not None
            assert polled.until_ms > clock.now_ms(), "a wait that is over already is a busy loop"
            if polled.until_ms > end:
                clock.advance_to(end)
                return seen
            clock.advance_to(polled.until_ms)
        else:
            return seen


@pytest.mark.parametrize("rate", [3, 100, 12_345, 90_000])
@pytest.mark.parametrize("splits", [1, 3])
def test_the_rate_holds(rate: int, splits: int) -> None:
    clock = VirtualClock()
    reader = paced(clock, rate, splits)
    seen = read_for(reader, clock, 2000)
    total = sum(n for _, n in seen)
    slack = splits * max(1, rate / splits / 100)
    assert 2 * rate - slack - 1 <= total <= 2 * rate + splits
    assert len(seen) <= splits * 201
    start = 1_000_000_000_000
    done = 0
    for at, n in seen:
        done += n
        assert done <= (at - start) / 1000 * rate + splits
    reader.validate()


def test_a_stalled_reader_makes_up_for_it() -> None:
    clock = VirtualClock()
    reader = paced(clock, 100, 1)
    clock.advance_ms(1000)
    assert len(reader.poll().batch) == 100


def test_pacing_survives_a_restore() -> None:
    """No burst for the time the job was down, no pause for records already read."""
    clock = VirtualClock()
    reader = paced(clock, 100, 1)
    before = sum(n for _, n in read_for(reader, clock, 1000))
    splits = reader.snapshot()
    assert splits[0].position == before == 100
    clock.advance_ms(3_600_000)
    restored = DataGenSource(numbers, rate=100, block=1).create_reader(
        ReaderContext("op", 0, 1, 1000, clock)
    )
    restored.add_splits(splits)
    assert isinstance(restored.poll(), Wait)
    after = sum(n for _, n in read_for(restored, clock, 1000))
    assert after == 100


def test_a_paced_bounded_source_ends_on_time() -> None:
    clock = VirtualClock()
    reader = paced(clock, 10, 2, count=7, block=1)
    seen = read_for(reader, clock, 60_000)
    assert sum(n for _, n in seen) == 7
    assert clock.now_ms() - 1_000_000_000_000 <= 1000
    assert reader.snapshot() == []


@given(st.floats(0.01, 1e6), st.integers(0, 10**9), st.integers(1, 1000))
@example(28.0, 1, 231)
def test_what_is_due_at_a_time_is_due_then(share: float, position: int, more: int) -> None:
    pace = Pace.resumed(share, position, 1_000_000_000_000)
    at = pace.due_at(position + more)
    assert pace.due(position, at) >= more
