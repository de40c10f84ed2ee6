"""Tables of which rows lie in RocksDB, against plain dicts: rows and whole namespaces go, room is
made at any moment and of any size, and snapshots are whole, or of what changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.state_config import StateConfig
from strom.state.backend import AccColumn, StateTable
from strom.state.increments import REMOVED, Since
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.tables import table_state
from strom.state.rocks.tables.slot_table import ColdSlotTable
from strom.state.rocks.tables.table_state import ColdTableState
from strom.state.table_state import MemoryTableState

GROUPS = 4
COLUMNS = [AccColumn("n", "int64"), AccColumn("low", "float64", float("inf"))]
SCHEMAS = {
    "whole": pa.schema([("a", pa.int64())]),
    "pairs": pa.schema([("a", pa.int32()), ("b", pa.int64())]),
    "text": pa.schema([("a", pa.string())]),
    "mixed": pa.schema([("a", pa.binary()), ("b", pa.bool_()), ("c", pa.int8())]),
}
VALUES: Mapping[pa.DataType, list[Any]] = {
    pa.int64(): [0, 1, -1, 2**40, None],
    pa.int32(): [3, -3, None],
    pa.int8(): [7, -7],
    pa.string(): ["", "a", "aä", "b\0c", None],
    pa.binary(): [b"", b"a", b"\0", None],
    pa.bool_(): [True, False, None],
}
Rows = list[tuple[Any, ...]]
Held = dict[tuple[int, tuple[Any, ...]], int]


@pytest.fixture(scope="module")
def database() -> Iterator[TaskDatabase]:
    made = TaskDatabase(StateConfig("rocksdb", memory=8 << 20, rocksdb_share=1 - 1e-6))
    yield made
    made.close()


def cold(database: TaskDatabase, schema: pa.Schema) -> ColdTableState:
    return ColdTableState("t", schema, COLUMNS, None, database, GROUPS)


def batch(schema: pa.Schema, rows: Rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def put(table: Any, rows: Rows, n: int) -> None:
    slots = table.slots(batch(table._schema, rows))
    table.column("n")[slots] = n
    table.column("low")[slots] = 0.5


SPACES = st.sampled_from([0, 5, -5])
STEPS = st.one_of(
    st.tuples(st.sampled_from(["add", "find", "release"]), SPACES, st.integers(0, 2**30)),
    st.tuples(st.sampled_from(["all", "drop", "tidy"]), SPACES, st.just(0)),
    st.tuples(st.sampled_from(["evict", "evict some", "restore"]), st.just(0), st.just(0)),
)


class Model:
    def __init__(self, database: TaskDatabase, schema: pa.Schema) -> None:
        self.database = database
        self.schema = schema
        self.state = cold(database, schema)
        self.held: Held = {}

    def rows(self, seed: int) -> Rows:
        random = np.random.default_rng(seed)
        columns = [VALUES[kind] for kind in self.schema.types]
        count = int(random.integers(0, 7))
        return [tuple(c[random.integers(len(c))] for c in columns) for _ in range(count)]

    def step(self, what: str, space: int, seed: int) -> None:
        rows = self.rows(seed)
        match what:
            case "add":
                table = self.state.table(space)
                slots = table.slots(batch(self.schema, rows))
                np.add.at(table.column("n"), slots, 1)
                np.minimum.at(table.column("low"), slots, 0.5)
                for row in rows:
                    self.held[space, row] = self.held.get((space, row), 0) + 1
            case "find":
                table = self.state.table(space)
                slots = table.find(batch(self.schema, rows))
                numbers = table.column("n")
                found = [int(numbers[slot]) if slot >= 0 else 0 for slot in slots]
                assert found == [self.held.get((space, row), 0) for row in rows]
            case "release":
                table = self.state.table(space)
                slots = np.unique(table.find(batch(self.schema, rows)))
                table.release(slots[slots >= 0])
                for row in rows:
                    self.held.pop((space, row), None)
            case "all":
                table = self.state.table(space)
                keys = table.keys()
                numbers = table.column("n")[: len(table)]
                pairs = zip(keys.to_pylist(), numbers.tolist(), strict=True)
                here = {tuple(key.values()): n for key, n in pairs if n}
                assert here == {row: n for (at, row), n in self.held.items() if at == space}
            case "drop":
                self.state.drop(space)
                self.held = {at: n for at, n in self.held.items() if at[0] != space}
            case "tidy":
                self.state.table(space).tidy()
            case "evict":
                self.state.make_room()
            case "evict some":
                self.state._evict(2)
            case "restore":
                tables = list(self.state.freeze("t").tables(GROUPS))
                self.state.close()
                self.state = cold(self.database, self.schema)
                self.state.restore(tables)

    def check(self) -> None:
        for table in self.state._cold.values():
            table.validate()
        assert read(list(self.state.freeze("t").tables(GROUPS))) == self.held


def read(tables: list[StateTable]) -> Held:
    found: Held = {}
    for table in tables:
        groups = table.data.column("__key_group").to_numpy()
        assert (np.diff(groups) >= 0).all()
        for row in table.data.to_pylist():
            at = row["namespace"], tuple(v for k, v in row.items() if k.startswith("key."))
            assert at not in found
            assert row["acc.low"] == 0.5
            found[at] = row["acc.n"]
    return found


@settings(max_examples=examples(40), deadline=None)
@given(st.sampled_from(list(SCHEMAS)), st.lists(STEPS, max_size=25))
def test_against_a_dict(
    database: TaskDatabase, kind: str, steps: list[tuple[str, int, int]]
) -> None:
    model = Model(database, SCHEMAS[kind])
    try:
        for what, space, seed in steps:
            model.step(what, space, seed)
        model.check()
    finally:
        model.state.close()


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "release", "evict", "snapshot", "lost"]), st.integers(0, 99)),
    max_size=25,
)


@settings(max_examples=examples(40), deadline=None)
@given(CHANGES)
def test_layers_of_what_is_hot_over_what_is_in_rocksdb(
    database: TaskDatabase, steps: list[tuple[str, int]]
) -> None:
    """Bases and deltas of the rows in memory, folded, over the rows in RocksDB at that moment: what
    a checkpoint holds that takes RocksDB's files as they are."""
    schema = SCHEMAS["whole"]
    model = Model(database, schema)
    base, checkpoint = 0, 0
    layers: dict[int, Held] = {0: {}}
    try:
        for what, seed in [*steps, ("snapshot", 0)]:
            if what not in ("snapshot", "lost"):
                model.step(what if what != "evict" else "evict some", 0, seed)
                continue
            checkpoint += 1
            since = Since(checkpoint, base) if base else Since(checkpoint)
            frozen, continued = model.state.freeze_hot("t", since)
            table = frozen.table(GROUPS)
            hot = dict(layers[base]) if continued else {}
            for row in [] if table is None else table.data.to_pylist():
                at = row["namespace"], (row["key.a"],)
                if not row.get(REMOVED):
                    hot[at] = row["acc.n"]
                elif row["__key_group"] < 0:
                    hot = {key: n for key, n in hot.items() if key[0] != row["namespace"]}
                else:
                    hot.pop(at, None)
            stored = list(database.scan(model.state.rows.prefix))
            (keys,) = model.state.rows.keys([place for place, _ in stored])
            numbers = model.state.rows.unpacked([data for _, data in stored])["n"]
            below = {(0, (k,)): int(n) for k, n in zip(keys.to_pylist(), numbers, strict=True)}
            assert below | hot == model.held
            if what == "snapshot":
                layers[checkpoint], base = hot, checkpoint
    finally:
        model.state.close()


