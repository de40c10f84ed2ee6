"""Three programs with PyFlink's names only: PyFlink runs this very text, `strom` replaced.

The input is whole numbers of one reader, dealt to the subtasks in turns; everything else is
functions of theirs, so that both engines do the same work in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from strom.common import Types, WatermarkStrategy
from strom.common.time import Time
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    AggregateFunction,
    DataStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from strom.datastream.connectors.number_seq import NumberSequenceSource
from strom.datastream.state import ValueStateDescriptor
from strom.datastream.window import TumblingEventTimeWindows

LINE = 8
"""Words of a line."""
KEYS = 10_000
EVENTS_PER_MS = 10
WINDOW_S = 10

COUNT = Types.TUPLE([Types.STRING(), Types.LONG()])
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])
OF_WINDOW = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


def spread(number: int) -> int:
    """One of KEYS, neighbours far apart."""
    return (number * 2_654_435_761 >> 8) % KEYS


def numbers(env: StreamExecutionEnvironment, count: int) -> DataStream:
    source = NumberSequenceSource(0, count - 1)
    no_watermarks = WatermarkStrategy.no_watermarks()
    stream = env.from_source(source, no_watermarks, "numbers", Types.LONG())
    return stream.set_parallelism(1).rebalance()


def line(number: int) -> str:
    first = number * LINE
    return " ".join([f"word-{spread(n):05d}" for n in range(first, first + LINE)])


def split(text: str) -> Iterator[str]:
    yield from text.split()


def word_count(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Running counts of 10,000 words in lines of eight. Events are words."""
    lines = numbers(env, events // LINE).map(line, output_type=Types.STRING())
    ones = lines.flat_map(split, output_type=Types.STRING()).map(
        lambda word: (word, 1), output_type=COUNT
    )
    by_word = ones.key_by(lambda one: one[0], key_type=Types.STRING())
    return by_word.reduce(lambda left, right: (left[0], left[1] + right[1]))


class RunningSum(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(
        self, value: Any, ctx: KeyedProcessFunction.Context
    ) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def keyed_process(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Running sums of 10,000 keys in a value state, one result per record."""
    pairs = numbers(env, events).map(lambda n: (spread(n), n % 100), output_type=PAIR)
    by_key = pairs.key_by(lambda pair: pair[0], key_type=Types.LONG())
    return by_key.process(RunningSum(), output_type=PAIR)


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        number: int = value[1]
        return number // EVENTS_PER_MS


class Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: tuple[int, int], accumulator: int) -> int:
        return accumulator + value[1] % 100

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithEnd(ProcessWindowFunction):
    def process(
        self, key: int, context: ProcessWindowFunction.Context, elements: Iterable[int]
    ) -> Iterator[tuple[int, int, int]]:
        for total in elements:
            yield key, context.window().end, total


def window_aggregate(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Sums of 10,000 keys in windows of 10 s of event time, 100,000 events each."""
    pairs = numbers(env, events).map(lambda n: (spread(n), n), output_type=PAIR)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
    by_key = pairs.assign_timestamps_and_watermarks(strategy).key_by(
        lambda pair: pair[0], key_type=Types.LONG()
    )
    return by_key.window(TumblingEventTimeWindows.of(Time.seconds(WINDOW_S))).aggregate(
        Sum(), WithEnd(), accumulator_type=Types.LONG(), output_type=OF_WINDOW
    )


PROGRAMS: dict[str, Callable[[StreamExecutionEnvironment, int], DataStream]] = {
    "word_count": word_count,
    "keyed_process": keyed_process,
    "window_aggregate": window_aggregate,
}
