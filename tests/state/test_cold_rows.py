"""`ColdRowTable` against dictionaries, and against the table in memory: every type of column, room
made at any moment, snapshots whole and of what changed, while rows come and go."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import seeds
from strom.checkpoint.layers import flattened
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.core.state_config import StateConfig
from strom.state.backend import AccColumn, StateTable
from strom.state.increments import Since
from strom.state.key_groups import key_groups_of
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.object_keys import ObjectKeyType
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.rows_database import RowsDatabase
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.kept import row_cache, row_table
from strom.state.rocks.kept.nested_columns import rows_fit
from strom.state.rocks.kept.row_bytes import RowBytes
from strom.state.rocks.kept.row_table import ColdFrozenTable, ColdRowTable
from strom.state.rows.slab import FrozenTable, RowTable
from strom.testing.backends import spilling

GROUPS = 8
NUMBERS = [AccColumn("n", "int64", -1)]
SMALL = pa.schema({"k": pa.int64(), "s": pa.string(), "b": pa.binary()})

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, -(2**63), None]),
    (pa.int8(), [1, -128, None]),
    (pa.int16(), [1, -(2**15), None]),
    (pa.int32(), [1, -(2**31), None]),
    (pa.uint8(), [1, 255, None]),
    (pa.uint64(), [2**64 - 1, 0, None]),
    (pa.float16(), [0.5, None]),
    (pa.float32(), [0.5, None]),
    (pa.float64(), [0.5, -0.0, float("inf"), None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [dt.date(2026, 1, 2), None]),
    (pa.date64(), [dt.date(2026, 1, 2), None]),
    (pa.time32("s"), [dt.time(1, 2, 3), None]),
    (pa.time64("us"), [dt.time(1, 2, 3, 4), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None]),
    (pa.duration("ms"), [dt.timedelta(1), None]),
    (pa.string(), ["", "text", "a longer text, beyond twelve bytes", None]),
    (pa.large_string(), ["x", "", None]),
    (pa.string_view(), ["a longer text, beyond twelve bytes", "y", None]),
    (pa.binary(), [b"", b"\x00\xff", b"wide" * 5000, None]),
    (pa.binary_view(), [b"\x00", None]),
    (pa.binary(3), [b"abc", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["u", "v", None]),
    (pa.dictionary(pa.int8(), pa.int64()), [5, 6, None]),
    (pa.decimal128(5, 2), [Decimal("1.25"), None]),
    (pa.decimal256(50, 2), [Decimal("12345678901234567890123456789012345.25"), None]),
    (pa.month_day_nano_interval(), [pa.MonthDayNano([1, 2, 3]), None]),
]
SCHEMA = pa.schema([pa.field(f"c{i}", kind) for i, (kind, _) in enumerate(COLUMNS)])


@pytest.fixture(scope="module")
def database() -> Iterator[RowsDatabase]:
    made = RowsDatabase(spilling(8))
    yield made
    made.close()


def cold(
    database: RowsDatabase, schema: pa.Schema, numbers: Any = NUMBERS, ordered: bool = True
) -> ColdRowTable:
    return ColdRowTable("t", schema, [0], numbers, ordered, GROUPS, database)


def small(keys: list[int], size: int = 1) -> pa.RecordBatch:
    """Rows of these keys; texts and bytes depend on the key."""
    texts = [None if k % 5 == 4 else f"{k} " * (size + k % 7) * (k % 3 > 0) for k in keys]
    columns = [keys, texts, [None if k % 7 == 1 else bytes([k % 256]) * (k % 9) for k in keys]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, kind) for c, kind in zip(columns, SMALL.types, strict=True)], schema=SMALL
    )


def drawn(random: np.random.Generator, count: int) -> pa.RecordBatch:
    arrays = [
        pa.array([values[random.integers(len(values))] for _ in range(count)], type=kind)
        for kind, values in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def stored(tables: list[StateTable]) -> list[tuple[Any, ...]]:
    """The rows, with their key groups, in the order of these."""
    found = []
    for table in tables:
        groups = table.data.column("__key_group").to_pylist()
        assert groups == sorted(groups)
        found += [tuple(map(repr, row.values())) for row in table.data.to_pylist()]
    return sorted(found, key=lambda row: int(row[0]))


@pytest.mark.parametrize("seed", seeds(3))
def test_every_type_of_column_comes_back(database: RowsDatabase, seed: int) -> None:
    random = np.random.default_rng(seed)
    table, held = cold(database, SCHEMA, ()), {}
    for _ in range(12):
        rows = drawn(random, 20)
        at = table.add(rows.slice(3)).tolist()
        assert not set(at) & set(held)
        held.update(zip(at, rows.slice(3).to_pylist(), strict=True))
        table.cache.make_room()
        gone = random.permutation(sorted(held))[: random.integers(0, 12)]
        table.release(gone)
        for position in gone.tolist():
            del held[position]
        asked = random.permutation(sorted(held))
        found = table.read(asked)
        assert found.schema == SCHEMA
        assert found.to_pylist() == [held[at] for at in asked.tolist()]
        assert table.read(table.positions()).to_pylist() == list(held.values())
        table.validate()
    assert table.cache.spilled
    assert table.cache.loaded
    again = RowTable("t", SCHEMA, [0], max_parallelism=GROUPS)
    again.restore(list(table.freeze("t").tables(GROUPS)))
    plain = again.freeze("t").table(GROUPS)
    assert plain is not None
    assert stored([plain]) == stored(list(table.freeze("t").tables(GROUPS)))
    table.cache.close()


def test_which_rows_have_bytes() -> None:
    assert rows_fit(SCHEMA)
    union = pa.dense_union([pa.field("a", pa.int64())])
    for kind in (union, pa.run_end_encoded(pa.int32(), pa.int64()), ObjectKeyType()):
        for one in (kind, pa.struct({"a": kind})):
            assert not rows_fit(pa.schema({"k": pa.int64(), "v": one}))


def test_bytes_that_are_no_rows_are_refused() -> None:
    rows = RowBytes(SMALL.types)
    packed = rows.packed(small([3, 8, 11, 20]).columns)
    assert [a.to_pylist() for a in rows.unpacked(packed)] == [
        a.to_pylist() for a in small([3, 8, 11, 20]).columns
    ]
    for at in range(4):
        for damage in (packed[at][:-1], packed[at][:5], packed[at] + b"\0"):
            with pytest.raises(StateError, match="local files were changed"):
                rows.unpacked([*packed[:at], damage, *packed[at + 1 :]])


class Model:
    """A cold table, one in memory, and what is in them."""

    def __init__(self, database: RowsDatabase, ordered: bool, most: int = 1000) -> None:
        """`most`: rows that are released, written or read in a step."""
        self.most = most
        self.table = cold(database, SMALL, ordered=ordered)
        self.plain = RowTable("t", SMALL, [0], NUMBERS, ordered, GROUPS)
        self.held: dict[int, tuple[dict[str, Any], int]] = {}

    def step(self, what: str, random: np.random.Generator) -> None:
        held, some = self.held, np.empty(0, np.int64)
        if held:
            count = random.integers(1, min(len(held), self.most) + 1)
            some = random.permutation(list(held))[:count]
        match what:
            case "add" | "long":
                keys = random.integers(0, 50, random.integers(1, 20)).tolist()
                rows = small(keys, 200 if what == "long" else 1)
                numbers = random.integers(0, 9, len(keys))
                at = self.table.add(rows, {"n": numbers})
                assert (self.plain.add(rows, {"n": numbers}) == at).all()
                pairs = zip(rows.to_pylist(), numbers.tolist(), strict=True)
                held.update(zip(at.tolist(), pairs, strict=True))
            case "release":
                self.table.release(some)
                self.plain.release(some)
                for position in some.tolist():
                    del held[position]
            case "write":
                number = int(random.integers(1000))
                for table in (self.table, self.plain):
                    table.touch(some)
                    table.number("n")[some] = number
                for position in some.tolist():
                    held[position] = (held[position][0], number)
            case "read":
                found = self.table.read(some).to_pylist()
                assert found == [held[at][0] for at in some.tolist()]
                assert self.table.column(1, some).equals(self.plain.column(1, some))
            case "room":
                self.table.cache.make_room()
            case "evict":
                self.table.cache._evict(int(random.integers(1, 30)))
            case "compact":
                self.table.cache._compact()


STEPS = ("add", "add", "add", "long", "release", "write", "read", "room", "evict", "compact")


@pytest.mark.parametrize("seed", seeds(24, least=8))
def test_any_order_of_steps_and_freezes(
    database: RowsDatabase, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A freeze shows what the table in memory shows, whatever happens before it is encoded."""
    monkeypatch.setattr(row_table, "PIECE", 7)
    monkeypatch.setattr(row_cache, "READ", 5)
    random = np.random.default_rng(seed)
    model = Model(database, ordered=seed % 2 == 0)
    frozen = []
    for _ in range(60):
        what = str(random.choice([*STEPS, "freeze", "encode", "drop"]))
        if what == "freeze":
            frozen.append((model.table.freeze("t"), model.plain.freeze("t")))
        elif what == "encode" and frozen:
            check(*frozen.pop(int(random.integers(len(frozen)))))
        elif what == "drop" and frozen:
            frozen.pop(int(random.integers(len(frozen))))
        else:
            model.step(what, random)
        model.table.validate()
    while frozen:
        check(*frozen.pop())
    model.table.release(model.table.positions())
    model.table.cache.make_room()
    prefix = model.table.cache._prefix
    assert not list(database.scan(prefix)), "what is released leaves nothing in RocksDB"
    model.table.cache.close()


