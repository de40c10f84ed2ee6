"""Columns of lists, structs, maps and whatever has such in it: as plain columns, as bytes of kept
rows, and in tables of which rows lie in RocksDB. All come back as they were, bit by bit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.state_config import StateConfig
from strom.core.value_types import BigDecimal, as_type, is_tuple, tuple_struct
from strom.state.rocks.database.plain_columns import from_plain, has_plain, plain_type, to_plain
from strom.state.rocks.database.rows_database import RowsDatabase
from strom.state.rocks.kept.nested_columns import NestedColumns, rows_fit
from strom.state.rocks.kept.row_table import ColdRowTable
from strom.state.rocks.tables.value_bytes import has_bytes
from strom.state.rows.slab import RowTable
from strom.testing.backends import spilling

GROUPS = 8
_BITS = [0, 1 << 63, 0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000003]
FLOATS = np.array(_BITS, np.uint64).view(np.float64).tolist()
"""Zeros and NaN: of each several that differ in bits."""

LEAVES: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), st.integers(-128, 127)),
    (pa.float64(), st.sampled_from([*FLOATS, 1.5])),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=3)),
    (pa.large_binary(), st.binary(max_size=3)),
    (pa.string_view(), st.text(max_size=20)),
    (pa.binary_view(), st.binary(max_size=20)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.binary(0), st.just(b"")),
    (pa.decimal128(5, 2), st.sampled_from([Decimal("1.50"), Decimal("-0.01")])),
    (pa.decimal256(50, 2), st.sampled_from([Decimal("1.50"), Decimal("-0.01")])),
    (pa.timestamp("us", "Europe/Paris"), st.integers(0, 2**40)),
    (pa.time64("ns"), st.integers(0, 10**9)),
    (pa.duration("ns"), st.integers(-(2**40), 2**40)),
    (pa.month_day_nano_interval(), st.just(pa.MonthDayNano([1, 2, 3]))),
    (pa.null(), st.none()),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b"])),
]


def nested(inner: Any) -> Any:
    def lists(made: Any) -> Any:
        kind, values = made
        items = st.lists(st.none() | values, max_size=3)
        two = st.lists(st.none() | values, min_size=2, max_size=2)
        some = (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)
        kinds = [(make(kind), items) for make in some] + [(pa.list_(kind, 2), two)]
        maps = st.lists(st.tuples(st.sampled_from("ab"), st.none() | values), max_size=2)
        return st.sampled_from([*kinds, (pa.map_(pa.string(), kind), maps)])

    def structs(made: Any) -> Any:
        fields = [(f"f{at}", kind) for at, (kind, _) in enumerate(made)]
        values = {f"f{at}": st.none() | one for at, (_, one) in enumerate(made)}
        return st.just((pa.struct(fields), st.fixed_dictionaries(values)))

    return inner.flatmap(lists) | st.lists(inner, max_size=3).flatmap(structs)


KINDS = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


def made(kind: pa.DataType, values: list[Any]) -> pa.Array | None:
    """None where Python values cannot be made a column of this type."""
    try:
        return pa.array(values, kind)
    except pa.ArrowNotImplementedError:
        return None


def bits(column: pa.Array) -> Any:
    """What there is, NaN by their bits."""
    kind = column.type
    if pa.types.is_floating(kind):
        return column.view(pa.int64()).to_pylist()
    if pa.types.is_struct(kind):
        fields = [bits(column.field(at)) for at in range(kind.num_fields)]
        return [column.is_valid().to_pylist(), *fields]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [column.value_lengths().to_pylist(), bits(column.flatten())]
    return column.to_pylist()


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_what_was_made_plain_is_what_it_was(data: Any) -> None:
    """Of slices; and the bytes of a row say it in any order."""
    kind, values = data.draw(KINDS)
    count, before = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 2))
    size = before + count + 1
    column = made(kind, data.draw(st.lists(st.none() | values, min_size=size, max_size=size)))
    if column is None:
        return
    column = column.slice(before, count)
    assert has_plain(kind)
    plain = to_plain(column)
    plain.validate(full=True)
    assert plain.type == plain_type(kind)
    assert has_bytes(plain.type)
    back = from_plain(plain, kind)
    back.validate(full=True)
    assert back.type == kind
    assert bits(to_plain(back)) == bits(plain)
    assert str(back.to_pylist()) == str(column.to_pylist())
    rows = NestedColumns([kind])
    (held,) = rows.packed([column])
    order = data.draw(st.permutations(range(count)))
    (found,) = rows.unpacked([0], [held.take(pa.array(order, pa.int64()))])
    want = column.to_pylist()
    assert str(found.to_pylist()) == str([want[at] for at in order])


def test_what_is_within_null_stays() -> None:
    """Nobody sees it, but it is no reason to fail."""
    fields = [pa.array([1, 2, 3]), pa.array([["a"], ["b", "c"], []], pa.list_(pa.string()))]
    mask = pa.array([False, True, False])
    one = pa.StructArray.from_arrays(fields, names=["a", "b"], mask=mask)
    ends = pa.array([0, 2, 3, 3], pa.int32())
    lists = pa.ListArray.from_arrays(ends, pa.array([1, 2, 3]), mask=mask)
    sized = pa.FixedSizeListArray.from_arrays(pa.array(range(6)), 2, mask=mask)
    for column in (one, lists, sized):
        for part in (column, column.slice(1), column.slice(0, 0)):
            back = from_plain(to_plain(part), part.type)
            back.validate(full=True)
            assert back.equals(part)


def test_marks_of_tuples_stay() -> None:
    kind = pa.list_(tuple_struct([pa.int64(), BigDecimal()]))
    plain = pa.array([[{"f0": 1, "f1": "1.50"}], None], plain_type(kind))
    rows = NestedColumns([kind])
    (found,) = rows.unpacked([0], rows.packed([as_type(from_plain(plain, kind), kind)]))
    assert is_tuple(found.type.value_type)
    assert found.values.field(1).type == BigDecimal()


SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "l": pa.list_(pa.struct({"x": pa.float64(), "at": pa.timestamp("ns", "UTC")})),
        "m": pa.map_(pa.string(), pa.list_(pa.decimal128(5, 2))),
        "d": pa.dictionary(pa.int32(), pa.string()),
        "b": BigDecimal(),
        "n": pa.null(),
        "u": pa.uuid(),
        "t": pa.string(),
        "s": pa.struct({"v": pa.string_view(), "e": pa.struct([])}),
    }
)


def batch(keys: list[int], size: int = 1) -> pa.RecordBatch:
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    columns: list[list[Any]] = [
        keys,
        [None if k % 7 == 1 else [{"x": FLOATS[k % 5], "at": at}, None] * (k % 3) for k in keys],
        [
            None if k % 5 == 1 else [("a" * size, [Decimal(k % 99), None]), ("b", None)]
            for k in keys
        ],
        [None if k % 4 == 1 else f"d{k % 3}" for k in keys],
        [None if k % 3 == 1 else str(Decimal(k) / 4) for k in keys],
        [None] * len(keys),
        [None if k % 6 == 1 else k.to_bytes(16, "big") for k in keys],
        [f"{k}" for k in keys],
        [None if k % 2 else {"v": "a longer text than fits" * (k % 3), "e": {}} for k in keys],
    ]
    arrays = []
    for values, kind in zip(columns, SCHEMA.types, strict=True):
        if isinstance(kind, pa.BaseExtensionType):
            stored = pa.array(values, kind.storage_type)
            arrays.append(pa.ExtensionArray.from_storage(kind, stored))
        else:
            arrays.append(pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@pytest.fixture(scope="module")
def database() -> Iterator[RowsDatabase]:
    made = RowsDatabase(spilling(8))
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(4))
def test_rows_as_in_memory(database: RowsDatabase, seed: int) -> None:
    """Keyed by a whole number, an extension type or a dictionary; snapshots are those of memory."""
    random = np.random.default_rng(seed)
    keys = [[0], [6], [3], [7, 0]][seed]
    assert rows_fit(SCHEMA)
    cold = ColdRowTable("t", SCHEMA, keys, (), True, GROUPS, database)
    plain = RowTable("t", SCHEMA, keys, (), True, GROUPS)
    held: dict[int, Any] = {}
    for _ in range(12):
        rows = batch(random.integers(0, 50, 20).tolist(), int(random.integers(1, 30)))
        at = cold.add(rows).tolist()
        assert plain.add(rows).tolist() == at
        held.update(zip(at, rows.to_pylist(), strict=True))
        if random.random() < 0.7:
            cold.cache.make_room()
        gone = random.permutation(sorted(held))[: random.integers(0, 12)]
        for table in (cold, plain):
            table.release(gone)
        for position in gone.tolist():
            del held[position]
        asked = random.permutation(sorted(held))
        found = cold.read(asked)
        assert found.schema == SCHEMA
        found.validate(full=True)
        assert str(found.to_pylist()) == str([held[at] for at in asked.tolist()])
        cold.validate()
    assert cold.cache.spilled
    assert cold.cache.loaded
    (whole,) = [plain.freeze("t").table(GROUPS)]
    assert whole is not None
    parts = [table.data for table in cold.freeze("t").tables(GROUPS)]
    assert str(pa.concat_tables(parts).to_pylist()) == str(whole.data.to_pylist())
    assert pa.concat_tables(parts).schema == whole.data.schema
    again = ColdRowTable("t", SCHEMA, keys, (), True, GROUPS, database)
    again.restore([whole])
    again.cache.make_room()
    key = str
    assert sorted(map(key, again.read(again.positions()).to_pylist())) == sorted(
        map(key, held.values())
    )
    for table in (cold, again):
        table.cache.close()


def test_nested_rows_in_memory_are_bounded() -> None:
    """20 MB of maps and lists, with half a megabyte for those in use."""
    database = RowsDatabase(StateConfig("rocksdb", memory=2 << 20, rocksdb_share=0.75))
    table = ColdRowTable("t", SCHEMA, [0], (), True, GROUPS, database)
    largest = 0
    for first in range(0, 20_000, 500):
        table.add(batch(list(range(first, first + 500)), 1000))
        table.cache.make_room()
        largest = max(largest, table.cache.used)
    in_frames = int((table.cache._frame.array >= 0).sum())
    assert len(table) == 20_000
    assert in_frames < 600
    assert table.cache.spilled == 20_000 - in_frames
    assert largest <= 1 << 19
    database.close()
