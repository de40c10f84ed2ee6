"""State of which parts lie in RocksDB, against plain dicts: at any moment anything may be moved
there, and a snapshot may be taken, read later, and restored at another parallelism."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from amounts import examples
from backends import close_all, make_backend
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import ConfigurationError
from strom.core.ids import KeyGroupRange
from strom.core.key_kinds import held_key
from strom.core.keys import findable
from strom.core.state_config import StateConfig
from strom.state.backend import KEY_GROUP, AccColumn, StateTable
from strom.state.descriptors import (
    AggregatingStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from strom.state.key_groups import key_group, range_for
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.database.folders import PREFIX
from strom.state.rocks.database.key_bytes import alike_bytes, key_bytes, key_end
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.values.spaces import ColdState

GROUPS = 16
VALUE = ValueStateDescriptor("v")
SUM = ReducingStateDescriptor("r", lambda a, b: a + b)
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int32())])
COLUMNS = [AccColumn("count", "int64"), AccColumn("low", "float64", float("inf"))]


class Gathered:
    """An AggregateFunction whose accumulator changes in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> tuple[int, ...]:
        return tuple(accumulator)


GATHERED = AggregatingStateDescriptor("a", Gathered())


@pytest.fixture(scope="module", autouse=True)
def _databases() -> Iterator[None]:
    yield
    close_all()


def backend(subtask: int = 0, parallelism: int = 1) -> RocksKeyedStateBackend:
    made = make_backend("rocksdb", range_for(subtask, parallelism, GROUPS), GROUPS)
    assert isinstance(made, RocksKeyedStateBackend)
    return made


def cut(tables: list[StateTable], groups: KeyGroupRange) -> list[StateTable]:
    found = []
    for table in tables:
        column = table.data.column(KEY_GROUP).to_numpy()
        assert (np.diff(column) >= 0).all()
        mask = pa.array((column >= groups.first) & (column <= groups.last))
        data = table.data.filter(mask)
        found.append(StateTable(table.name, table.kind, data, table.metadata))
    return found


SOME: list[Any] = [0, 1, True, 1.0, -1, "a", "", None, b"a", 2**70, (1, "x"), (True, "x")]
SOME += [Decimal("1.5"), dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), float("nan")]
KEYS = st.sampled_from(SOME)
SPACES = st.sampled_from([None, 5, (0, 10)])
STEPS = st.one_of(
    st.tuples(st.just("write"), KEYS, SPACES, st.integers(0, 9)),
    st.tuples(st.just("clear"), KEYS, SPACES, st.none()),
    st.tuples(st.just("read"), KEYS, SPACES, st.none()),
    st.tuples(st.just("evict"), st.none(), st.none(), st.none()),
    st.tuples(st.just("snapshot"), st.none(), st.none(), st.none()),
    st.tuples(
        st.just("restore"), st.sampled_from(["memory", "rocksdb"]), st.none(), st.integers(1, 3)
    ),
)


class Model:
    def __init__(self) -> None:
        self.backends: list[Any] = [backend()]
        self.held: dict[Any, list[int]] = {}
        self.frozen: list[Any] = []
        self.then: dict[Any, list[int]] = {}

    def step(self, what: str, key: Any, space: Any, number: Any) -> None:
        match what:
            case "write":
                self._write(key, space, number)
            case "clear":
                self._at(key, space, lambda state: state.clear())
                self.held.pop((as_held(key), space), None)
            case "read":
                self._check_one(key, space)
            case "evict":
                for one in self.backends:
                    one.time.begin(1)
            case "snapshot":
                self.frozen = [one.snapshot() for one in self.backends]
                self.then = {at: list(values) for at, values in self.held.items()}
            case "restore" if self.frozen:
                self._restore(key, number)

    def _restore(self, kind: str, parallelism: int) -> None:
        tables = [table for frozen in self.frozen for table in frozen.tables()]
        self.frozen = []
        self.backends = []
        for subtask in range(parallelism):
            new = make_backend(kind, range_for(subtask, parallelism, GROUPS), GROUPS)
            new.restore(cut(tables, new.key_groups))
            self.backends.append(new)
        self.held = self.then

    def _owner(self, key: Any) -> Any:
        group = key_group(key, GROUPS)
        (owner,) = [b for b in self.backends if group in b.key_groups]
        owner.current.key = as_held(key)
        return owner

    def _at(self, key: Any, space: Any, call: Any) -> None:
        owner = self._owner(key)
        for descriptor in (VALUE, SUM, GATHERED):
            call(owner.namespaced(descriptor).of(space))

    def _write(self, key: Any, space: Any, number: int) -> None:
        owner = self._owner(key)
        values = self.held.setdefault((as_held(key), space), [])
        values.append(number)
        owner.namespaced(VALUE).of(space).update(list(values))
        owner.namespaced(SUM).of(space).add(number)
        owner.namespaced(GATHERED).of(space).add(number)

    def _check_one(self, key: Any, space: Any) -> None:
        owner = self._owner(key)
        values = self.held.get((as_held(key), space))
        found = (
            owner.namespaced(VALUE).of(space).value(),
            owner.namespaced(SUM).of(space).get(),
            owner.namespaced(GATHERED).of(space).get(),
        )
        if values is None:
            assert found == (None, None, None)
        else:
            assert found == (values, sum(values), tuple(values))

    def check(self) -> None:
        for key in SOME:
            for space in (None, 5, (0, 10)):
                self._check_one(key, space)
        for one in self.backends:
            one.validate()
        known = {key for key, space in self.held if space is None}
        found = [key for one in self.backends for key in one.keys_of(VALUE)]
        assert sorted(map(repr, found)) == sorted(map(repr, known))


