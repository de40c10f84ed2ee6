"""Tables with values under codes of which rows lie in RocksDB, against the same tables in memory:
texts, lists, sets and sketches, as accumulators keep them, leave and come back at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import (
    Aggregate,
    approx_count_distinct,
    collect,
    count_distinct,
    first,
    largest,
    last,
    max_,
    min_,
)
from strom.core.state_config import StateConfig
from strom.operators.aggregates.base import Accumulator, Use
from strom.operators.aggregates.registry import window_accumulator
from strom.state.backend import AccColumn, StateTable
from strom.state.increments import REMOVED, Since
from strom.state.rocks.database.layouts import shadowed
from strom.state.rocks.database.layouts import tables_of as tables_in
from strom.state.rocks.database.task_database import TaskDatabase
from strom.state.rocks.tables.slot_layout import slots_layout
from strom.state.rocks.tables.table_state import ColdTableState
from strom.state.rocks.tables.valued_rows import values_fit
from strom.state.table_state import MemoryTableState, stored_schema

GROUPS = 4
SCHEMA = pa.schema([("k", pa.int64())])
AGGREGATES: list[Aggregate] = [min_("v"), max_("v"), first("v"), last("v"), collect("v")]
AGGREGATES += [count_distinct("v"), approx_count_distinct("v"), largest("v", 2)]
USES = {"slices": Use.SLICES, "slots": Use.SLOTS}
ROWS = AccColumn("rows", "int64")


@pytest.fixture(scope="module")
def database() -> Iterator[TaskDatabase]:
    made = TaskDatabase(StateConfig("rocksdb", memory=8 << 20, rocksdb_share=1 - 1e-6))
    yield made
    made.close()


def accumulators(use: Use) -> list[Accumulator]:
    return [
        window_accumulator(aggregate, f"a{at}", pa.string(), use)
        for at, aggregate in enumerate(AGGREGATES)
    ]


def arguments(parts: list[Accumulator]) -> dict[str, Any]:
    values = {name: make for part in parts for name, make in part.values().items()}
    columns = [ROWS, *(column for part in parts for column in part.columns())]
    assert values_fit(values)
    return {"accumulators": columns, "values": values}


class Pair:
    """The table in RocksDB, and the one in memory that it is to be like."""

    def __init__(self, database: TaskDatabase, use: Use) -> None:
        self.parts = accumulators(use)
        self.of = arguments(self.parts)
        self.database = database
        self.number = 0
        self.cold = self.in_rocksdb()
        self.model = self.in_memory()
        self.frozen: Any = None
        self.then: Any = None

    def in_rocksdb(self) -> ColdTableState:
        of = self.of
        return ColdTableState(
            "t", SCHEMA, of["accumulators"], None, self.database, GROUPS, of["values"]
        )

    def in_memory(self) -> MemoryTableState:
        return MemoryTableState("t", SCHEMA, self.of["accumulators"], None, self.of["values"])

    def fold(self, space: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        count = int(random.integers(1, 12))
        keys = keys_of(random.integers(0, 6, count))
        drawn = random.integers(-1, 6, count).tolist()
        texts = pa.array([None if n < 0 else "x" * n + str(n) for n in drawn], pa.string())
        numbers = self.number + np.arange(count)
        self.number += count
        for state in (self.cold, self.model):
            table = state.table(space)
            slots = table.slots(keys)
            np.add.at(table.column("rows"), slots, 1)
            for part in self.parts:
                part.fold(table, slots, texts, numbers)
            table.tidy()

    def release(self, space: int, seed: int) -> None:
        keys = keys_of(np.unique(np.random.default_rng(seed).integers(0, 6, 3)))
        for state in (self.cold, self.model):
            table = state.table(space)
            slots = table.find(keys)
            table.release(slots[slots >= 0])

    def results(self, state: Any, space: int, keys: Any) -> list[Any]:
        table = state.table(space)
        slots = table.find(keys)
        here = slots[slots >= 0]
        columns = [part.result(table, here).to_pylist() for part in self.parts]
        found = [table.column("rows")[here].tolist(), *columns]
        return [(slots >= 0).tolist(), *found]

    def check(self, space: int, some: list[int]) -> None:
        keys = keys_of(np.array(some, dtype=np.int64))
        assert self.results(self.cold, space, keys) == self.results(self.model, space, keys)

    def all(self, space: int) -> None:
        """As windows read what they hold when they fire."""
        assert self.contents(self.cold, space) == self.contents(self.model, space)

    def contents(self, state: Any, space: int) -> dict[int, Any]:
        table = state.table(space)
        keys = table.keys().column(0).to_pylist()
        columns = [part.result(table).to_pylist() for part in self.parts]
        rows = table.column("rows")[: len(table)].tolist()
        lines = zip(keys, rows, *columns, strict=True)
        return {line[0]: line[1:] for line in lines if line[1]}

    def snapshot(self) -> None:
        self.frozen = self.cold.freeze("t"), self.model.freeze("t")

    def encode(self) -> None:
        """A snapshot that was taken before is as of its moment."""
        if self.frozen is not None:
            cold, model = self.frozen
            self.frozen = None
            cold, model = list(cold.tables(GROUPS)), tables_of(model.table(GROUPS))
            sorted_by_group(cold)
            found, wanted = self.in_memory(), self.in_memory()
            found.restore(cold)
            wanted.restore(model)
            for space in (0, 5):
                assert self.contents(found, space) == self.contents(wanted, space)

    def restore(self, swap: bool) -> None:
        tables = (
            list(self.cold.freeze("t").tables(GROUPS)),
            tables_of(self.model.freeze("t").table(GROUPS)),
        )
        self.frozen = None
        self.cold.close()
        self.cold, self.model = self.in_rocksdb(), self.in_memory()
        self.cold.restore(tables[1 if swap else 0])
        self.model.restore(tables[0 if swap else 1])

    def step(self, what: str, space: int, seed: int) -> None:
        match what:
            case "fold":
                self.fold(space, seed)
            case "find":
                self.check(space, [seed % 6, 99, (seed // 6) % 6])
            case "release":
                self.release(space, seed)
            case "all":
                self.all(space)
            case "drop":
                self.cold.drop(space)
                self.model.drop(space)
            case "evict":
                self.cold.make_room()
            case "evict some":
                self.cold._evict(2)
            case "forget":
                for table in self.cold._cold.values():
                    table.forget_values()
            case "snapshot":
                self.snapshot()
            case "encode":
                self.encode()
            case "restore":
                self.restore(seed % 2 == 0)


def keys_of(numbers: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=SCHEMA)


def tables_of(table: StateTable | None) -> list[StateTable]:
    return [] if table is None else [table]


def sorted_by_group(tables: list[StateTable]) -> None:
    """And each row once."""
    rows = []
    for table in tables:
        assert (np.diff(table.data.column("__key_group").to_numpy()) >= 0).all()
        rows += [(row["namespace"], row["key.k"]) for row in table.data.to_pylist()]
    assert len(set(rows)) == len(rows)


STEPS = st.one_of(
    st.tuples(st.just("fold"), st.sampled_from([0, 5]), st.integers(0, 2**30)),
    st.tuples(
        st.sampled_from(["find", "release", "all"]), st.sampled_from([0, 5]), st.integers(0, 2**30)
    ),
    st.tuples(st.sampled_from(["drop", "snapshot", "encode"]), st.just(0), st.just(0)),
    st.tuples(st.sampled_from(["evict", "evict some", "forget"]), st.just(0), st.just(0)),
    st.tuples(st.just("restore"), st.just(0), st.integers(0, 1)),
)


@pytest.mark.parametrize("use", list(USES))
@settings(max_examples=examples(25), deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_against_the_table_in_memory(
    database: TaskDatabase, use: str, steps: list[tuple[str, int, int]]
) -> None:
    pair = Pair(database, USES[use])
    try:
        for what, space, seed in steps:
            pair.step(what, space, seed)
        pair.encode()
        for space in (0, 5):
            pair.check(space, list(range(6)))
            pair.all(space)
        for table in pair.cold._cold.values():
            table.validate()
    finally:
        pair.cold.close()


CHANGES = st.lists(
    st.tuples(st.sampled_from(["fold", "release", "evict some", "snapshot"]), st.integers(0, 99)),
    max_size=20,
)


@settings(max_examples=examples(25), deadline=None)
@given(steps=CHANGES)
def test_what_is_hot_over_the_rows_in_rocksdb(
    database: TaskDatabase, steps: list[tuple[str, int]]
) -> None:
    """Bases and deltas of the rows in memory, folded, over the rows in RocksDB at that moment: what
    a checkpoint holds that takes RocksDB's files as they are."""
    pair = Pair(database, Use.SLICES)
    hot: dict[int, Any] = {}
    checkpoint = 0
    try:
        for what, seed in [*steps, ("snapshot", 0)]:
            if what != "snapshot":
                pair.step(what, 0, seed)
                continue
            checkpoint += 1
            since = Since(checkpoint, checkpoint - 1) if checkpoint > 1 else Since(checkpoint)
            frozen, continued = pair.cold.freeze_hot("t", since)
            layer = frozen.table(GROUPS)
            hot = hot if continued else {}
            for row in [] if layer is None else layer.data.to_pylist():
                if row["__key_group"] < 0:
                    hot = {}
                elif row.pop(REMOVED, False):
                    hot.pop(row["key.k"], None)
                else:
                    hot[row["key.k"]] = row
            below: dict[int, Any] = {}
            assert not pair.cold.shown()()
            above = pa.Table.from_pylist([*hot.values()], schema_of(pair))
            of = layout_of(pair.cold), pair.cold.rows.prefix, [StateTable("t", "table", above)]
            shown = shadowed(*of, GROUPS)
            found = [one for one in database.scan(pair.cold.rows.prefix) if one[0] not in shown]
            for table in tables_in("t", "table", layout_of(pair.cold), found, GROUPS):
                below |= {row["key.k"]: row for row in table.data.to_pylist()}
            assert not below.keys() & hot.keys()
            both = pa.Table.from_pylist([*below.values(), *hot.values()], schema_of(pair))
            restored = pair.in_memory()
            restored.restore([StateTable("t", "table", both)])
            assert pair.contents(restored, 0) == pair.contents(pair.model, 0)
    finally:
        pair.cold.close()


