"""Windows of every kind over one stream of purchases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from strom.common import Time, Types, WatermarkStrategy
from strom.common.watermark_strategy import TimestampAssigner
from strom.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    WindowFunction,
)
from strom.datastream.window import (
    CountTrigger,
    CountWindow,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)

Purchase = tuple[str, int, int]
"""(customer, price, time in ms)"""
Result = tuple[str, int, int]

PURCHASE = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
RESULT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
SUM_AND_COUNT = Types.TUPLE([Types.LONG(), Types.LONG()])
LATE = OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()]))


class PurchaseTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        time: int = value[2]
        return time


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Purchase, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0] // accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithEnd(ProcessWindowFunction[int, Result, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterable[Result]:
        return [(key, context.window().end, mean) for mean in elements]


class Visits(ProcessWindowFunction[Purchase, Result, str, TimeWindow]):
    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Purchase],
    ) -> Iterable[Result]:
        window = context.window()
        return [(key, window.start, window.end - window.start)]


class Total(WindowFunction[Purchase, Result, str, CountWindow]):
    def apply(self, key: str, window: CountWindow, inputs: Iterable[Purchase]) -> Iterable[Result]:
        prices = [price for _, price, _ in inputs]
        return [(key, len(prices), sum(prices))]


def windows(env: StreamExecutionEnvironment) -> dict[str, DataStream]:
    purchases = [(f"customer {n % 3}", n * 7 % 50, n * 900 + n % 4 * 200) for n in range(80)]
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_collection(purchases, PURCHASE).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(PurchaseTime())
    )
    stream.set_parallelism(1)  # several subtasks would not keep a customer's purchases in order
    by_customer = stream.key_by(lambda purchase: purchase[0], Types.STRING())
    dearest = (
        by_customer.window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .allowed_lateness(60_000)
        .reduce(lambda a, b: a if (a[1], a[2]) > (b[1], b[2]) else b)
    )
    means = by_customer.window(SlidingEventTimeWindows.of(Time.seconds(20), Time.seconds(10)))
    visits = by_customer.window(EventTimeSessionWindows.with_gap(Time.milliseconds(2_500)))
    everything = by_customer.window(GlobalWindows.create())
    fives = everything.trigger(PurgingTrigger.of(CountTrigger.of(5)))
    return {
        "tumbling": dearest.map(lambda one: (one[0], one[2], one[1]), output_type=RESULT),
        "sliding": means.side_output_late_data(LATE).aggregate(
            Mean(), WithEnd(), accumulator_type=SUM_AND_COUNT, output_type=RESULT
        ),
        "sessions": visits.process(Visits(), RESULT),
        "counted": by_customer.count_window(4).apply(Total(), RESULT),
        "global": fives.apply(Total(), RESULT),
    }


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    for name, stream in windows(env).items():
        stream.print(name)
    env.execute("windows")


if __name__ == "__main__":
    main()