def test_no_more_leaves_than_came_and_the_least_used_first(database: TaskDatabase) -> None:
    """Of a state that is full, 100 rows are asked for with each batch, and stay."""
    schema = SCHEMAS["whole"]
    small = TaskDatabase(StateConfig("rocksdb", memory=1 << 20, rocksdb_share=0.5))
    state = cold(small, schema)
    try:
        mine = [(i,) for i in range(100)]
        for first in range(100, 60_100, 1000):
            state.make_room()
            table = state.table()
            slots = table.slots(batch(schema, mine + [(i,) for i in range(first, first + 1000)]))
            np.add.at(table.column("n"), slots, 1)
            assert state.used < 1 << 20
        spilled, loaded = state.spilled, state.loaded
        state.make_room()
        assert 900 <= state.spilled - spilled <= 1100
        assert loaded == 0
        assert (state.table().column("n")[state.table().find(batch(schema, mine))] == 60).all()
        assert state.loaded == loaded
    finally:
        state.close()
        small.close()


def test_none_leaves_twice(database: TaskDatabase) -> None:
    """Where more leave than were unused, the hand goes round twice, from anywhere."""
    schema = SCHEMAS["whole"]
    state = cold(database, schema)
    table = state.table()
    put(table, [(i,) for i in range(3000)], 1)
    for most in (100, 700, 2000, 5000):
        table._used.array[:3000] = np.arange(3000) % 3 == 0
        table._hand.at = 1500
        slots = table.idle(most)
        assert len(slots) == len(np.unique(slots)) == min(most, 3000)
        assert most > 2000 or (slots % 3 > 0).all()
    state.close()


