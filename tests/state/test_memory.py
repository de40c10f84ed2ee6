"""Row face, timers and buffers of both backends: use, snapshot, restore, rescale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from backends import BACKENDS, close_all, make_backend
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.state.backend import KEY_GROUP, StateTable
from strom.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from strom.state.encoding import encode
from strom.state.key_groups import key_group, range_for
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.row_tables import _VECTORISED_FROM, groups_of_keys

GROUPS = 16
VALUE = ValueStateDescriptor("v")
LIST = ListStateDescriptor("l")
MAP = MapStateDescriptor("m")


@dataclass
class Mutable:
    n: int


class Mean:
    """An AggregateFunction whose accumulator changes in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]


REDUCE = ReducingStateDescriptor("r", lambda a, b: a + b)
MEAN = AggregatingStateDescriptor("a", Mean())


_kind = ["memory"]


@pytest.fixture(params=BACKENDS, scope="module", autouse=True)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of the backends that `backend` makes."""
    _kind[0] = request.param
    yield request.param
    close_all()


def backend(subtask: int = 0, parallelism: int = 1) -> MemoryKeyedStateBackend:
    return make_backend(_kind[0], range_for(subtask, parallelism, GROUPS), GROUPS)


def cut(tables: Iterable[StateTable], groups: KeyGroupRange) -> list[StateTable]:
    """What the checkpoint reader does: the rows of these key groups."""
    kept = []
    for table in tables:
        column = table.data.column(KEY_GROUP).to_numpy()
        assert (np.diff(column) >= 0).all()
        rows = np.flatnonzero((column >= groups.first) & (column <= groups.last))
        data = table.data.take(pa.array(rows))
        kept.append(StateTable(table.name, table.kind, data, table.metadata))
    return kept


def rescaled(
    backends: list[MemoryKeyedStateBackend], parallelism: int
) -> list[MemoryKeyedStateBackend]:
    tables = [table for old in backends for table in old.snapshot().tables()]
    made = []
    for subtask in range(parallelism):
        new = backend(subtask, parallelism)
        new.restore(cut(tables, new.key_groups))
        made.append(new)
    return made


def at(state: MemoryKeyedStateBackend, key: Any) -> MemoryKeyedStateBackend:
    state.set_current_key(key)
    return state


def test_value_state_is_per_key() -> None:
    b = backend()
    state = b.get_state(VALUE)
    b.set_current_key("a")
    assert state.value() is None
    state.update(1)
    b.set_current_key("b")
    assert state.value() is None
    state.update(2)
    b.set_current_key("a")
    assert (state.value(), b.get_current_key()) == (1, "a")
    state.update(None)
    assert state.value() is None
    assert b.get_state(VALUE) is state
    b.validate()


def test_list_map_reducing_and_aggregating_state() -> None:
    b = at(backend(), 1)
    items, entries = b.get_list_state(LIST), b.get_map_state(MAP)
    items.add(1)
    items.add_all([2, 3])
    assert list(items.get()) == [1, 2, 3]
    items.update([])
    assert list(items.get()) == []
    entries.put("x", 1)
    entries.put_all({"y": 2})
    assert (entries.get("x"), entries.contains("y"), entries.get("z")) == (1, True, None)
    assert list(entries.items()) == [("x", 1), ("y", 2)]
    entries.remove("x")
    entries.remove("y")
    assert entries.is_empty()
    total, mean = b.get_reducing_state(REDUCE), b.get_aggregating_state(MEAN)
    assert (total.get(), mean.get()) == (None, None)
    for n in (1, 2, 6):
        total.add(n)
        mean.add(n)
    assert (total.get(), mean.get()) == (9, 3.0)
    total.clear()
    assert total.get() is None
    b.validate()


def test_namespaces_are_apart_and_vanish_when_empty() -> None:
    b = at(backend(), "k")
    windows = b.namespaced(LIST)
    windows.of((0, 10)).add("a")
    windows.of((10, 20)).add("b")
    assert list(windows.of((0, 10)).get()) == ["a"]
    assert list(b.get_list_state(LIST).get()) == []
    windows.of((0, 10)).clear()
    assert list(windows.of((0, 10)).get()) == []
    windows.add("again")
    assert list(windows.of((0, 10)).get()) == ["again"]
    assert b.namespaced(LIST) is windows
    b.validate()


def test_state_without_a_key_is_an_error() -> None:
    with pytest.raises(StateError, match="no current key"):
        backend().get_state(VALUE).update(1)


def test_kind_mismatch_names_both() -> None:
    b = backend()
    b.get_state(VALUE)
    with pytest.raises(StateError, match=r"'v' is a 'value' state .* as a 'list' state"):
        b.get_list_state(ListStateDescriptor("v"))
    with pytest.raises(StateError, match=r"'value' state .* as a 'timers' state"):
        b.timers("v")
    b.set_current_key(1)
    b.get_state(VALUE).update(1)
    new = rescaled([b], 1)[0]
    with pytest.raises(StateError, match=r"'value' state .* as a 'map' state"):
        new.get_map_state(MapStateDescriptor("v"))
    assert at(new, 1).get_state(VALUE).value() == 1


KEYS = st.one_of(
    st.integers(0, 30),
    st.text(max_size=3),
    st.tuples(st.integers(0, 3), st.text(max_size=1)),
    st.integers(2**70, 2**70 + 3),
    st.none(),
)
VALUES = st.one_of(st.integers(), st.text(max_size=3), st.lists(st.integers(), max_size=2))
NAMESPACES = st.sampled_from([None, 5, (0, 10)])
STATES: list[StateDescriptor] = [VALUE, LIST, MAP]


def write(b: MemoryKeyedStateBackend, key: Any, namespace: Any, value: Any) -> None:
    b.set_current_key(key)
    b.namespaced(VALUE).of(namespace).update(value)
    b.namespaced(LIST).of(namespace).add(value)
    b.namespaced(MAP).of(namespace).put(str(value), value)
    b.namespaced(REDUCE).of(namespace).add([value])
    b.timers("t").register(len(str(value)), key, namespace)


def read(backends: list[MemoryKeyedStateBackend], keys: list[Any]) -> dict[Any, Any]:
    """Everything, by key and namespace, from the subtask that owns the key."""
    found = {}
    for key in keys:
        (b,) = [b for b in backends if key_group(key, GROUPS) in b.key_groups]
        b.set_current_key(key)
        for namespace in (None, 5, (0, 10)):
            found[key, namespace] = (
                b.namespaced(VALUE).of(namespace).value(),
                list(b.namespaced(LIST).of(namespace).get()),
                dict(b.namespaced(MAP).of(namespace).items()),
                b.namespaced(REDUCE).of(namespace).get(),
            )
    return found


def timers(backends: list[MemoryKeyedStateBackend]) -> list[Any]:
    found = []
    for b in backends:
        queue = b.timers("t")
        while (timer := queue.pop_due(1 << 60)) is not None:
            found.append(timer)
    return sorted(found, key=repr)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(KEYS, NAMESPACES, VALUES), max_size=25), st.booleans())
def test_rescaled_state_is_the_same(writes: list[Any], reread: bool) -> None:
    """p=2 -> 3 -> 1; with `reread` False the state at p=3 is carried along without being read."""
    whole = backend()
    two = [backend(i, 2) for i in range(2)]
    for key, namespace, value in writes:
        write(whole, key, namespace, value)
        owner = next(b for b in two if key_group(key, GROUPS) in b.key_groups)
        write(owner, key, namespace, value)
    keys = [key for key, _, _ in writes]
    expected = read([whole], keys)
    three = rescaled(two, 3)
    if reread:
        assert read(three, keys) == expected
    one = rescaled(three, 1)
    assert read(one, keys) == expected
    assert timers(one) == timers([whole])
    for b in (*two, *three, *one):
        b.validate()


def test_typed_columns_where_values_are_plain() -> None:
    b = backend()
    for key in range(20):
        b.set_current_key(f"k{key}")
        b.get_state(VALUE).update(key * 0.5)
        b.namespaced(LIST).of(key % 3).add(b"x")
    tables = {table.name: table for table in b.snapshot().tables()}
    schema = tables["v"].data.schema
    assert schema.names == [KEY_GROUP, "namespace", "key", "value"]
    assert schema.types == [pa.int32(), pa.int64(), pa.large_string(), pa.float64()]
    assert tables["v"].metadata == {"namespace": "int", "key": "str", "value": "float"}
    assert tables["l"].metadata["value"] == "bytes"


def test_change_after_the_snapshot_does_not_leak() -> None:
    b = at(backend(), 1)
    value, items, mean = b.get_state(VALUE), b.get_list_state(LIST), b.get_aggregating_state(MEAN)
    mutable = Mutable(1)
    value.update(mutable)
    items.add((1, "flat"))
    mean.add(4)
    b.get_map_state(MAP).put("k", (1, [2]))
    snapshot = b.snapshot()
    mutable.n = 99
    items.add((2, "late"))
    mean.add(8)
    b.get_map_state(MAP).get("k")[1].append(3)
    at(b, 2).get_state(VALUE).update(Mutable(5))
    new = backend()
    new.restore(snapshot.tables())
    new.set_current_key(1)
    assert new.get_state(VALUE).value() == Mutable(1)
    assert list(new.get_list_state(LIST).get()) == [(1, "flat")]
    assert new.get_aggregating_state(MEAN).get() == 4.0
    assert new.get_map_state(MAP).get("k") == (1, [2])
    assert at(new, 2).get_state(VALUE).value() is None


def test_foreign_key_groups_are_refused() -> None:
    b = backend()
    for key in range(50):
        at(b, key).get_state(VALUE).update(key)
    half = backend(0, 2)
    with pytest.raises(StateError, match=r"key group \d+, which is outside .* range 0\.\.7"):
        half.restore(b.snapshot().tables())


def test_unread_state_is_carried_along_even_if_its_classes_are_gone() -> None:
    data = pa.table(
        {
            KEY_GROUP: pa.array([2, 2], pa.int32()),
            "namespace": pa.array([None, None], pa.int64()),
            "key": pa.array([1, 2]),
            "value": pa.array([b"broken", b"pickles"], pa.large_binary()),
        }
    )
    metadata = {"namespace": "int", "key": "int", "value": "pickle"}
    typed = data.set_column(3, "value", pa.array([1.0, 2.0]))
    b = backend()
    b.restore(
        [
            StateTable("v", "value", data, metadata),
            StateTable("v", "value", typed, {**metadata, "value": "float"}),
        ]
    )
    (table,) = b.snapshot().tables()
    assert table.data.column("value").to_pylist()[:2] == [b"broken", b"pickles"]
    assert table.metadata["value"] == "pickle"
    with pytest.raises(StateError, match=r"value of state 'v'.*cannot be read back"):
        b.get_state(VALUE)


def test_restore_twice_is_an_error() -> None:
    b = backend()
    b.get_state(VALUE)
    with pytest.raises(StateError, match="restore once"):
        b.restore([])


def test_keys_are_grouped_alike_one_by_one_and_vectorised() -> None:
    import strom.state.hash_kernels  # noqa: F401 - then many keys go the vectorised way

    for keys in (list(range(-10, 5000)), [f"k{i}" for i in range(5000)], [2**70] * 5000):
        assert len(keys) >= _VECTORISED_FROM
        expected = [key_group(key, 128) for key in keys]
        assert groups_of_keys(keys, *encode(keys, "key"), 128).tolist() == expected
