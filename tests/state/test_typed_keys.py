"""Keys of every type that columns can have, in tables of which rows lie in RocksDB: those are one
key that are one in memory, and what is read back is what memory has."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from backends import close_all, make_backend
from strom.core.batch import take_rows
from strom.core.ids import KeyGroupRange
from strom.state.backend import KEY_GROUP, AccColumn, StateTable
from strom.state.key_groups import key_groups_of, range_for
from strom.state.key_index import CompositeIndex
from strom.state.rocks.database.layouts import LAYOUT
from strom.state.rocks.tables.key_columns import key_fits
from strom.state.rocks.tables.slot_layout import slots_layout
from strom.state.rocks.tables.slot_rows import SlotRows
from strom.state.rocks.tables.table_state import ColdTableState
from strom.state.table_state import MemoryTableState
from strom.state.value_store import ValueStore

GROUPS = 8
COLUMNS = [AccColumn("n", "int64"), AccColumn("text", "int64", -1)]
VALUES = {"text": lambda: ValueStore(pa.string())}
NO_VALUES = pa.schema([])

_BITS = [0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000002, 0x7FF0000000000003]
NANS: list[Any] = np.array(_BITS, np.uint64).view(np.float64).tolist()
FLOATS: list[Any] = [0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), *NANS, None]
TICKS: list[Any] = [0, 1, -1, 999, 1000, 1001, -(2**55), 2**55, None]
DAYS: list[Any] = [0, 1, -1, 20_000, None]
DECIMALS: list[Any] = [Decimal("1.50"), Decimal("1.5"), Decimal("0"), Decimal("-0.00"), None]
DECIMALS += [Decimal("-1.50"), Decimal("99.99")]
IN_ZONE = pa.timestamp("us", "Europe/Paris")

KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.float64(), FLOATS),
    (pa.float32(), FLOATS),
    (pa.float16(), FLOATS),
    (pa.uint64(), [0, 1, 2**63, 2**64 - 1, None]),
    (pa.decimal32(4, 2), DECIMALS),
    (pa.decimal64(4, 2), DECIMALS),
    (pa.decimal128(4, 2), DECIMALS),
    (pa.decimal256(50, 2), DECIMALS),
    (pa.date32(), DAYS),
    (pa.date64(), [None if day is None else 86_400_000 * day for day in DAYS]),
    (pa.time32("s"), [0, 1, 86_399, None]),
    (pa.time64("ns"), [0, 1, 999, 1000, 86_399_999_999_999, None]),
    (pa.timestamp("s"), DAYS),
    (pa.timestamp("us"), TICKS),
    (IN_ZONE, TICKS),
    (pa.timestamp("ns", "UTC"), TICKS),
    (pa.duration("ms"), DAYS),
    (pa.duration("ns"), TICKS),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 0, 0]), pa.MonthDayNano([0, 30, 0]), None]),
    (pa.binary(3), [b"abc", b"\0\0\0", None]),
    (pa.binary(0), [b"", None]),
    (pa.string_view(), ["", "a", "a text of more than twelve bytes", None]),
    (pa.binary_view(), [b"", b"\0", None]),
    (pa.uuid(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes, None]),
    (pa.null(), [None]),
    (pa.list_(pa.int64()), [[], [None], [0], [0, 0], [1, None], None]),
    (pa.large_list(pa.float64()), [[], [0.0], [-0.0], *([nan] for nan in NANS), [None], None]),
    (pa.list_(pa.string()), [[], ["a", ""], ["", "a"], ["aa"], [None], None]),
    (pa.list_(pa.list_(pa.float32(), 2)), [[], [None], [[0.0, -0.0]], [[-0.0, 0.0]], None]),
    (pa.list_(pa.decimal128(4, 2)), [[one] for one in DECIMALS]),
    (pa.list_view(pa.date32()), [[dt.date(2020, 1, 1)], [], None]),
    (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", None)], [("a", 1), ("b", 2)], None]),
    (pa.map_(pa.string(), pa.list_(pa.float64())), [[("a", [NANS[0]])], [("a", [NANS[1]])], []]),
    (pa.dictionary(pa.int8(), pa.float64()), FLOATS),
    (pa.dictionary(pa.int32(), pa.uint64()), [2**64 - 1, 1, None]),
]
VIEWS = pa.list_(pa.string_view())
OF_OLD = pa.int64(), pa.bool_(), pa.string(), pa.binary(5), pa.binary_view(), pa.int8()


@pytest.fixture(scope="module", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_all()


def made(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def one_key(kind: pa.DataType) -> tuple[list[Any], list[int]]:
    """The values of a type, and which of them memory takks for one: a number each."""
    values = dict(KEYS)[kind]
    return values, CompositeIndex(pa.schema([("k", kind)])).upsert([made(kind, values)]).tolist()


@pytest.mark.parametrize("kind", [kind for kind, _ in KEYS], ids=str)
def test_bytes_are_equal_where_memory_has_one_key(kind: pa.DataType) -> None:
    """And they say the key as memory says it, which has the same group."""
    assert key_fits(kind)
    values, numbers = one_key(kind)
    index = CompositeIndex(pa.schema([("k", kind)]))
    slots = index.upsert([made(kind, values)])
    (kept,) = index.take(slots)
    raw = made(kind, values)
    plain = raw.dictionary_decode() if pa.types.is_dictionary(kind) else raw
    rows = SlotRows(b"\0\1", pa.schema([("k", kind)]), [], 1, GROUPS)
    places = rows.places([kept], 5)
    assert rows.places([plain if plain.type == kept.type else plain.cast(kept.type)], 5) == places
    known = dict(zip(places, numbers, strict=True))
    assert len(known) == len(set(numbers)) == len(set(zip(places, numbers, strict=True)))
    (read,) = rows.keys(places)
    assert read.type == kept.type
    read.validate(full=True)
    assert index.find([read]).tolist() == numbers
    assert rows.places([read], 5) == places
    groups = key_groups_of(pa.record_batch([raw], names=["k"]), GROUPS)
    assert rows.groups_of(places).tolist() == groups.tolist()
    for first in places:
        assert not [other for other in places if other != first and other.startswith(first)]


def test_no_two_of_several_columns_have_the_same_bytes() -> None:
    """Each with each other type, of slices."""
    generator = random.Random(5)
    for first, some in KEYS:
        second, others = generator.choice(KEYS)
        if pa.types.is_null(first) or pa.types.is_null(second):
            continue
        pairs = [(one, other) for one in some for other in others]
        schema = pa.schema([("a", first), ("b", second)])
        columns = [made(first, [None, *(p[0] for p in pairs)]).slice(1)]
        columns.append(made(second, [None, *(p[1] for p in pairs)]).slice(1))
        index = CompositeIndex(schema)
        slots = index.upsert(columns)
        rows = SlotRows(b"\0\1", schema, [], 2, GROUPS)
        places = rows.places(index.take(slots))
        assert len(set(places)) == len(index)
        assert index.find(rows.keys(places)).tolist() == slots.tolist()


def test_what_old_layouts_say_stays_in_them() -> None:
    """Keys that a reader of before can read."""
    for kind in OF_OLD:
        layout = slots_layout(pa.schema([("k", kind)]), COLUMNS, 1, NO_VALUES)
        assert layout[LAYOUT] == "slots"
    for kind, _ in KEYS:
        layout = slots_layout(pa.schema([("k", kind)]), COLUMNS, 1, NO_VALUES)
        assert layout[LAYOUT] == ("slots" if kind in (pa.binary(3), pa.binary(0)) else "typed") or (
            kind in (pa.string_view(), pa.binary_view())
        )


def test_which_keys_have_bytes() -> None:
    fields = pa.struct([("a", pa.int64())])
    for kind in (fields, pa.list_(fields), pa.list_(pa.time64("ns")), pa.json_(), VIEWS):
        assert not key_fits(kind)


class Part:
    """One subtask."""

    def __init__(
        self, subtask: int, parallelism: int, kind: str, schema: pa.Schema, tables: list[StateTable]
    ) -> None:
        self.backend: Any = make_backend(kind, range_for(subtask, parallelism, GROUPS), GROUPS)
        groups = self.backend.key_groups
        self.backend.restore([cut(table, groups) for table in tables])
        self.schema = schema
        self.state = self.backend.table("t", schema, COLUMNS, values=VALUES, cold=True)
        assert isinstance(self.state, ColdTableState) == (kind == "rocksdb")
        assert isinstance(self.state, MemoryTableState)
        self.table = self.state.table()

    def mine(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        groups = key_groups_of(rows, GROUPS)
        held: KeyGroupRange = self.backend.key_groups
        here = (groups >= held.first) & (groups <= held.last)
        return take_rows(rows, pa.array(np.flatnonzero(here)))

    def add(self, rows: pa.RecordBatch, number: int) -> None:
        rows = self.mine(rows)
        slots = self.table.slots(rows)
        np.add.at(self.table.column("n"), slots, 1)
        texts = pa.array([f"{number}"] * len(slots), pa.large_string())
        self.table.column("text")[slots] = self.table.stores["text"].append(texts)

    def find(self, rows: pa.RecordBatch) -> list[int]:
        slots = self.table.find(self.mine(rows))
        numbers = self.table.column("n")
        return [int(numbers[slot]) if slot >= 0 else 0 for slot in slots]

    def release(self, rows: pa.RecordBatch) -> None:
        slots = np.unique(self.table.find(self.mine(rows)))
        self.table.release(slots[slots >= 0])

    def contents(self) -> dict[str, Any]:
        keys = self.table.keys()
        shown = [map(repr, shown_of(column)) for column in keys.columns]
        numbers = self.table.column("n")[: len(self.table)].tolist()
        codes = self.table.column("text")[: len(self.table)]
        texts = self.table.stores["text"].take(codes).to_pylist()
        lines = list(zip(map(str, zip(*shown, strict=True)), numbers, texts, strict=True))
        found = {key: (n, text) for key, n, text in lines if n}
        assert len(found) == sum(1 for _, n, _ in lines if n)
        return found


def shown_of(column: pa.Array) -> list[Any]:
    """The values, of times all of them."""
    if pa.types.is_time(column.type):
        return [at.value for at in column]
    return column.to_pylist()


def cut(table: StateTable, groups: KeyGroupRange) -> StateTable:
    column = table.data.column(KEY_GROUP).to_numpy()
    assert (np.diff(column) >= 0).all()
    mask = pa.array((column >= groups.first) & (column <= groups.last))
    rows = table.data.take(pa.array(np.flatnonzero(mask)))
    return StateTable(table.name, table.kind, rows, table.metadata)


def drawn(generator: random.Random, schema: pa.Schema) -> pa.RecordBatch:
    count = generator.randrange(7)
    held = dict(KEYS)
    arrays = [made(kind, generator.choices(held[kind], k=count)) for kind in schema.types]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("seed", range(60))
def test_as_in_memory(seed: int) -> None:
    """What a table of RocksDB's backend has, through restores at any parallelism into either, is
    what one in memory has."""
    generator = random.Random(seed)
    kinds = [KEYS[seed % len(KEYS)][0], *(generator.choice(KEYS)[0] for _ in range(seed % 3))]
    # what Arrow's kernels cannot gather no operator has as a key
    kinds = [kind for kind in kinds if not pa.types.is_null(kind)] or [pa.float64()]
    schema = pa.schema([(f"k{at}", kind) for at, kind in enumerate(kinds)])
    parts, plain = [Part(0, 1, "rocksdb", schema, [])], Part(0, 1, "memory", schema, [])
    for number in range(30):
        what = generator.choice(["add", "add", "add", "find", "release", "evict", "evict", "all"])
        if number % 10 == 9:
            what = "restore"
        rows = drawn(generator, schema)
        match what:
            case "add" | "release":
                for part in [*parts, plain]:
                    part.add(rows, number) if what == "add" else part.release(rows)
            case "find":
                found = [part.find(part.mine(rows)) for part in parts]
                want = [plain.find(part.mine(rows)) for part in parts]
                assert found == want
            case "evict":
                for part in parts:
                    part.backend.time.begin(1)
            case "all":
                assert all(part.contents().items() <= plain.contents().items() for part in parts)
            case "restore":
                tables = [t for part in parts for t in part.backend.snapshot().tables()]
                parallelism = generator.choice([1, 2, 3])
                kind = generator.choice(["memory", "rocksdb", "rocksdb"])
                parts = [Part(at, parallelism, kind, schema, tables) for at in range(parallelism)]
    found_all = [part.contents() for part in parts]
    assert {key: shown for some in found_all for key, shown in some.items()} == plain.contents()
    assert sum(map(len, found_all)) == len(plain.contents())
    for part in parts:
        part.table.validate()


def test_none_stays_in_memory() -> None:
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(10, 2))])
    part = Part(0, 1, "rocksdb", schema, [])
    prices = [Decimal(n) / 100 for n in range(500)]
    part.add(pa.record_batch([pa.array(range(500), schema.types[0]), prices], schema=schema), 1)
    assert part.table.live == 500
    part.backend.time.begin(1)
    assert (part.table.live, part.state.spilled) == (0, 500)
