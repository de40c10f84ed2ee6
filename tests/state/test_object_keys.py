"""Codes of keys that are Python objects: equality, key groups, snapshots, forgetting."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError, TypeMismatchError
from strom.core.key_kinds import held_keys
from strom.core.keys import findable
from strom.state.backend import KEY_GROUP, AccColumn, StateTable
from strom.state.hashing import stable_hash
from strom.state.key_groups import key_groups_of, range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.object_keys import FIRST_LIMIT, ObjectKeys
from strom.state.value_store import ValueStore
from strom.state.whole import WholeState, WholeWithoutCodes

GROUPS = 16
COLUMNS = [AccColumn("count", "int64")]


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Place:
    x: int
    name: str


KEYS: list[Any] = [
    *(None, True, 7, -1, 2**70, 0.5, "a", "", b"a", ("a", 1), ("a", None), ((1, 2), "b"), ()),
    *(Decimal("1.50"), dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12), dt.time(1, 2)),
    *(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.timedelta(days=1), uuid.UUID(int=5), Color.RED),
    *(Place(1, "p"), float("nan"), ("x", float("nan"))),
]


def backend(subtask: int = 0, parallelism: int = 1) -> MemoryKeyedStateBackend:
    return MemoryKeyedStateBackend(range_for(subtask, parallelism, GROUPS), GROUPS)


def batch(b: MemoryKeyedStateBackend, keys: list[Any]) -> pa.RecordBatch:
    column = b.object_keys("operator 'o'").column(held_keys(findable(keys)))
    return pa.RecordBatch.from_arrays([column], names=["key"])


def schema(b: MemoryKeyedStateBackend) -> pa.Schema:
    return pa.schema([pa.field("key", b.object_keys("operator 'o'").kind)])


class Counting:
    """Counts keys in a table, in entries and in a buffer, as operators of windows do."""

    def __init__(self, b: MemoryKeyedStateBackend) -> None:
        self.state = b
        self._keys = schema(b)
        self._table = b.table("table", self._keys, COLUMNS)
        columns = [AccColumn("owner", "int64", -1), AccColumn("count", "int64")]
        self._entries = b.entries("entries", self._keys, columns, "owner")
        self._rows = pa.schema([*self._keys, pa.field("n", pa.int64())])
        self._buffer = b.buffer("buffer", self._rows)

    def add(self, keys: list[Any], namespace: int = 0) -> None:
        rows = batch(self.state, keys)
        table = self._table.table(namespace)
        np.add.at(table.column("count"), table.slots(rows), 1)
        first = len(self._entries)
        self._entries.resize(first + len(rows))
        slots = np.arange(first, len(self._entries))
        self._entries.touch(slots)
        self._entries.column("owner")[slots] = self._entries.numbers(rows)
        self._entries.column("count")[slots] = 1
        kept = pa.RecordBatch.from_arrays(
            [rows.column(0), pa.array([1] * len(rows))], schema=self._rows
        )
        self._buffer.append(0, kept, key_groups_of(rows, GROUPS))

    def tables(self) -> list[StateTable]:
        return list(self.state.snapshot().tables())

    def counted(self) -> dict[str, Counter[Any]]:
        """By state: how often each key is there. Keys by their repr: 1 and True differ."""
        keys = self.state.object_keys("")
        found: dict[str, Counter[Any]] = {"table": Counter(), "entries": Counter()}
        for namespace in self._table.namespaces():
            table = self._table.table(namespace)
            counts = table.column("count")[: len(table)].tolist()
            for key, n in zip(keys.objects(table.keys().column(0)), counts, strict=True):
                found["table"][repr(key)] += n
        owners = self._entries.column("owner")[: len(self._entries)]
        (column,) = self._entries.take_owners(owners)
        counts = self._entries.column("count")[: len(owners)].tolist()
        for key, n in zip(keys.objects(column), counts, strict=True):
            found["entries"][repr(key)] += n
        rows, _ = self._buffer.get(0)
        kept = [key for chunk in rows.column("key").chunks for key in keys.objects(chunk)]
        return {**found, "buffer": Counter(map(repr, kept))}


def rescaled(old: list[Counting], parallelism: int) -> list[Counting]:
    tables = [table for one in old for table in one.tables()]
    made = []
    for subtask in range(parallelism):
        b = backend(subtask, parallelism)
        mine = []
        for table in tables:
            groups = table.data.column(KEY_GROUP).to_numpy()
            inside = (groups >= b.key_groups.first) & (groups <= b.key_groups.last)
            data = table.data.filter(pa.array(inside))
            if data.num_rows:
                mine.append(StateTable(table.name, table.kind, data, table.metadata))
        b.restore(mine)
        made.append(Counting(b))
    return made


def total(parts: list[Counting]) -> dict[str, Counter[Any]]:
    found = [part.counted() for part in parts]
    return {name: sum((one[name] for one in found), Counter()) for name in found[0]}


def test_keys_are_one_where_they_are_equal_and_of_one_kind():
    keys = ObjectKeys("operator 'o'")
    nan = float("nan")
    made = [1, True, 1.0, "1", nan, float("nan"), None, (1, nan), (1.0, float("nan")), -0.0, 0]
    codes = keys.column(held_keys(findable(made))).storage.to_pylist()
    assert codes == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9]
    assert repr(keys.objects(keys.column(held_keys([0.0, 0, True, 1.0])))) == "[-0.0, 0, True, 1.0]"
    keys.validate()


def test_the_key_group_is_that_of_the_key_and_not_of_its_code():
    b = backend()
    rows = batch(b, KEYS)
    expected = [stable_hash(key) % GROUPS for key in findable(KEYS)]
    assert len(set(expected)) > GROUPS // 2
    assert key_groups_of(rows, GROUPS).tolist() == expected
    some = rows.take(pa.array([3, 0])).slice(1)
    assert key_groups_of(some, GROUPS).tolist() == expected[:1]
    counting = Counting(b)
    counting.add(KEYS)
    for table in counting.tables():
        pickled = [c for c in table.data.column_names if c.endswith(("key", "k0"))]
        read = ObjectKeys("").restored(table.data.column(pickled[0]), "s")
        hashes = read.type.keys.hashes(read) % np.uint64(GROUPS)
        assert hashes.tolist() == table.data.column(KEY_GROUP).to_pylist()


@pytest.mark.parametrize("steps", [(1, 3, 2), (2, 1, 5)])
def test_keys_of_every_type_survive_any_rescale(steps):
    first, *more = steps
    parts = [Counting(backend(i, first)) for i in range(first)]
    fresh = findable(KEYS)
    expected: Counter[Any] = Counter()
    for turn in range(3):
        if turn:
            parts = rescaled(parts, more[turn - 1])
        for part in parts:
            groups = part.state.key_groups
            mine = [key for key in fresh if stable_hash(key) % GROUPS in groups]
            part.add(mine, namespace=turn)
            part.state.object_keys("").validate()
        expected.update(map(repr, fresh))
        assert total(parts) == dict.fromkeys(("table", "entries", "buffer"), expected)


def test_equal_keys_of_two_kinds_are_two_wherever_they_meet():
    """1 and True are one key to a dict, and go to two subtasks by their hashes."""
    groups = {stable_hash(key) % GROUPS for key in (1, True)}
    assert max(groups) >= 4 > min(groups)
    parts = [Counting(backend(i, 4)) for i in range(4)]
    for part in parts:
        part.add([k for k in (1, True) if stable_hash(k) % GROUPS in part.state.key_groups])
    (one,) = rescaled(parts, 1)
    assert one.counted()["table"] == Counter({"1": 1, "True": 1})
    one.state.object_keys("").validate()
    one.add([1.0, True])
    again = total(rescaled(rescaled([one], 3), 2))
    assert all(counts == {"1": 1, "True": 2, "1.0": 1} for counts in again.values())


def test_a_key_without_stable_hash_is_told_when_its_group_is_asked():
    b = backend()
    table = b.table("t", schema(b), COLUMNS).table()
    assert table.slots(batch(b, [frozenset({1}), 5])).tolist() == [0, 1]
    with pytest.raises(TypeMismatchError, match="frozenset has no stable hash"):
        key_groups_of(batch(b, [frozenset({1})]), GROUPS)
    assert key_groups_of(batch(b, [5]), GROUPS).tolist() == [stable_hash(5) % GROUPS]


@dataclass(frozen=True)
class Locked:
    name: str
    lock: Any


def test_a_key_that_does_not_pickle_is_named():
    b = backend()
    table = b.table("slices", schema(b), COLUMNS).table()
    lock = Lock()
    table.slots(batch(b, ["fine"]))
    b.object_keys("")._enter(Locked("bad", lock), 5)
    table.upsert([pa.array([1])])
    with pytest.raises(StateError) as caught:
        list(b.snapshot().tables())
    text = str(caught.value)
    assert text.startswith("operator 'o', state 'slices': key Locked(name='bad'")
    assert "cannot be pickled" in text


def test_ever_new_keys_do_not_leak():
    b = backend()
    state = b.table("t", schema(b), COLUMNS)
    keys = b.object_keys("")
    stay = ("stays", 0)
    most = 0
    for turn in range(60):
        b.forget_object_keys()
        keys.validate()
        table = state.table(turn)
        table.slots(batch(b, [stay, *((turn, i) for i in range(500))]))
        state.table(-1).slots(batch(b, [stay]))
        if turn >= 2:
            state.drop(turn - 2)
        most = max(most, len(keys))
        for namespace in state.namespaces():
            shown = keys.objects(state.table(namespace).keys().column(0))
            assert shown[0] == stay
            assert all(key[0] == namespace for key in shown[1:])
    assert most <= FIRST_LIMIT + 501
    assert len(keys._objects) <= FIRST_LIMIT + 501


def test_a_snapshot_in_flight_reads_what_its_codes_stood_for(monkeypatch):
    monkeypatch.setattr("strom.state.object_keys.FIRST_LIMIT", 4)
    b = backend()
    keys = b.object_keys("")
    keys._limit = 4
    counting = Counting(b)
    before = [(1, i) for i in range(20)]
    counting.add(before)
    snapshot = b.snapshot()
    counting._table.drop(0)
    counting._buffer.drop(0)
    counting._entries.touch_all()
    counting._entries.column("owner")[: len(counting._entries)] = -1
    monkeypatch.setattr("strom.state.live_keys.FIRST_LIMIT", 0)
    counting._entries.tidy_owners(0, lambda: np.empty(0, dtype=np.int64))
    b.forget_object_keys()
    assert len(keys) == 0
    counting.add([(2, i) for i in range(30)])
    assert keys.column([(2, 0)]).storage.to_pylist()[0] < 20, "codes are used again"
    again = backend()
    again.restore(list(snapshot.tables()))
    expected = Counter(map(repr, before))
    assert Counting(again).counted() == dict.fromkeys(("table", "entries", "buffer"), expected)
    keys.validate()


def test_equal_keys_of_two_kinds_are_forgotten_one_by_one():
    b = backend()
    keys = b.object_keys("")
    first, second = keys.column(held_keys([1, True])).storage.to_pylist()
    held = keys.marks()
    held[second] = True
    keys.forget(held)
    keys.validate()
    assert keys.column(held_keys([True, 1.0])).storage.to_pylist() == [second, first]


def test_states_that_would_store_codes_refuse_them():
    b = backend()
    kinds = schema(b)
    for ask in (
        lambda: b.rows("r", kinds, [0]),
        lambda: b.log("l", kinds, lambda rows: np.zeros(len(rows), np.int32)),
        lambda: b.chunks("c", kinds, lambda rows: rows),
        lambda: b.counted_values("v", kinds, pa.int64(), 1),
        lambda: b.seen_values("s", kinds, pa.int64(), 1),
    ):
        with pytest.raises(StateError, match="cannot keep keys that are Python objects"):
            ask()


def test_values_of_a_table_with_object_keys_are_restored_with_them():
    b = backend()
    stores = {"text": lambda: ValueStore(pa.string())}
    columns = [AccColumn("text", "int64", -1)]
    table = b.table("t", schema(b), columns, values=stores).table()
    slots = table.slots(batch(b, KEYS))
    codes = table.stores["text"].append(pa.array([repr(key) for key in KEYS]))
    table.column("text")[slots] = codes
    again = backend()
    again.restore(list(b.snapshot().tables()))
    read = again.table("t", schema(again), columns, values=stores).table()
    texts = read.stores["text"].take(read.column("text")[: len(read)]).to_pylist()
    shown = again.object_keys("").objects(read.keys().column(0))
    assert list(map(repr, shown)) == texts
    assert len(texts) == len(KEYS)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from("akf"), st.integers(0, 12)), max_size=80))
def test_any_order_of_adding_and_forgetting(steps):
    keys = ObjectKeys("operator 'o'")
    keys._limit = 0
    held: dict[Any, int] = {}
    for what, n in steps:
        match what:
            case "a":
                held[n, "key"] = keys.column([(n, "key")]).storage.to_pylist()[0]
            case "k":
                held.pop((n, "key"), None)
            case _:
                marks = keys.marks()
                marks[list(held.values())] = True
                keys.forget(marks)
        keys.validate()
        assert keys.objects(pa.array(list(held.values()), pa.int64())) == list(held)


class Forgetful(WholeState):
    """What somebody writes who does not know of objects."""

    def freeze(self, name):
        raise AssertionError

    def restore(self, tables):
        raise AssertionError


def test_a_state_says_which_objects_it_holds_or_cannot_be_made():
    """One that did not would lose keys: their codes would be given to others."""
    with pytest.raises(TypeError, match="mark_objects"):
        Forgetful()


def test_every_kind_of_state_says_which_objects_it_holds():
    b = backend()
    plain = pa.schema({"k": pa.int64()})
    with_codes = (
        b.table("t", plain, []),
        b.entries("e", plain, [AccColumn("owner", "int64", -1)], "owner"),
        b.buffer("b", plain),
    )
    without = (
        b.timers("timers"),
        b.rows("r", plain, [0]),
        b.counted_values("c", plain, pa.int64(), 1),
        b.seen_values("s", plain, pa.int64(), 1),
        b.log("l", plain, lambda rows: None),
        b.chunks("h", plain, lambda rows: None),
    )
    assert all(
        isinstance(s, WholeState) and not isinstance(s, WholeWithoutCodes) for s in with_codes
    )
    assert all(isinstance(state, WholeWithoutCodes) for state in without)