def test_rows_that_were_only_read_are_not_written_again(database: TaskDatabase) -> None:
    schema = SCHEMAS["whole"]
    state = cold(database, schema)
    rows = batch(schema, [(i,) for i in range(50)])
    slots = state.table().slots(rows)
    state.table().column("n")[slots] = 7
    state.make_room()
    assert (state.spilled, state.table().live) == (50, 0)
    for _ in range(3):
        found = state.table().find(rows)
        assert (state.table().column("n")[found] == 7).all()
        state.make_room()
    assert (state.spilled, state.loaded, state.table().live) == (50, 150, 0)
    state.close()


def test_what_another_backend_stored(database: TaskDatabase) -> None:
    """Restored both ways, of windows of which only some rows are in RocksDB."""
    schema = SCHEMAS["text"]
    first = cold(database, schema)
    for space in (100, 200):
        table = first.table(space)
        put(table, [("a",), ("b",), (None,)], space)
    first.make_room()
    table = first.table(200)
    put(table, [("a",), ("c",)], 1)
    plain = MemoryTableState("t", schema, COLUMNS)
    plain.restore(first.freeze("t").tables(GROUPS))
    again = cold(database, schema)
    whole = plain.freeze("t").table(GROUPS)
    assert whole is not None
    again.restore([whole])
    for state in (first, plain, again):
        assert state.namespaces() == [100, 200]
        for space, expected in (
            (100, {"a": 100, "b": 100, None: 100}),
            (200, {"a": 1, "b": 200, "c": 1, None: 200}),
        ):
            one = state.table(space)
            keys = one.keys().column(0).to_pylist()
            assert dict(zip(keys, one.column("n")[: len(one)].tolist(), strict=True)) == expected
    first.close()
    again.close()


def test_a_namespace_that_is_dropped_leaves_nothing_in_rocksdb(database: TaskDatabase) -> None:
    schema = SCHEMAS["pairs"]
    state = cold(database, schema)
    for space in (1, 2):
        table = state.table(space)
        table.slots(batch(schema, [(1, 2), (None, 3), (4, None)]))
    state.make_room()
    state.drop(1)
    left = [place for place, _ in database.scan(state.rows.prefix)]
    assert len(left) == 3
    assert state.namespaces() == [2]
    state.drop(2)
    assert not list(database.scan(state.rows.prefix))
    assert not list(state.freeze("t").tables(GROUPS))
    state.close()


def test_other_threads_ask_what_it_takes_while_namespaces_come(
    database: TaskDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one state may take depends on what all others take, of other tasks' threads."""
    state = cold(database, SCHEMAS["whole"])
    for space in (1, 2):
        put(state.table(space), [(1,)], 1)

    def used(self: Any) -> int:
        state.table(3)
        return 1

    monkeypatch.setattr(ColdSlotTable, "used", property(used))
    assert state.used == 2
    state.close()


def test_what_leaves_at_once_is_written_in_parts(
    database: TaskDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_state, "WRITTEN", 7)
    sizes: list[int] = []
    write = database.write
    monkeypatch.setattr(
        database, "write", lambda deletes, puts: (sizes.append(len(puts)), write(deletes, puts))
    )
    state = cold(database, SCHEMAS["whole"])
    put(state.table(), [(i,) for i in range(50)], 1)
    state.make_room()
    assert sizes == [7] * 7 + [1]
    assert len(state.table().keys()) == 50
    deleted: list[int] = []
    monkeypatch.setattr(
        database,
        "write",
        lambda deletes, puts: (deleted.append(len(deletes)), write(deletes, puts)),
    )
    state.drop(0)
    assert (sum(deleted), max(deleted)) == (50, 7)
    state.close()
