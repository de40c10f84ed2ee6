"""States as Python containers, and descriptors, under PyFlink's names."""

from __future__ import annotations

from typing import Any

import pytest
from strom import (
    AggregatingState,
    AppendingState,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    MergingState,
    ReducingState,
    State,
    StateDescriptor,
    Types,
    ValueState,
    ValueStateDescriptor,
)
from strom.core.errors import TypeMismatchError
from strom.core.ids import KeyGroupRange
from strom.state.memory import MemoryKeyedStateBackend


@pytest.fixture
def state() -> MemoryKeyedStateBackend:
    made = MemoryKeyedStateBackend(KeyGroupRange(0, 7), 8)
    made.current.key = "a"
    return made


def test_a_map_state_is_used_like_a_dict(state: MemoryKeyedStateBackend) -> None:
    entries = state.get_map_state(MapStateDescriptor("m"))
    entries["x"] = 1
    entries["y"] = 2
    assert (entries["x"], entries["z"], "y" in entries, "z" in entries) == (1, None, True, False)
    assert (list(entries), len(entries)) == (["x", "y"], 2)
    del entries["x"]
    del entries["x"]
    for key in entries:
        del entries[key]
    assert (list(entries), len(entries), bool(entries)) == ([], 0, True)


def test_a_list_state_is_iterated_over(state: MemoryKeyedStateBackend) -> None:
    items = state.get_list_state(ListStateDescriptor("l"))
    items.add_all([1, 2])
    for item in items:
        items.add(item * 10)
    assert list(items) == [1, 2, 10, 20]


def test_descriptors_take_types_by_name(state: MemoryKeyedStateBackend) -> None:
    value = state.get_state(ValueStateDescriptor("v", value_type_info=Types.INT()))
    items = state.get_list_state(ListStateDescriptor("l", elem_type_info=Types.INT()))
    descriptor = MapStateDescriptor("m", key_type_info=Types.STRING(), value_type_info=Types.INT())
    entries = state.get_map_state(descriptor)
    for write in (
        lambda: value.update("x"),
        lambda: items.add("x"),
        lambda: entries.put(1, 1),
        lambda: entries.put("x", "x"),
    ):
        with pytest.raises(TypeMismatchError):
            write()
    assert descriptor.get_name() == "m"


@pytest.mark.parametrize(
    ("kind", "bases"),
    [
        (ValueState, (State,)),
        (MapState, (State,)),
        (ListState, (MergingState, AppendingState, State)),
        (ReducingState, (MergingState, AppendingState, State)),
        (AggregatingState, (MergingState, AppendingState, State)),
        (ValueStateDescriptor, (StateDescriptor,)),
    ],
)
def test_the_classes_are_pyflinks(kind: Any, bases: tuple[type, ...]) -> None:
    assert issubclass(kind, bases)


def test_states_take_type_parameters() -> None:
    class Counting:
        count: ValueState[int]
        seen: MapState[str, int]

    assert Counting.__annotations__
    assert ValueState[int] is not None