def as_held(key: Any) -> Any:
    return held_key(findable([key])[0])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_values_per_key_against_a_dict(steps: list[Any]) -> None:
    model = Model()
    for what, key, space, number in steps:
        model.step(what, key, space, number)
    model.check()


ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None]), st.sampled_from([1, 2, -1, None])), max_size=6
)
TABLE_STEPS = st.one_of(
    st.tuples(st.just("count"), ROWS),
    st.tuples(st.just("find"), ROWS),
    st.tuples(st.just("evict"), st.none()),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)


def batch(rows: list[Any]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [(), ()]
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(TABLE_STEPS, max_size=20))
def test_tables_against_a_dict(steps: list[Any]) -> None:
    held: dict[Any, int] = {}
    backends = [backend()]

    def table_of(one: RocksKeyedStateBackend) -> Any:
        return one.table("t", SCHEMA, COLUMNS, cold=True).table()

    def parts(rows: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
        for one in backends:
            yield table_of(one), [row for row in rows if key_group(row, GROUPS) in one.key_groups]

    for what, given_ in steps:
        match what:
            case "count":
                for table, rows in parts(given_):
                    slots = table.slots(batch(rows))
                    np.add.at(table.column("count"), slots, 1)
                    np.minimum.at(table.column("low"), slots, 0.5)
                for row in given_:
                    held[row] = held.get(row, 0) + 1
            case "find":
                for table, rows in parts(given_):
                    slots = table.find(batch(rows))
                    counts = table.column("count")
                    found = [int(counts[slot]) if slot >= 0 else 0 for slot in slots]
                    assert found == [held.get(row, 0) for row in rows]
            case "evict":
                for one in backends:
                    one.time.begin(1)
            case "restore":
                tables = [t for one in backends for t in one.snapshot().tables()]
                backends = [backend(subtask, given_) for subtask in range(given_)]
                for one in backends:
                    one.restore(cut(tables, one.key_groups))
    stored = [t for one in backends for t in one.snapshot().tables()]
    rows = [row for table in stored for row in table.data.to_pylist()]
    assert {(r["key.user"], r["key.n"]): r["acc.count"] for r in rows} == held
    assert len(rows) == len(held)
    assert all(r["acc.low"] == 0.5 and r["namespace"] == 0 for r in rows)


@pytest.mark.parametrize("space", [None, 5])
def test_a_snapshot_has_each_entry_once_and_none_that_was_cleared(space: Any) -> None:
    """Of nine entries in RocksDB three are changed, three read and three cleared."""
    one = backend()
    state: Any = one.namespaced(VALUE).of(space)
    for key in range(9):
        one.set_current_key(key)
        state.of(space).update([key])
    one.time.begin(1)
    for key in range(9):
        one.current.key = key
        match key % 3:
            case 0:
                state.of(space).update([-key])
            case 1:
                assert state.of(space).value() == [key]
            case 2:
                state.of(space).clear()
    tables = list(one.snapshot().tables())
    new = make_backend("memory", range_for(0, 1, GROUPS), GROUPS)
    new.restore(tables)
    assert sum(table.data.num_rows for table in tables) == 6
    for key in range(9):
        new.set_current_key(key)
        expected = [[-key], [key], None][key % 3]
        assert new.namespaced(VALUE).of(space).value() == expected


def test_a_namespace_that_is_written_unread_goes_with_its_last_key() -> None:
    """What RocksDB holds of a key that is written again is not counted twice: else the namespaces
    of windows that are gone are kept for ever."""
    made = backend()
    state = made.namespaced(VALUE)
    for number in range(3):
        made.time.begin(1)
        for key in range(3):
            made.set_current_key(key)
            for window in range(20):
                state.of(window).update(f"{number}")
    for window in range(20):
        made.time.begin(1)
        for key in range(3):
            made.set_current_key(key)
            state.of(window).clear()
    made.time.begin(1)
    (cold,) = made._cold
    assert isinstance(cold, ColdState)
    assert list(cold.spaces) == [None]
    assert not list(made.snapshot().tables())


def put(table: Any, rows: list[Any], count: int) -> None:
    slots = table.slots(batch(rows))
    table.column("count")[slots] = count


def test_a_snapshot_is_as_of_its_moment_while_the_table_goes_on() -> None:
    """Rows are written, evicted and read again between the snapshot and its encoding."""
    one = backend()
    table: Any = one.table("t", SCHEMA, COLUMNS, cold=True).table()
    rows = [(f"k{i}", i) for i in range(50)]
    put(table, rows, 1)
    one.time.begin(1)
    put(table, rows[:10], 2)
    frozen = one.snapshot()
    put(table, rows[:30], 3)
    one.time.begin(1)
    put(table, [("new", 1)], 4)
    one.time.begin(1)
    found = {r["key.user"]: r["acc.count"] for t in frozen.tables() for r in t.data.to_pylist()}
    assert found == {f"k{i}": 2 if i < 10 else 1 for i in range(50)}


def test_equal_keys_and_only_these_have_equal_bytes() -> None:
    keys: list[Any] = [
        1,
        1.0,
        True,
        Decimal(1),
        0,
        0.0,
        False,
        "1",
        b"1",
        None,
        "",
        (),
        (1,),
        (1.0,),
    ]
    keys += [2**64, -(2**64), float("inf"), "\ud800", dt.date(1970, 1, 1), dt.datetime(1970, 1, 1)]
    keys += [Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity"), Decimal("1e400")]
    keys += [pd.Timestamp(1001, unit="ns"), pd.Timestamp(1002, unit="ns"), pd.Timedelta(1001)]
    keys += [pd.Timestamp(1001, unit="ns", tz="UTC"), pd.Timedelta(-1), (pd.Timedelta(1),)]
    held = [key_bytes(held_key(key)) for key in keys]
    assert None not in held
    assert all(key_end(b"xx" + made + b"y", 2) == 2 + len(made) for made in held if made)
    assert len(set(held)) == len({held_key(key) for key in keys})
    assert key_bytes(0.0) == key_bytes(-0.0)
    assert key_bytes(Decimal("1.5")) == key_bytes(Decimal("1.50"))
    numbers: list[Any] = [0, 1, 0.5, 1.0, True, Decimal("0.5"), Decimal("0.1"), 0.1, np.int64(1)]
    alike = {number: alike_bytes(number) for number in numbers}
    assert None not in alike.values()
    assert len(set(alike.values())) == len(alike)
    assert all(alike_bytes(number) == alike[number] for number in numbers)
    for finer, plain in (
        (pd.Timestamp(5_000, unit="ns"), dt.datetime(1970, 1, 1, microsecond=5)),
        (pd.Timestamp(0, unit="ns", tz="Asia/Tokyo"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (pd.Timedelta(-5_000), dt.timedelta(microseconds=-5)),
    ):
        assert finer == plain
        assert key_bytes(finer) == key_bytes(plain) is not None
    assert key_bytes(pd.NaT) is None
    assert key_bytes(object()) is None


def test_what_killed_processes_left_is_removed(tmp_path: Any) -> None:
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    config = StateConfig("rocksdb", 8 << 20, local_dirs=(str(tmp_path),))
    first, second = TaskDatabase(config), TaskDatabase(config)
    first.write([], [(b"k", b"v")])
    second.write([], [(b"k", b"w")])
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 2
    assert (first.get(b"k"), second.get(b"k")) == (b"v", b"w")
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_backend_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"no state backend 'rocksbd': .*'rocksdb'"):
        StateConfig("rocksbd")
    assert StateConfig("hashmap").backend == StateConfig().backend == "memory"
