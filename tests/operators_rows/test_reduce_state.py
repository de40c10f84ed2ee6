"""A ReduceFunction may use keyed state, under the key of the records it is called for."""

from __future__ import annotations

from typing import Any

from drawn_ways import assert_equivalent
from strom import ReduceFunction, ReducingStateDescriptor, StateTtlConfig, ValueStateDescriptor
from strom.api.specs.records import ReduceSpec
from strom.core.keys import FunctionKey
from strom.testing.operator_harness import OperatorHarness

KEY = FunctionKey(lambda record: record[0])


class Counting(ReduceFunction):
    """Sums, with how often it was called for the key."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ReducingStateDescriptor("calls", lambda a, b: a + b)
        self.calls = runtime_context.get_reducing_state(descriptor)

    def reduce(self, value1: Any, value2: Any) -> Any:
        self.calls.add(1)
        return value1[0], value1[1] + value2[1], self.calls.get()


def test_state_is_that_of_the_key() -> None:
    first = OperatorHarness(ReduceSpec(KEY, Counting(), None))
    first.push([("a", 1, 0), ("b", 10, 0), ("a", 2, 0), ("a", 3, 0), ("b", 20, 0)])
    second = OperatorHarness(ReduceSpec(KEY, Counting(), None), restored=first.snapshot())
    second.push([("b", 30, 0), ("a", 4, 0)])
    assert [*first.outputs(), *second.outputs()] == [
        ("a", 1, 0),
        ("b", 10, 0),
        ("a", 3, 1),
        ("a", 6, 2),
        ("b", 30, 1),
        ("b", 60, 2),
        ("a", 10, 3),
    ]


class Forgetful(ReduceFunction):
    """How many values came within 10 ms of each other."""

    def open(self, runtime_context: Any) -> None:
        self.recent = ValueStateDescriptor("recent")
        self.recent.enable_time_to_live(StateTtlConfig.new_builder(10).use_event_time().build())
        self.recent = runtime_context.get_state(self.recent)

    def reduce(self, value1: Any, value2: Any) -> Any:
        self.recent.update((self.recent.value() or 0) + 1)
        return value1[0], self.recent.value()


def test_its_state_expires_by_the_times_of_the_records() -> None:
    harness = OperatorHarness(ReduceSpec(KEY, Forgetful(), None))
    harness.push([("a", 0)] * 6, timestamps=[0, 1, 10, 19, 29, 30])
    assert [record[1] for record in harness.outputs()] == [0, 1, 2, 3, 1, 2]


def test_every_way() -> None:
    records = [(f"k{i % 3}", i, 0) for i in range(60)]

    def build(env: Any) -> Any:
        stream = env.from_collection(records)
        return stream.key_by(lambda r: r[0]).reduce(Counting()).map(lambda r: (r[0], r[2]))

    expected = [(f"k{i % 3}", i // 3) for i in range(60)]
    assert_equivalent(build, expected)
