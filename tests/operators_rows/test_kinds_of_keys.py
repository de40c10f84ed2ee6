"""1, 1.0 and True are three keys of every operator that works row by row, or by object keys."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from strom import (
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    KeyedProcessFunction,
    ListStateDescriptor,
    ProcessWindowFunction,
    StateTtlConfig,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    count,
)
from strom.testing.operator_harness import OperatorHarness

KEYS: list[Any] = [1, 1.0, True, Decimal(1), (1, "a"), (1.0, "a"), (True, "a"), 0, -0.0, 0.0]


def _name(key: Any) -> str:
    """-0.0 and 0.0 are one key."""
    return repr(key).replace("-", "")


NAMES = sorted({*map(_name, KEYS)})


class Counting(KeyedProcessFunction):
    def __init__(self, ttl: bool) -> None:
        self.ttl = ttl

    def open(self, runtime_context: Any) -> None:
        count, seen = ValueStateDescriptor("count"), ListStateDescriptor("seen")
        if self.ttl:
            for one in (count, seen):
                one.enable_time_to_live(StateTtlConfig.new_builder(1000).use_event_time().build())
        self.count = runtime_context.get_state(count)
        self.seen = runtime_context.get_list_state(seen)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(type(value[0]))
        ctx.timer_service().register_event_time_timer(1000)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        assert len(set(self.seen.get())) == 1
        yield ctx.get_current_key(), self.count.value()


class Listing(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        state = context.global_state().get_state(ValueStateDescriptor("n"))
        state.update((state.value() or 0) + len(list(elements)))
        yield key, state.value()

    def clear(self, context: Any) -> None:
        """Nothing is kept."""


def _first(record: Any) -> Any:
    return record[0]


SESSIONS = EventTimeSessionWindows.with_gap(400)
TUMBLING = TumblingEventTimeWindows.of(1000)
OPERATORS: dict[str, Callable[[Any], Any]] = {
    "process": lambda keyed: keyed.process(Counting(False)),
    "process with ttl": lambda keyed: keyed.process(Counting(True)),
    "windows": lambda keyed: keyed.window(TUMBLING).process(Listing()),
    "sessions": lambda keyed: keyed.window(SESSIONS).process(Listing()),
    "counts": lambda keyed: (
        keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(4)).process(Listing())
    ),
}


def run(build: Callable[[Any], Any], restored: bool) -> list[Any]:
    """Each key four times, before and behind a restore."""
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = build(env.from_collection([(0, 0)]).key_by(_first))
    harness, outputs = OperatorHarness.of(stream), []
    for turn in range(4):
        if restored and turn == 2:
            outputs = harness.outputs()
            harness = OperatorHarness.of(stream, restored=harness.snapshot())
        records = [(key, 1) for key in KEYS]
        harness.push(records, timestamps=[100 * turn] * len(records))
    harness.watermark(2000)
    return [*outputs, *harness.outputs()]


@pytest.mark.parametrize("restored", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_each_kind_has_its_own(name: str, restored: bool) -> None:
    found = [(_name(key), n) for key, n in run(OPERATORS[name], restored)]
    if name == "counts":
        found = [(key, n) for key, n in found if n == 4]
    assert sorted(key for key, _ in found) == NAMES
    twice = 4 if name == "counts" else 8
    assert all(n == (twice if key == "0.0" else 4) for key, n in found)


@pytest.mark.parametrize("restored", [False, True])
def test_rolling(restored: bool) -> None:
    def reduce(one: Any, other: Any) -> Any:
        return (one[0], one[1] + other[1])

    reductions: list[Callable[[Any], Any]] = [lambda k: k.reduce(reduce), lambda k: k.sum(1)]
    for build in reductions:
        last = {_name(key): n for key, n in run(build, restored)}
        assert sorted(last) == NAMES
        assert all(n == (8 if key == "0.0" else 4) for key, n in last.items())


@pytest.mark.parametrize("assigner", [TUMBLING, SESSIONS, GlobalWindows.create()])
@pytest.mark.parametrize("restored", [False, True])
def test_built_in_aggregates(assigner: Any, restored: bool) -> None:
    """Counts only: the kinds do not fit one column."""

    def build(keyed: Any) -> Any:
        windowed = keyed.window(assigner)
        if isinstance(assigner, GlobalWindows):
            windowed = windowed.trigger(CountTrigger.of(4))
        return windowed.aggregate(n=count())

    env = StreamExecutionEnvironment.get_execution_environment()
    keys: list[Any] = [1.0, 2.0, 1, 2]
    stream = build(env.from_collection([(0, 0)]).key_by(_first))
    harness, counts = OperatorHarness.of(stream), []
    for turn in range(4):
        if restored and turn == 2:
            counts = [row.n for row in harness.outputs()]
            harness = OperatorHarness.of(stream, restored=harness.snapshot())
        harness.push([(key, 1) for key in keys], timestamps=[100 * turn] * len(keys))
    harness.watermark(2000)
    assert [*counts, *(row.n for row in harness.outputs())] == [4] * 4
