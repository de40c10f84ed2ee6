"""Snapshots of the row face that continue others: whatever is read, written, changed in place,
removed, or expires in between, and whichever snapshots fail, the layers of the newest complete one
are what a whole snapshot was then, in the same order, at any parallelism."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from dataclasses import replace
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from row_courses import MAX, SEEDS, Run, descriptor_of
from strom.checkpoint.layers import flattened
from strom.core.errors import CorruptCheckpointError
from strom.core.ids import KeyGroupRange
from strom.core.key_kinds import held_key
from strom.state.backend import KeyedSnapshot
from strom.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from strom.state.exact_keys import NotExactError, equal_bytes, exact_bytes
from strom.state.increments import Since
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.ttl import StateTtlConfig


class Pair(NamedTuple):
    first: int
    second: int


class Color(Enum):
    RED = 1


KINDS = ("value", "list", "map", "reducing", "aggregating")


@pytest.mark.parametrize("kind", KINDS)
def test_any_course_of_events(kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[str] = set()
    for seed in range(SEEDS):
        with monkeypatch.context() as patched:
            patched.setattr("strom.state.row_changes.FEWEST", random.Random(seed).choice([5, 4096]))
            run = Run(kind, seed, str(tmp_path / str(seed)))
            run.go(60)
            seen |= run.layers
    assert seen == {"base", "delta"}


def filled_with(kind: str, keys: int) -> tuple[MemoryKeyedStateBackend, Any]:
    """A state of so many keys, of which a complete snapshot, the first, was taken."""
    state = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    view = state.namespaced(descriptor_of(kind, False, None))
    for number in range(keys):
        state.set_current_key(number)
        write(kind, view.of(None))
    (base,) = state.snapshot(Since(1, 0)).tables()
    assert (base.layer, base.data.num_rows) == ("base", keys)
    return state, view


def write(kind: str, state: Any, value: int = 1) -> None:
    match kind:
        case "map":
            state.put(f"entry {value}", value)
        case "value":
            state.update(value)
        case _:
            state.add(value)


def rows_of(snapshot: KeyedSnapshot) -> list[tuple[bool, Any]]:
    """Of a delta: whether something is removed, and the value that is there."""
    assert set(snapshot.continued) == {"s"}
    tables = list(snapshot.tables())
    return [(row["__removed"], row["value"]) for table in tables for row in table.data.to_pylist()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_delta_holds_what_changed_and_nothing_else(kind: str) -> None:
    state, view = filled_with(kind, 100)
    state.set_current_key(5)
    write(kind, view.of(None), 2)
    state.set_current_key(7)
    view.of(None).clear()
    found = rows_of(state.snapshot(Since(2, 1)))
    (there,) = [value for removed, value in found if not removed]
    if kind == "aggregating":
        assert pickle.loads(there) == ("1", "2")
    else:
        assert there == 2
    assert sorted(removed for removed, _ in found) == [False, True]
    assert rows_of(state.snapshot(Since(3, 2))) == []


def test_reading_is_no_change_unless_values_may_be_changed_in_place() -> None:
    state, view = filled_with("value", 100)
    for number in range(50):
        state.set_current_key(number)
        view.of(None).value()
    assert rows_of(state.snapshot(Since(2, 1))) == []
    view.of(None).update([1])
    assert len(rows_of(state.snapshot(Since(3, 2)))) == 1
    view.of(None).value().append(2)
    assert len(rows_of(state.snapshot(Since(4, 3)))) == 1


def test_a_namespace_that_went_before_a_snapshot_failed_is_gone() -> None:
    state, view = filled_with("value", 100)
    for number in range(10):
        state.set_current_key(number)
        view.of((0, 10)).update(number)
    state.snapshot(Since(2, 1))
    for number in range(10):
        state.set_current_key(number)
        view.of((0, 10)).clear()
    state.snapshot(Since(3, 2))  # fails
    assert rows_of(state.snapshot(Since(4, 2))) == [(True, None)] * 10
    # One that came and went since is in no layer.
    view.of((10, 20)).update(1)
    view.of((10, 20)).clear()
    assert rows_of(state.snapshot(Since(5, 4))) == []


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize(
    "keys", [[(True, 1)], [(1, 1.0), ("x", "x")], [(0.0, -0.0)], [((1,), (True,))]]
)
def test_an_entry_that_is_written_again_keeps_its_key(keys: list[Any], ttl: bool) -> None:
    """To a dict 1 and True are one key: the one that came first."""
    state = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    descriptor = MapStateDescriptor("s")
    if ttl:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(10**9).build())
    view = state.get_map_state(descriptor)
    for number in range(20):
        state.set_current_key(number)
        view.put_all({first: number for first, _ in keys})
    layers = list(state.snapshot(Since(1, 0)).tables())
    state.set_current_key(3)
    view.put_all({second: 100 for _, second in keys})
    layers += state.snapshot(Since(2, 1)).tables()
    assert [layer.layer for layer in layers] == ["base", "delta"]
    other = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    other.restore(flattened(layers))
    other.set_current_key(3)
    found = repr(list(other.get_map_state(descriptor).items()))
    assert found == repr(list(view.items())) == repr([(first, 100) for first, _ in keys])


def test_keys_without_exact_bytes_are_written_whole() -> None:
    state, view = filled_with("value", 100)
    state.set_current_key(Color.RED)
    view.of(None).update(1)
    frozen = state.snapshot(Since(2, 1))
    assert not frozen.continued
    assert [table.layer for table in frozen.tables()] == ["whole"]
    assert [table.layer for table in state.snapshot(Since(3, 2)).tables()] == ["whole"]
    other = MemoryKeyedStateBackend(KeyGroupRange(0, MAX - 1), MAX)
    other.set_current_key(Color.RED)
    other.get_state(ValueStateDescriptor("s")).update(1)
    assert [table.layer for table in other.snapshot(Since(1, 0)).tables()] == ["whole"]
    assert [table.layer for table in other.snapshot(Since(2, 1)).tables()] == ["whole"]


TEXT = "".join(["te", "xt"])

ONE = [
    [(0.0,), (-0.0,)],
    [Decimal("1.5"), Decimal("1.50")],
    [("text", "text"), (TEXT, "text")],
    [(1, 2), Pair(1, 2)],
]
OTHERS = [1, 1.0, True, "1", b"1", None, (1,), (True,), ((1,),), 2**70, 0.5, UUID(int=1), ()]
OTHERS += [dt.date(1, 1, 1), dt.datetime(1, 1, 1), dt.timedelta(1), dt.time(1), ("a", "b")]


def test_bytes_are_equal_if_keys_are_one() -> None:
    for first, second in ONE:
        assert held_key(first) == held_key(second)
        assert exact_bytes([None], [first]) == exact_bytes([None], [held_key(second)])
    keys = [*OTHERS, *(first for first, _ in ONE)]
    assert len(set(exact_bytes([None] * len(keys), keys))) == len(keys)
    assert len(set(exact_bytes([None, (0, 1), (0, 2)], [1, 1, 1]))) == 3
    assert len(set(equal_bytes([1, 1.0, True]))) == 1
    assert len(set(equal_bytes([(1, "a"), (1.0, "a"), (True, "a")]))) == 1
    assert len(set(equal_bytes(OTHERS))) == len(set(OTHERS))
    for odd in (np.int64(1), Color.RED, frozenset(), dt.datetime(1, 1, 1, tzinfo=dt.UTC)):
        with pytest.raises(NotExactError):
            exact_bytes([None], [odd])
    for odd in (float("nan"), Decimal(1)):
        with pytest.raises(NotExactError):
            equal_bytes([odd])


def test_layers_of_maps_that_say_nothing_of_their_rows_are_refused() -> None:
    state, view = filled_with("map", 100)
    state.set_current_key(5)
    write("map", view.of(None), 2)
    base = next(iter(state.snapshot(Since(9, 0)).tables()))
    write("map", view.of(None), 3)
    delta = next(iter(state.snapshot(Since(10, 9)).tables()))
    assert sum(table.data.num_rows for table in flattened([base, delta])) == 102
    bare = replace(base, data=base.data.drop_columns(["__part"]))
    with pytest.raises(CorruptCheckpointError, match="__part"):
        flattened([bare, delta])
