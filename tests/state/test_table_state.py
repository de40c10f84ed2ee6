"""The column face and buffers: use, snapshot, restore, rescale."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError, TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.state.backend import KEY_GROUP, AccColumn, StateTable
from strom.state.key_groups import key_group, key_groups_of, range_for, subtask_table
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.table_state import MemoryTableState

GROUPS = 16
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int32())])
ACCUMULATORS = [AccColumn("count", "int64"), AccColumn("low", "float64", float("inf"))]


def backend(subtask: int = 0, parallelism: int = 1) -> MemoryKeyedStateBackend:
    return MemoryKeyedStateBackend(range_for(subtask, parallelism, GROUPS), GROUPS)


def cut(table: StateTable, groups: KeyGroupRange) -> StateTable:
    column = table.data.column(KEY_GROUP).to_numpy()
    assert (np.diff(column) >= 0).all()
    mask = (column >= groups.first) & (column <= groups.last)
    return StateTable(table.name, table.kind, table.data.filter(pa.array(mask)), table.metadata)


def rescaled(old: list[MemoryKeyedStateBackend], parallelism: int) -> list[MemoryKeyedStateBackend]:
    tables = [table for b in old for table in b.snapshot().tables()]
    made = [backend(i, parallelism) for i in range(parallelism)]
    for b in made:
        b.restore([cut(table, b.key_groups) for table in tables])
    return made


def batch(rows: list[tuple[str | None, int | None]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [(), ()]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def count(b: MemoryKeyedStateBackend, namespace: int, rows: list[Any]) -> None:
    table = b.table("t", SCHEMA, ACCUMULATORS).table(namespace)
    slots = table.slots(batch(rows))
    np.add.at(table.column("count"), slots, 1)
    np.minimum.at(table.column("low"), slots, 0.5)


def counted(backends: list[MemoryKeyedStateBackend]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for b in backends:
        state = b.table("t", SCHEMA, ACCUMULATORS)
        for namespace in state.namespaces():
            table = state.table(namespace)
            counts = table.column("count")[: len(table)].tolist()
            for key, n in zip(table.keys().to_pylist(), counts, strict=True):
                found[namespace, key["user"], key["n"]] += n
    return found


def test_slots_in_order_of_first_appearance_with_initial_accumulators() -> None:
    table = backend().table("t", SCHEMA, ACCUMULATORS).table(5)
    assert table.slots(batch([("a", 1), ("a", None), ("a", 1), (None, 1)])).tolist() == [0, 1, 0, 2]
    assert table.slots(batch([])).tolist() == []
    assert len(table) == 3
    assert table.column("count")[:3].tolist() == [0, 0, 0]
    assert table.column("low")[:3].tolist() == [float("inf")] * 3
    assert table.keys() == batch([("a", 1), ("a", None), (None, 1)])
    with pytest.raises(StateError, match="no column 'high', only"):
        table.column("high")


def test_finding_keys_adds_and_touches_none() -> None:
    table = backend().table("t", SCHEMA, ACCUMULATORS).table()
    table.slots(batch([("a", 1), (None, 1), ("b", 2)]))
    table.release(np.array([2]))
    asked = batch([("b", 2), ("a", 1), ("a", None), (None, 1), ("b", 1)])
    assert table.find(asked).tolist() == [-1, 0, -1, 1, -1]
    assert len(table) == 3
    assert table.slots(batch([("b", 2)])).tolist() == table.find(batch([("b", 2)])).tolist()


def test_accumulators_survive_growth() -> None:
    schema = pa.schema([("k", pa.int64())])
    table = backend().table("t", schema, ACCUMULATORS).table()
    for start in range(0, 5000, 500):
        keys = pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + 500))], schema=schema)
        slots = table.slots(keys)
        assert (table.column("low")[slots] == float("inf")).all()
        table.column("count")[slots] = slots * 2
    assert table.column("count")[:5000].tolist() == list(range(0, 10000, 2))


def test_namespaces_drop() -> None:
    b = backend()
    count(b, 9, [("a", 1)])
    count(b, -3, [("a", 1)])
    state = b.table("t", SCHEMA, ACCUMULATORS)
    assert state.namespaces() == [-3, 9]
    state.drop(9)
    state.drop(1234)
    assert state.namespaces() == [-3]


def test_other_integer_widths_are_cast_and_text_is_refused() -> None:
    table = backend().table("t", pa.schema([("k", pa.int64())]), []).table()
    narrow = pa.RecordBatch.from_arrays([pa.array([1, 2], pa.int8())], names=["k"])
    assert table.slots(narrow).tolist() == [0, 1]
    text = pa.RecordBatch.from_arrays([pa.array(["x"])], names=["k"])
    with pytest.raises(TypeMismatchError, match=r"\[k: string\] do not fit .* \[k: int64\]"):
        table.slots(text)


ROWS = st.tuples(st.none() | st.sampled_from(["a", "bb", ""]), st.none() | st.integers(-2, 4))
WRITES = st.lists(st.tuples(st.integers(-1, 2), st.lists(ROWS, min_size=1, max_size=8)), max_size=5)


@settings(max_examples=examples(40), deadline=None)
@given(WRITES, st.booleans())
def test_rescaled_tables_are_the_same(writes: list[Any], reread: bool) -> None:
    two = [backend(i, 2) for i in range(2)]
    expected: Counter[Any] = Counter()
    for namespace, rows in writes:
        owners = subtask_table(2, GROUPS)[key_groups_of(batch(rows), GROUPS)]
        for row, owner in zip(rows, owners, strict=True):
            count(two[owner], namespace, [row])
            expected[namespace, *row] += 1
    three = rescaled(two, 3)
    if reread:
        assert counted(three) == expected
    assert counted(rescaled(three, 1)) == expected


def test_change_after_the_snapshot_does_not_leak() -> None:
    b = backend()
    count(b, 0, [("a", 1)])
    snapshot = b.snapshot()
    count(b, 0, [("a", 1), ("b", 2)])
    new = backend()
    new.restore(snapshot.tables())
    assert counted([new]) == {(0, "a", 1): 1}


def test_dictionary_keys_round_trip() -> None:
    schema = pa.schema([("k", pa.dictionary(pa.int32(), pa.string()))])
    keys = pa.RecordBatch.from_arrays(
        [pa.array(["x", None, "y", "x"]).dictionary_encode()], schema=schema
    )
    b = backend()
    assert b.table("t", schema, ACCUMULATORS).table().slots(keys).tolist() == [0, 1, 2, 0]
    (new,) = rescaled([b], 1)
    table = new.table("t", schema, ACCUMULATORS).table()
    assert sorted(map(str, table.keys().column(0).to_pylist())) == ["None", "x", "y"]
    assert len(set(table.slots(keys).tolist())) == 3


def test_changed_keys_or_accumulators_are_refused() -> None:
    b = backend()
    count(b, 0, [("a", 1)])
    with pytest.raises(StateError, match=r"user: string.* is asked for with .*user: int64"):
        b.table("t", pa.schema([("user", pa.int64())]), ACCUMULATORS)
    changed = pa.schema([("user", pa.string())])
    (new,) = rescaled([b], 1)
    with pytest.raises(StateError, match=r"keys \[user: string, n: int32\] .* keys \[user: string"):
        new.table("t", changed, ACCUMULATORS)
    with pytest.raises(StateError, match=r"accumulators \[count.*low.*accumulators \[count: int"):
        new.table("t", SCHEMA, ACCUMULATORS[:1])
    assert counted([new]) == {(0, "a", 1): 1}


def test_buffers_keep_rows_in_order_across_rescale() -> None:
    schema = pa.schema([("k", pa.int64()), ("x", pa.string())])
    two = [backend(i, 2) for i in range(2)]
    for step in range(4):
        ks = pa.array(np.arange(20))
        rows = pa.RecordBatch.from_arrays([ks, pa.array([f"s{step}"] * 20)], schema=schema)
        groups = key_groups_of(rows.select(["k"]), GROUPS)
        owners = subtask_table(2, GROUPS)[groups]
        for i, b in enumerate(two):
            mask = owners == i
            b.buffer("b", schema).append(step % 2, rows.filter(pa.array(mask)), groups[mask])
    three = rescaled(two, 3)
    (one,) = rescaled(three, 1)
    for buffers in ([b.buffer("b", schema) for b in three], [one.buffer("b", schema)]):
        rows = pa.concat_tables([buffer.get(1)[0] for buffer in buffers])
        by_key: dict[int, list[str]] = {}
        for row in rows.to_pylist():
            by_key.setdefault(row["k"], []).append(row["x"])
        assert by_key == {k: ["s1", "s3"] for k in range(20)}
    rows, groups = one.buffer("b", schema).get(0)
    keys = pa.RecordBatch.from_arrays([rows["k"].combine_chunks()], names=["k"])
    assert groups.tolist() == key_groups_of(keys, GROUPS).tolist()


def test_buffer_replace_drop_and_errors() -> None:
    schema = pa.schema([("k", pa.int64())])
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2])], schema=schema)
    buffer = backend().buffer("b", schema)
    buffer.append(3, rows, np.array([1, 2], np.int32))
    buffer.replace(3, pa.table(rows.slice(1)), np.array([2], np.int32))
    assert buffer.get(3)[0].to_pylist() == [{"k": 2}]
    buffer.replace(3, schema.empty_table(), np.empty(0, np.int32))
    assert buffer.namespaces() == []
    assert (buffer.get(3)[0].num_rows, len(buffer.get(3)[1])) == (0, 0)
    with pytest.raises(StateError, match="2 rows but 1 key groups"):
        buffer.append(0, rows, np.array([1], np.int32))
    with pytest.raises(TypeMismatchError, match=r"\[z: int64\], declared are \[k: int64\]"):
        buffer.append(0, rows.rename_columns(["z"]), np.array([1, 2], np.int32))


def test_entries_of_a_key_are_in_the_group_of_the_key() -> None:
    keys = pa.schema([("k", pa.int64()), ("value", pa.string())])
    numbers = list(range(50))
    rows = pa.record_batch([pa.array(numbers), pa.array([str(n % 7) for n in numbers])], keys)
    state = backend()
    state.table("pairs", keys, [], key_columns=1).table().slots(rows)
    (table,) = state.snapshot().tables()
    found, groups = (table.data.column(name).to_pylist() for name in ("key.k", KEY_GROUP))
    assert dict(zip(found, groups, strict=True)) == {n: key_group(n, GROUPS) for n in numbers}


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_a_table_after_a_dropped_one_is_as_good_as_new(kind: pa.DataType) -> None:
    """It has room for as many keys from the start, and is empty."""
    schema = pa.schema([("k", kind)])
    state = MemoryTableState("t", schema, [AccColumn("n", "int64", 7)])

    def keys(count: int) -> pa.RecordBatch:
        values = [n if kind == pa.int64() else f"key {n}" for n in range(count)]
        return pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema)

    for count in (1000, 3, 5000, 70_000, 10):
        table = state.table(1)
        assert len(table) == 0
        assert table.slots(keys(count)).tolist() == list(range(count))
        assert table.keys().equals(keys(count))
        assert table.column("n")[:count].tolist() == [7] * count
        table.column("n")[:count] = 1
        state.drop(1)


def test_a_table_asked_for_again_has_the_same_key() -> None:
    state = backend()
    state.table("t", SCHEMA, ACCUMULATORS, 1)
    with pytest.raises(StateError, match=r"1 key columns that decide the key group.* with 2"):
        state.table("t", SCHEMA, ACCUMULATORS)
