"""State with a time to live beside broadcast state and state of subtasks, which have none."""

from __future__ import annotations

from typing import Any

import pytest
from strom import (
    ConfigurationError,
    KeyedBroadcastProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateError,
    StateTtlConfig,
    StreamExecutionEnvironment,
    Time,
    ValueStateDescriptor,
)
from strom.api.specs.connected import KeyedBroadcastProcessSpec
from strom.core.keys import FunctionKey
from strom.state.operator_state import OperatorStateBackend
from strom.testing.operator_harness import OperatorHarness

TTL = StateTtlConfig.new_builder(Time.milliseconds(100)).build()
RULES = MapStateDescriptor("rules")


def expiring(descriptor: Any) -> Any:
    descriptor.enable_time_to_live(TTL)
    return descriptor


class Remembered(KeyedBroadcastProcessFunction):
    """An element asks which keys there are."""

    def __init__(self, kind: str) -> None:
        make = {"value": ValueStateDescriptor, "list": ListStateDescriptor}[kind]
        self.descriptor = expiring(make("seen"))
        self.kind = kind

    def open(self, runtime_context: Any) -> None:
        get = {"value": runtime_context.get_state, "list": runtime_context.get_list_state}
        self.seen = get[self.kind](self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.update(value if self.kind == "value" else [value])

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        keys: list[Any] = []
        ctx.apply_to_keyed_state(self.descriptor, lambda key, state: keys.append(key))
        yield sorted(keys)


@pytest.mark.parametrize("kind", ["value", "list"])
def test_an_element_does_not_reach_keys_that_have_expired(kind: str) -> None:
    spec = KeyedBroadcastProcessSpec(FunctionKey(str), Remembered(kind), (RULES,))
    harness = OperatorHarness(spec)
    harness.push(["a"], [1])
    harness.advance_processing_time(60)
    harness.push(["b"], [1])
    harness.push(["who"], [1], port=1)
    harness.advance_processing_time(130)
    harness.push(["who"], [1], port=1)
    assert harness.outputs() == [["a", "b"], ["b"]]


class Refreshed(KeyedBroadcastProcessFunction):
    """An element writes what all keys hold again: in event time, at its own time."""

    def __init__(self) -> None:
        ttl = StateTtlConfig.new_builder(Time.milliseconds(100)).use_event_time().build()
        self.descriptor = ValueStateDescriptor("seen")
        self.descriptor.enable_time_to_live(ttl)

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self.seen.value()
        self.seen.update(value)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.apply_to_keyed_state(self.descriptor, lambda key, state: state.update("again"))


def test_what_an_element_writes_has_the_time_of_the_element() -> None:
    harness = OperatorHarness(KeyedBroadcastProcessSpec(FunctionKey(str), Refreshed(), (RULES,)))
    harness.push(["a"], [10])
    harness.push(["x"], [80], port=1)
    harness.push(["a"], [150])
    assert harness.outputs() == [None, "again"]


def test_only_keyed_state_expires() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ConfigurationError, match="'r' has a time to live, but only keyed state"):
        env.from_collection([1]).broadcast(expiring(MapStateDescriptor("r")))
    store = OperatorStateBackend(0)
    for get, made in (
        (store.get_list_state, ListStateDescriptor("s")),
        (store.get_union_list_state, ListStateDescriptor("s")),
        (store.get_broadcast_state, MapStateDescriptor("s")),
    ):
        with pytest.raises(StateError, match="'s' has a time to live, but only keyed state"):
            get(expiring(made))
