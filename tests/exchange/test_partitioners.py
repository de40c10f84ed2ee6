"""Every record goes to the right channel, exactly once and in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.batch import Batch, ColumnBatch, ObjectBatch
from strom.core.errors import ConfigurationError, TypeMismatchError
from strom.core.keys import ColumnKey, ConstantKey, FunctionKey
from strom.engine.exchange.partitioners import _ByKey, make_selector, reordered
from strom.engine.graph.model import (
    Broadcast,
    Custom,
    Forward,
    Global,
    KeyGroups,
    Rebalance,
    Rescale,
    Shuffle,
)
from strom.state.key_groups import key_group


def columns(n: int) -> ColumnBatch:
    data = {"k": np.arange(n) * 7 % 13, "s": [f"v{i}" for i in range(n)], "i": np.arange(n)}
    return ColumnBatch(pa.record_batch(data), np.arange(n, dtype=np.int64))


def contents(batch: Batch) -> list[Any]:
    stamps = [] if batch.timestamps is None else batch.timestamps.tolist()
    return [list(map(tuple, batch.rows())), stamps]


@pytest.mark.parametrize("partitioner", [Forward(), Global()])
def test_everything_to_one(partitioner: Any) -> None:
    batch = columns(5)
    assert make_selector(partitioner, 3).split(batch) == [(0, batch)]


@pytest.mark.parametrize("partitioner", [Rebalance(), Rescale()])
def test_batches_in_turn_beginning_at_different_channels(partitioner: Any) -> None:
    batch = columns(2)
    for subtask in range(4):
        selector = make_selector(partitioner, 3, subtask=subtask)
        positions = [selector.split(batch)[0][0] for _ in range(4)]
        assert positions == [(subtask + i) % 3 for i in range(4)]


def test_broadcast_shares_the_batch() -> None:
    batch = columns(2)
    assert make_selector(Broadcast(), 2).split(batch) == [(0, batch), (1, batch)]


def test_shuffle_is_repeatable_even_and_complete() -> None:
    batch = columns(9000)
    first, second = (make_selector(Shuffle(), 3, seed=5).split(batch) for _ in range(2))
    assert [(p, contents(b)) for p, b in first] == [(p, contents(b)) for p, b in second]
    assert all(2700 < len(part) < 3300 for _, part in first)
    everything = np.concatenate([part.timestamps for _, part in first])
    assert sorted(everything.tolist()) == list(range(9000))
    assert all((np.diff(part.timestamps) > 0).all() for _, part in first)


@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60),
    channels=st.integers(1, 7),
    text=st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_keyed_columns_and_rows_agree_with_the_definition(
    keys: list[int], channels: int, text: bool
) -> None:
    values: list[Any] = [str(k) for k in keys] if text else keys
    kind = pa.string() if text else pa.int64()
    stamps = np.arange(len(keys), dtype=np.int64)
    column_batch = ColumnBatch(pa.record_batch({"k": pa.array(values, kind)}), stamps)
    by_column = make_selector(KeyGroups(ColumnKey(("k",))), channels)
    by_row = make_selector(KeyGroups(FunctionKey(lambda v: v)), channels)
    expected: dict[int, list[int]] = {}
    for row, value in enumerate(values):
        expected.setdefault(subtask_for(key_group(value, 128), channels, 128), []).append(row)
    for split in (by_column.split(column_batch), by_row.split(ObjectBatch(values, stamps))):
        assert {p: b.timestamps.tolist() for p, b in split} == expected
        for _, part in split:
            got = [row[0] for row in part.rows()] if isinstance(part, ColumnBatch) else part.rows()
            assert got == [values[i] for i in part.timestamps.tolist()]


def test_one_receiver_or_one_key_needs_no_reordering() -> None:
    batch = columns(100)
    assert make_selector(KeyGroups(ColumnKey(("k",))), 1).split(batch)[0][1] is batch
    assert make_selector(KeyGroups(ConstantKey()), 4).split(batch)[0][1] is batch


def test_slices_of_one_reordering_share_memory() -> None:
    parts = make_selector(KeyGroups(ColumnKey(("k",))), 2).split(columns(1000))
    assert len(parts) == 2
    first, second = (part.data.column(2).buffers()[1].address for _, part in parts)
    assert first == second


@given(
    rows=st.lists(st.tuples(st.integers(-99, 99), st.one_of(st.none(), st.text())), max_size=30),
    data=st.data(),
)
@settings(max_examples=examples(60), deadline=None)
def test_reordered_is_take(rows: list[tuple[int, str | None]], data: st.DataObject) -> None:
    numbers = [n for n, _ in rows]
    batch = pa.record_batch(
        {
            "a": pa.array(numbers, pa.int8()),
            "b": pa.array([n > 0 for n in numbers], pa.bool_()),
            "c": pa.array([None if n < 0 else n for n in numbers], pa.float64()),
            "d": pa.array([s for _, s in rows], pa.string()),
            "e": pa.array(numbers, pa.timestamp("ms")),
            "f": pa.array(numbers, pa.decimal128(9)),
        }
    )
    start = data.draw(st.integers(0, len(rows)))
    part = ColumnBatch(batch.slice(start))
    order = np.array(data.draw(st.permutations(range(len(part)))), dtype=np.int64)
    result = reordered(part, order)
    assert isinstance(result, ColumnBatch)
    assert result.data.equals(part.take(order).data)


def test_custom_partitioning() -> None:
    selector = make_selector(Custom(lambda key, n: key % n, FunctionKey(lambda v: v)), 3)
    parts = selector.split(ObjectBatch([0, 1, 2, 3, 4, 5]))
    assert [(p, b.rows()) for p, b in parts] == [(0, [0, 3]), (1, [1, 4]), (2, [2, 5])]


@pytest.mark.parametrize("bad", [3, -1, "1", 1.0, None, True])
def test_a_bad_custom_target_is_named_with_its_key(bad: Any) -> None:
    selector = make_selector(Custom(lambda key, n: bad, FunctionKey(lambda v: v)), 3)
    with pytest.raises(TypeMismatchError, match="for key 'k'"):
        selector.split(ObjectBatch(["k"]))


def test_rows_without_columns_are_not_lost() -> None:
    batch = ColumnBatch(columns(100).data.select([]), np.arange(100, dtype=np.int64))
    split = make_selector(Shuffle(), 3).split(batch)
    assert sum(len(part) for _, part in split) == 100
    stamps = np.concatenate([part.timestamps for _, part in split])
    assert sorted(stamps.tolist()) == list(range(100))


def test_empty_batches_go_nowhere() -> None:
    key = ColumnKey(("k",))
    for partitioner in (Forward(), Rebalance(), Shuffle(), Broadcast(), KeyGroups(key)):
        assert make_selector(partitioner, 3).split(columns(0)) == []
    with pytest.raises(ConfigurationError):
        make_selector(Forward(), 0)


@pytest.mark.parametrize(
    ("function", "columnar"),
    [
        (lambda row: row.k, True),
        (lambda row: (row.s, row.i), True),
        (lambda row: (row["k"] % 5, row.s[:2], row.i > 7), True),
        (lambda row: (row.k,), False),
        (lambda row: (row.s, 1), False),
        (lambda row: row.i / 4, False),
        (lambda row: row.s if row.i % 3 else row.k, False),
        (lambda row: None if row.i % 2 else row.s, False),
    ],
)
def test_a_key_function_on_columns_sends_records_where_it_sends_them_itself(
    function: Any, columnar: bool
) -> None:
    batch, partitioner = columns(600), KeyGroups(FunctionKey(function))
    found = make_selector(partitioner, 3, compiles=True)
    wanted = make_selector(partitioner, 3)
    assert isinstance(found, _ByKey)
    assert isinstance(found._keys(batch), pa.RecordBatch) is columnar
    assert not batch.has_rows
    by_columns, by_rows = found.split(batch), wanted.split(columns(600))
    assert [(at, contents(one)) for at, one in by_columns] == [
        (at, contents(one)) for at, one in by_rows
    ]
    keys = found._key.keys(columns(600))
    for at, one in found.split(columns(600)):
        assert {subtask_for(key_group(key, 128), 3, 128) for key in found._key.keys(one)} == {at}
    assert len(set(keys)) > 5