def check(cold_frozen: ColdFrozenTable, frozen: FrozenTable) -> None:
    found, want = list(cold_frozen.tables(GROUPS)), frozen.table(GROUPS)
    assert all(table.data.num_rows <= 7 for table in found)
    assert stored(found) == stored([] if want is None else [want])
    assert all(want is not None and table.data.schema == want.data.schema for table in found)


@pytest.mark.parametrize("seed", seeds(12, least=6))
def test_layers_make_what_a_whole_snapshot_has(
    database: RowsDatabase, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases and deltas, some of them of failed checkpoints, restored at other parallelisms."""
    monkeypatch.setattr(row_table, "PIECE", 7)
    random = np.random.default_rng(seed)
    model = Model(database, ordered=seed % 2 == 0, most=5)
    for _ in range(8):
        model.step("add", random)
    base, layers, kinds = 0, {0: []}, set()
    for checkpoint in range(1, 12):
        for _ in range(3):
            model.step(str(random.choice(STEPS)), random)
        since = Since(checkpoint, base) if base else Since(checkpoint)
        frozen, continued = model.table.freeze_since("t", since)
        model.step("evict", random)
        found = list(frozen.tables(GROUPS))
        kinds.update(table.layer for table in found)
        mine = [*(layers[base] if continued else []), *found]
        whole = flattened(mine)
        want = model.plain.freeze("t").table(GROUPS)
        rows = stored([] if want is None else [want])
        assert sorted(stored(whole)) == sorted(rows)
        if model.table._ordered:
            assert stored(whole) == rows
        if random.random() < 0.7:
            base, layers = checkpoint, {checkpoint: mine}
        for groups in (range(4), range(4, 8)):
            part = [
                StateTable(
                    t.name,
                    t.kind,
                    t.data.filter(pa.array(np.isin(t.data.column(0).to_numpy(), groups))),
                )
                for t in whole
            ]
            again = cold(database, SMALL, ordered=model.table._ordered)
            again.restore(part)
            mask = [int(row[0]) in groups for row in rows]
            again.cache.make_room()
            found = stored(list(again.freeze("t").tables(GROUPS)))
            expected = [row for row, keep in zip(rows, mask, strict=True) if keep]
            assert sorted(found) == sorted(expected)
            again.cache.close()
    assert kinds == {"base", "delta"}
    model.table.cache.close()


@pytest.mark.parametrize("seed", seeds(3))
def test_another_thread_encodes_while_rows_leave_and_come_back(seed: int) -> None:
    random = np.random.default_rng(seed)
    database = RowsDatabase(spilling(64 << 10))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "READ", 256)
        patch.setattr(row_table, "PIECE", 512)
        table = cold(database, SMALL)
        table.add(small(list(range(5000))))
        for turn in range(3):
            positions = table.positions()
            want = table.read(positions).to_pylist()
            numbers = table.number("n")[positions].tolist()
            frozen, found = table.freeze("t"), []
            reader = threading.Thread(
                target=lambda f=frozen, to=found: to.extend(f.tables(GROUPS)), daemon=True
            )
            reader.start()
            for step in range(60):
                held = table.positions()
                gone = random.permutation(held)[: random.integers(0, len(held) // 2)]
                table.release(gone)
                size = int(random.integers(1, 40))
                table.add(small(random.integers(0, 10**6, len(gone) + 20).tolist(), size))
                table.cache.make_room()
                some = random.permutation(table.positions())[:100]
                table.read(some)
                table.touch(some)
                table.number("n")[some] = turn * 100 + step
            reader.join()
            got = pa.concat_tables([one.data for one in found])
            keys = pa.record_batch({"k": [one["k"] for one in want]})
            groups = key_groups_of(keys, GROUPS).tolist()
            order = sorted(range(len(want)), key=groups.__getitem__)
            for name in ("k", "s", "b"):
                assert got.column(f"row.{name}").to_pylist() == [want[i][name] for i in order]
            assert got.column("num.n").to_pylist() == [numbers[i] for i in order]
            table.validate()
    assert table.cache.spilled
    database.close()


def test_a_snapshot_of_a_task_that_is_over_is_refused() -> None:
    database = RowsDatabase(spilling(8))
    table = cold(database, SMALL)
    table.add(small([1, 2, 3]))
    table.cache.make_room()
    frozen = table.freeze("t")
    database.close()
    with pytest.raises(StateError, match="the task is over"):
        list(frozen.tables(GROUPS))


def test_a_row_that_is_not_where_it_was_put_is_an_error(database: RowsDatabase) -> None:
    table = cold(database, SMALL)
    at = table.add(small([1, 2, 3]))
    table.cache.make_room()
    place = next(iter(database.scan(table.cache._prefix)))[0]
    database.write([place], [])
    with pytest.raises(StateError, match="1 of 3 rows are not in the local RocksDB"):
        table.read(at)
    with pytest.raises(StateError, match="1 of 3 rows are not in the local RocksDB"):
        list(table.freeze("t").tables(GROUPS))
    table.cache.close()


def test_rows_that_are_in_use_stay_and_the_others_leave() -> None:
    """Of a table that is full, 100 rows are read with each batch, and are never read again from
    RocksDB; what leaves is written once."""
    database = RowsDatabase(StateConfig("rocksdb", memory=1 << 20, rocksdb_share=0.5))
    table = cold(database, SMALL)
    mine = table.add(small(list(range(100))))
    others = [mine[:0]]
    for first in range(100, 40_100, 1000):
        table.cache.make_room()
        others.append(table.add(small(list(range(first, first + 1000)))))
        table.read(mine)
        assert table.cache.used < 1 << 20
    assert table.cache.loaded == 0
    assert 30_000 < table.cache.spilled < 40_000
    spilled = table.cache.spilled
    known = np.concatenate(others)
    for start in range(0, 30_000, 1000):
        table.cache.make_room()
        table.read(known[start : start + 1000])
    table.cache.make_room()
    assert table.cache.loaded >= 25_000
    assert table.cache.spilled <= 40_100
    assert table.cache.spilled - spilled < 12_000, "rows that were only read are not written again"
    table.validate()
    database.close()


def test_more_rows_than_fit_are_read_in_parts() -> None:
    database = RowsDatabase(StateConfig("rocksdb", memory=1 << 20, rocksdb_share=0.5))
    table = cold(database, SMALL)
    at = np.concatenate(
        [table.add(small(list(range(n, n + 1000)))) for n in range(0, 60_000, 1000)]
    )
    table.cache.make_room()
    assert table.column(0, at).to_pylist() == list(range(60_000))
    assert table.cache.used < 2 << 20
    table.validate()
    database.close()


def test_few_of_large_rows_are_in_hand_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 MB of rows of 20 KB, with 4 MB for those in use."""
    monkeypatch.setattr(row_cache, "IN_HAND", 2 << 20)
    database = RowsDatabase(StateConfig("rocksdb", memory=16 << 20, rocksdb_share=0.75))
    table, largest = cold(database, SMALL), 0
    every = []
    for first in range(0, 4000, 50):
        texts = pa.array([f"{n:08}" * 2500 for n in range(first, first + 50)])
        rows = pa.record_batch(
            [pa.array(range(first, first + 50)), texts, pa.nulls(50, pa.binary())], schema=SMALL
        )
        every.append(table.add(rows))
        largest = max(largest, table.cache.used)
    at = np.concatenate(every)
    found = table.column(1, at)
    assert [text[:8] for text in found.to_pylist()] == [f"{n:08}" for n in range(4000)]
    assert max(largest, table.cache.used) < 8 << 20
    sizes = [one.data.nbytes for one in table.freeze("t").tables(GROUPS)]
    assert sum(sizes) > 80_000_000
    assert max(sizes) < 4 << 20
    table.validate()
    database.close()


def test_backends_take_up_where_the_other_left_off() -> None:
    groups = KeyGroupRange(0, GROUPS - 1)

    def memory() -> MemoryKeyedStateBackend:
        return MemoryKeyedStateBackend(groups, GROUPS)

    def rocks() -> RocksKeyedStateBackend:
        return RocksKeyedStateBackend(groups, GROUPS, TaskDatabase(spilling(8)))

    state: MemoryKeyedStateBackend = rocks()
    rows = state.rows("r", SMALL, [0], NUMBERS)
    assert isinstance(rows, ColdRowTable)
    encoded = pa.schema({"k": pa.int64(), "r": pa.run_end_encoded(pa.int32(), pa.int64())})
    assert type(state.rows("encoded", encoded, [0])) is RowTable
    rows.add(small(list(range(300))), {"n": np.arange(300)})
    state.time.begin(1)
    for make in (memory, rocks, rocks, memory):
        tables = list(state.snapshot().tables())
        before = stored([table for table in tables if table.name == "r"])
        assert len(before) == 300
        state.close()
        state = make()
        state.restore(tables)
        assert sorted(stored(list(state.snapshot().tables()))) == sorted(before), "never asked for"
        restored = state.rows("r", SMALL, [0], NUMBERS)
        state.time.begin(1)
        at = restored.positions()
        assert sorted(restored.number("n")[at].tolist()) == list(range(300))
        keys = restored.column(0, at).to_pylist()
        assert restored.number("n")[at].tolist() == keys
        assert restored.read(at).sort_by("k").to_pylist() == small(list(range(300))).to_pylist()
    state.close()


def test_what_is_told_of_the_cache() -> None:
    state = RocksKeyedStateBackend(KeyGroupRange(0, 7), GROUPS, TaskDatabase(spilling(8)))
    rows = state.rows("r", SMALL, [0])
    at = rows.add(small([1, 2, 3]))
    state.time.begin(1)
    rows.read(at[:2])
    told: dict[str, float] = {}
    state.report(told.__setitem__)
    assert (told["state.entries.spilled"], told["state.entries.loaded"]) == (3, 2)
    assert told["state.bytes.cache"] > 0
    state.close()