def layout_of(state: ColdTableState) -> Any:
    rows = state.rows
    return slots_layout(SCHEMA, rows.columns, 1, rows.values)


def schema_of(pair: Pair) -> pa.Schema:
    stores = {name: make() for name, make in pair.of["values"].items()}
    return stored_schema(SCHEMA, pair.of["accumulators"], stores, spaced=True)


def test_values_of_many_keys_take_no_more_than_they_may() -> None:
    """40 MB of texts, sets and lists under 4 MB of caches; each key's come back."""
    small = TaskDatabase(StateConfig("rocksdb", memory=8 << 20, rocksdb_share=0.5))
    parts = [
        window_accumulator(aggregate, f"a{at}", pa.string(), Use.SLICES)
        for at, aggregate in enumerate([max_("v"), collect("v"), count_distinct("v")])
    ]
    of = arguments(parts)
    state = ColdTableState("t", SCHEMA, of["accumulators"], None, small, GROUPS, of["values"])
    count, each = 20_000, 400

    def text(key: int) -> str:
        return str(key) + "x" * 1000

    most = 0
    try:
        for start in [*range(0, count, each), *range(0, count, 20 * each)]:
            state.make_room()
            assert state.used <= small.budget.limit(state)
            most = max(most, sum(table.nbytes for table in state._cold.values()))
            keys = np.arange(start, start + each)
            table = state.table()
            slots = table.slots(keys_of(keys))
            texts = pa.array([text(key) for key in keys.tolist()], pa.string())
            for part in parts:
                part.fold(table, slots, texts, keys)
            table.tidy()
        assert most < 8 << 20
        assert state.spilled > count * 0.9
        state.make_room()
        keys = np.arange(0, each)
        table = state.table()
        slots = table.find(keys_of(keys))
        assert [part.result(table, slots).to_pylist() for part in parts] == [
            [text(key) for key in keys.tolist()],
            [[text(key)] * 2 for key in keys.tolist()],
            [1] * each,
        ]
    finally:
        state.close()
        small.close()
