"""PyFlink's keywords, type parameters and constructors, as programs spell them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from strom import (
    AllWindowFunction,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    CountWindow,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    KeyedStateStore,
    MergingWindowAssigner,
    NullByteKeySelector,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Types,
    WindowAssigner,
    WindowedStream,
    WindowFunction,
)

Pair = tuple[str, int]
PAIRS: list[Pair] = [("a", 1), ("b", 2), ("a", 3), ("a", 4), ("b", 5)]


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def results(stream: Any) -> list[Any]:
    with stream.execute_and_collect() as found:
        return sorted(found)


class Sizes(ProcessWindowFunction[Pair, Pair, str, CountWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[CountWindow],
        elements: Iterable[Pair],
    ) -> Iterable[Pair]:
        return [(key, context.window().id * 10 + len(list(elements)))]


class AllSizes(ProcessAllWindowFunction[Pair, int, CountWindow]):
    def process(
        self, context: ProcessAllWindowFunction.Context[CountWindow], elements: Iterable[Pair]
    ) -> Iterable[int]:
        return [len(list(elements))]


class Sums(WindowFunction[Pair, Pair, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs: Iterable[Pair]) -> Iterable[Pair]:
        return [(key, sum(n for _, n in inputs))]


class AllSums(AllWindowFunction[Pair, int, CountWindow]):
    def apply(self, window: CountWindow, inputs: Iterable[Pair]) -> Iterable[int]:
        return [sum(n for _, n in inputs)]


class Second(Trigger[Pair, CountWindow]):
    def on_element(
        self, element: Pair, timestamp: int, window: CountWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE if element[1] == 3 else TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: CountWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: CountWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: CountWindow, ctx: Trigger.TriggerContext) -> None:
        return None


class OneWindow(WindowAssigner[Pair, CountWindow]):
    def assign_windows(
        self, element: Pair, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> list[CountWindow]:
        return [CountWindow(7)]

    def get_default_trigger(self, env: Any = None) -> Trigger[Pair, CountWindow]:
        return Second()

    def is_event_time(self) -> bool:
        return False


def test_functions_with_type_parameters(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(PAIRS).key_by(lambda pair: pair[0], Types.STRING())
    assert results(keyed.count_window(2).process(Sizes())) == [("a", 2), ("b", 2)]
    keyed = env.from_collection(PAIRS).key_by(key_selector=lambda pair: pair[0])
    assert results(keyed.count_window(size=2).apply(Sums())) == [("a", 4), ("b", 7)]
    fives = env.from_collection(PAIRS).window_all(CountTumblingWindowAssigner(window_size=5))
    assert results(fives.process(AllSizes())) == [5]
    fives = env.from_collection(PAIRS).window_all(CountTumblingWindowAssigner.of(5))
    assert results(fives.apply(AllSums())) == [15]


def test_a_users_assigner_and_trigger_with_type_parameters(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(PAIRS).key_by(lambda pair: pair[0], key_type=Types.STRING())
    assert results(keyed.window(OneWindow()).apply(Sums())) == [("a", 4)]
    assert results(WindowedStream(keyed, OneWindow()).process(Sizes())) == [("a", 72)]
    assert keyed.window(OneWindow()).get_execution_environment() is env
    assert MergingWindowAssigner[Pair, TimeWindow] is not None


def test_windows_passed_through(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection(PAIRS).key_by(NullByteKeySelector(), Types.BYTE())
    passed = keyed.count_window(2).apply(PassThroughWindowFunction())
    assert results(passed) == sorted(PAIRS[:4])
    passed = env.from_collection(PAIRS).window_all(CountTumblingWindowAssigner.of(2))
    assert results(passed.apply(PassThroughAllWindowFunction())) == sorted(PAIRS[:4])


def test_keywords(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection(collection=PAIRS, type_info=None)
    doubled = stream.map(func=lambda pair: (pair[0], 2 * pair[1]), output_type=None)
    few = doubled.filter(func=lambda pair: pair[1] > 6)
    assert results(few.flat_map(func=lambda pair: [pair], output_type=None)) == [
        ("a", 8),
        ("b", 10),
    ]
    keyed = env.from_collection(PAIRS).key_by(lambda pair: pair[0])
    assert results(keyed.filter(func=lambda pair: pair[1] > 3)) == [("a", 4), ("b", 5)]
    windowed = keyed.window(window_assigner=TumblingEventTimeWindows.of(size=10, offset=0))
    assert windowed.allowed_lateness(time_ms=5) is windowed
    assert windowed.trigger(trigger=CountTrigger(window_size=2)) is windowed


def test_constructors() -> None:
    def gap(element: Any) -> int:
        return 5

    assert CountTrigger(2) == CountTrigger.of(window_size=2)
    assert CountSlidingWindowAssigner(window_size=4, window_slide=2).window_slide == 2
    for kind in (EventTimeSessionWindows, ProcessingTimeSessionWindows):
        assert kind(session_gap=5) == kind.with_gap(5)
        assert kind(5).get_window_serializer() is None
    for kind in (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows):
        made = kind(session_window_time_gap_extractor=gap)
        assert made == kind.with_dynamic_gap(extractor=gap)
        assert made.gap_of(None) == 5


def test_a_runtime_context_is_a_keyed_state_store() -> None:
    assert KeyedStateStore in RuntimeContext.__mro__
