"""Joins with a table in memory: broadcast and lookup, against a join in plain Python."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import StreamExecutionEnvironment
from strom.core.batch import ColumnBatch
from strom.core.elements import Watermark
from strom.core.errors import ConfigurationError, GraphError, OperatorError
from strom.core.row_kind import RowKind, with_kinds
from strom.operators.joins import lookup, tables
from strom.operators.joins.broadcast import BroadcastJoinOperator
from strom.state.operator_state import redistribute
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

KINDS = ("inner", "left", "semi", "anti")
LEFT = pa.schema([("k", pa.int64()), ("v", pa.int64())])
RIGHT = pa.schema([("id", pa.int32()), ("w", pa.string())])

ROWS = st.lists(st.tuples(st.integers(0, 4) | st.none(), st.integers(0, 9)), max_size=8)


def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def lefts(rows: Any) -> ColumnBatch:
    arrays = [pa.array([r[i] for r in rows], pa.int64()) for i in (0, 1)]
    data = pa.RecordBatch.from_arrays(arrays, schema=LEFT)
    return ColumnBatch(data, np.arange(len(rows)))


def rights(rows: Any) -> pa.RecordBatch:
    columns = [[r[0] for r in rows], [None if r[1] is None else str(r[1]) for r in rows]]
    arrays = [pa.array(c, kind) for c, kind in zip(columns, RIGHT.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RIGHT)


def expected(how: str, left: Any, right: Any) -> Counter[Any]:
    out: list[Any] = []
    for k, v in left:
        found = [r for r in right if k is not None and r[0] == k]
        if how in ("inner", "left"):
            out += [(k, v, r[0], str(r[1])) for r in found]
        if not found and how == "left":
            out.append((k, v, None, None))
        if how in ("semi", "anti") and bool(found) == (how == "semi"):
            out.append((k, v))
    return Counter(out)


def broadcast(how: str) -> Any:
    e = env()
    left, right = e.from_collection([]), e.from_collection([])
    return left.broadcast_join(
        right, how=how, left_on="k", right_on="id", left_type=LEFT, right_type=RIGHT
    )


def rescaled(stream: Any, snapshots: list[OperatorSnapshotTables], parallelism: int) -> Any:
    """Harnesses of a restored job at another parallelism."""
    shares = redistribute([s.operator for s in snapshots], parallelism)
    found = []
    for subtask, share in enumerate(shares):
        harness = subtask_harness(stream, subtask, OperatorSnapshotTables((), tuple(share)))
        found.append(harness)
    return found


def subtask_harness(stream: Any, subtask: int, snapshot: Any = None) -> OperatorHarness:
    """A harness whose operator believes to be this subtask (it asks in `open`)."""

    class Numbered(BroadcastJoinOperator):
        def open(self) -> None:
            self.ctx.subtask = subtask
            super().open()

    return OperatorHarness(Numbered(stream._operator.spec), restored=snapshot)


@pytest.mark.parametrize("how", KINDS)
@given(st.lists(ROWS, max_size=4), st.lists(ROWS, max_size=3), st.integers(0, 7), st.booleans())
@settings(max_examples=examples(60), deadline=None)
def test_broadcast_join_in_two_then_three_subtasks(
    how: str, left: Any, right: Any, stop: int, end: bool
) -> None:
    stream = broadcast(how)
    running = [subtask_harness(stream, i) for i in range(2)]
    out: Counter[Any] = Counter()
    steps = [("left", rows) for rows in left] + [("right", rows) for rows in right]
    steps.sort(key=lambda step: len(step[1]))
    for number, (side, rows) in enumerate(steps):
        if number == stop:
            snapshots = [harness.snapshot() for harness in running]
            out += Counter(row for harness in running for row in harness.outputs())
            running = rescaled(stream, snapshots, 3)
        if side == "left":
            running[number % len(running)].push(lefts(rows), port=0)
        else:
            for harness in running:
                harness.push(ColumnBatch(rights(rows)), port=1)
    for harness in running:
        assert harness.outputs() == []
        harness.end_input(1)
    if end:  # once more, with the table complete: its source ends again
        snapshots = [harness.snapshot() for harness in running]
        out += Counter(row for harness in running for row in harness.outputs())
        running = rescaled(stream, snapshots, 2)
        for harness in running:
            harness.end_input(1)
    running[0].push(lefts([(1, 100)]), port=0)
    out += Counter(row for harness in running for row in harness.outputs())
    everything = [row for rows in left for row in rows] + [(1, 100)]
    assert out == expected(how, everything, [row for rows in right for row in rows])


def test_a_broadcast_joins_snapshot_is_made_later_of_what_was_there() -> None:
    """Nothing is encoded before the barrier; what comes, or is complete, after it does not show."""
    harness = OperatorHarness.of(broadcast("left"))
    rows = [(1, 7), (2, 8)]
    harness.push(ColumnBatch(rights(rows)), port=1)
    harness.push(lefts([(1, 2), (3, 4)] * 50_000), port=0)
    harness.snapshot()
    tracemalloc.start()
    try:
        harness.operator.prepare_snapshot(2)
        snapshot = harness.operator_state.snapshot()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000
    harness.push(ColumnBatch(rights([(3, 9)])), port=1)
    harness.push(lefts([(2, 5)]), port=0)
    harness.end_input(1)
    restored = OperatorSnapshotTables((), tuple(snapshot.tables()))
    again = OperatorHarness.of(broadcast("left"), restored=restored)
    again.end_input(1)
    assert Counter(again.outputs()) == expected("left", [(1, 2), (3, 4)] * 50_000, rows)


def test_a_broadcast_joins_small_batches_are_few_in_a_snapshot() -> None:
    """As many as their rows need, however they came: else each snapshot took longer."""
    harness = OperatorHarness.of(broadcast("inner"))
    rows = [(n % 50, str(n)) for n in range(2_000)]
    for row in rows:
        harness.push(ColumnBatch(rights([row])), port=1)
        harness.push(lefts([(row[0], 1)]), port=0)
    operator = harness.operator
    assert isinstance(operator, BroadcastJoinOperator)
    assert len(operator._parts) <= 12
    assert operator._held is not None
    assert len(operator._held) <= 12
    again = OperatorHarness.of(broadcast("inner"), restored=harness.snapshot())
    again.end_input(1)
    assert Counter(again.outputs()) == Counter(
        (row[0], 1, *other) for row in rows for other in rows if other[0] == row[0]
    )


def test_broadcast_join_holds_back_records_and_watermark() -> None:
    harness = OperatorHarness.of(broadcast("left"))
    harness.push(lefts([(1, 2)]), port=0)
    harness.watermark(5)
    assert harness.output.elements == []
    harness.end_input(1)
    assert harness.outputs() == [(1, 2, None, None)]
    assert harness.controls() == [Watermark(5)]
    harness.watermark(7)
    assert harness.controls() == [Watermark(5), Watermark(7)]


def test_a_broadcast_table_may_be_a_changelog() -> None:
    harness = OperatorHarness.of(broadcast("inner"))
    kinds = [RowKind.INSERT, RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    table = rights([(1, "a"), (1, "a"), (1, "a"), (1, "b")])
    harness.push(ColumnBatch(with_kinds(table, np.array(kinds, np.int8))), port=1)
    harness.end_input(1)
    harness.push(lefts([(1, 2)]), port=0)
    assert Counter(harness.outputs()) == Counter([(1, 2, 1, "a"), (1, 2, 1, "b")])


def test_row_kinds_of_records_are_kept() -> None:
    harness = OperatorHarness.of(broadcast("left"))
    harness.push(ColumnBatch(rights([(1, "a")])), port=1)
    harness.end_input(1)
    records = with_kinds(lefts([(1, 2), (2, 3)]).data, np.array([3, 0], np.int8))
    harness.push(ColumnBatch(records), port=0)
    assert harness.outputs() == [(1, 2, 1, "a", 3), (2, 3, None, None, 0)]


def test_keys_of_records_do_not_pile_up(monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "UNKNOWN_KEYS", 10)
    harness = OperatorHarness.of(broadcast("inner"))
    harness.push(ColumnBatch(rights([(1, "a"), (3, "b"), (None, "c"), (1, "d")])), port=1)
    harness.end_input(1)
    for i in range(50):
        harness.push(lefts([(1, i), (3, i), (100 + i, i)]), port=0)
        found = Counter(harness.take_outputs())
        assert found == Counter([(1, i, 1, "a"), (1, i, 1, "d"), (3, i, 3, "b")])
    operator: Any = harness.operator
    assert operator._rows.known_keys() < 30


def test_a_table_that_never_ends_is_refused() -> None:
    from strom.connectors.datagen import NexmarkSource

    e = env()
    endless = e.from_source(NexmarkSource(None), None, "bids")
    with pytest.raises(ConfigurationError, match="never ends"):
        e.from_collection([]).broadcast_join(endless, on="auction")
    with pytest.raises(GraphError, match="right_type"):
        e.from_collection([]).broadcast_join(e.from_collection([]), on="k", how="left")
    with pytest.raises(ConfigurationError, match="either on="):
        e.from_collection([]).broadcast_join(e.from_collection([]))


TABLES = {
    "table": lambda rows: pa.Table.from_batches([rights(rows)]),
    "batch": rights,
    "polars": lambda rows: pl.DataFrame(rights(rows)),
    "pandas": lambda rows: pd.DataFrame(
        {"id": pd.array([r[0] for r in rows], "Int64"), "w": [str(r[1]) for r in rows]}
    ),
}


@pytest.mark.parametrize("how", KINDS)
@given(st.lists(ROWS, max_size=3), ROWS, st.sampled_from(sorted(TABLES)))
@settings(max_examples=examples(30), deadline=None)
def test_lookup_in_a_table(how: str, batches: Any, right: Any, kind: str) -> None:
    right = [*right, (4, 4)]
    stream = (
        env()
        .from_collection([])
        .lookup_join(TABLES[kind](right), how=how, left_on="k", right_on="id")
    )
    harness = OperatorHarness.of(stream)
    for rows in batches:
        harness.push(lefts(rows), port=0)
        assert Counter(harness.take_outputs()) == expected(how, rows, right)


class Service:
    """A lookup function that remembers what it was asked."""

    def __init__(self, right: Any) -> None:
        self.right = right
        self.asked: list[list[int]] = []

    def __call__(self, keys: pa.RecordBatch) -> pa.Table:
        assert keys.schema.names == ["id"]
        self.asked.append(keys.column("id").to_pylist())
        # All rows it has, also of keys nobody asked for.
        return pa.Table.from_batches([rights(self.right)])


@pytest.mark.parametrize("how", KINDS)
@given(st.lists(ROWS, max_size=5), ROWS, st.sampled_from([0, 1, 3, 100]), st.integers(0, 9))
@settings(max_examples=examples(40), deadline=None)
def test_lookup_by_a_function(how: str, batches: Any, right: Any, size: int, wait: int) -> None:
    service = Service(right)
    stream = (
        env()
        .from_collection([])
        .lookup_join(service, how=how, left_on="k", right_on="id", cache_size=size, cache_ttl=20)
    )
    harness = OperatorHarness.of(stream)
    harness.push(lefts([(1, 1)]))
    harness.take_outputs()
    remembered = {1}
    since = 0
    for number, rows in enumerate(batches):
        harness.advance_processing_time(number * wait)
        before = len(service.asked)
        harness.push(lefts(rows))
        assert Counter(harness.take_outputs()) == expected(how, rows, service.right)
        keys = {k for k, _ in rows if k is not None}
        asked = service.asked[before:]
        assert len(asked) <= 1
        assert all(len(set(ks)) == len(ks) and set(ks) <= keys for ks in asked)
        if rows and size == 100:
            if number * wait - since >= 20:
                remembered = set()
                since = number * wait
            assert set(asked[0] if asked else ()) == keys - remembered
            remembered |= keys


def test_lookup_function_as_a_class_and_what_it_may_not_give() -> None:
    class Ten:
        def __call__(self, keys: pa.RecordBatch) -> Any:
            return pl.DataFrame(keys).with_columns(ten=pl.col("k") * 10)

    stream = env().from_collection([]).lookup_join(Ten, on="k")
    harness = OperatorHarness.of(stream)
    harness.push([{"k": 1, "v": 1}, {"k": 2, "v": 2}, {"k": 1, "v": 3}])
    assert harness.outputs() == [(1, 1, 10), (2, 2, 20), (1, 3, 10)]
    assert harness.metrics.get_count(lookup.LOOKUPS) == 2

    for give, what in (([1], "list"), (pa.table({"x": [1]}), "key columns")):
        harness = OperatorHarness.of(
            env().from_collection([]).lookup_join(lambda keys, give=give: give, on="k")
        )
        with pytest.raises(OperatorError, match=what):
            harness.push([{"k": 1}])
    with pytest.raises(ConfigurationError, match="callable"):
        env().from_collection([]).lookup_join(5, on="k")
    with pytest.raises(ConfigurationError, match="no columns"):
        env().from_collection([]).lookup_join(pa.table({"x": [1]}), on="k")
