"""Some queries with a Python function per record, as one would write them for PyFlink or bytewax.

They give what their columnar namesakes give, and run on the row path: what they cost is mostly
Python. Only the columns that a query needs are taken before records become objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from strom import (
    AggregateFunction,
    DataStream,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
)

from .events import auctions, bids, persons
from .stateless import BID, EURO

TEN_SECONDS = timedelta(seconds=10)
END_OF_TIME = 2**62
"""A timer for this time fires when the input has ended."""


class Count(AggregateFunction):
    """How many records."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class WithBounds(ProcessWindowFunction):
    """(key, the window's one value, its start, its end)"""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context, elements: Any
    ) -> Iterator[Any]:
        window = context.window()
        for value in elements:
            yield key, value, window.start, window.end


def to_euro(bid: Any) -> tuple[Any, ...]:
    return bid.auction, bid.bidder, bid.price * EURO, bid.dateTime, bid.extra


def q0_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q0 with a Python function: each bid as a tuple."""
    stream = bids(env, events).select(*BID)
    return stream.map(lambda b: (b.auction, b.bidder, b.price, b.dateTime, b.extra))


def q1_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q1 with a Python function per bid."""
    return bids(env, events).select(*BID).map(to_euro)


def q2_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q2 with Python functions: a filter and a map."""
    chosen = bids(env, events).select("auction", "price").filter(lambda bid: bid[0] % 123 == 0)
    return chosen.map(lambda bid: (bid[0], bid[1]))


def q7c_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q7c with an AggregateFunction and a ProcessWindowFunction."""
    return (
        bids(env, events)
        .select("auction")
        .key_by(lambda bid: bid[0])
        .window(TumblingEventTimeWindows.of(TEN_SECONDS))
        .aggregate(Count(), WithBounds())
        .map(lambda row: (row[0], row[1], row[3]))
    )


def q11_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q11 with an AggregateFunction over session windows."""
    return (
        bids(env, events)
        .select("bidder")
        .key_by(lambda bid: bid[0])
        .window(EventTimeSessionWindows.with_gap(TEN_SECONDS))
        .aggregate(Count(), WithBounds())
    )


class LastBid(KeyedProcessFunction):
    """Keeps the last bid of its key, in event time, and gives it when the input has ended."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        held = self.last.value()
        if held is None:
            ctx.timer_service().register_event_time_timer(END_OF_TIME)
        if held is None or value.dateTime >= held.dateTime:
            self.last.update(value)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield tuple(self.last.value())


def q18_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q18 with a KeyedProcessFunction: the table itself, at the end, not its changes."""
    return bids(env, events).key_by(lambda bid: (bid.bidder, bid.auction)).process(LastBid())


class NewSellers(ProcessWindowFunction):
    """Of one id's (id, name or None) in a window: the person, if there is an auction (None) too."""

    def process(
        self, key: Any, context: ProcessWindowFunction.Context, elements: Any
    ) -> Iterator[Any]:
        names = [name for _, name in elements]
        if None in names:
            yield from ((key, name, context.window().start) for name in names if name is not None)


def q8_rows(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """q8 with Python functions: both streams as one of (id, name or None), window by window."""
    came = persons(env, events).select("id", "name").map(lambda p: (p.id, p.name))
    sold = auctions(env, events).select("seller").map(lambda a: (a.seller, None))
    return (
        came.union(sold)
        .key_by(lambda pair: pair[0])
        .window(TumblingEventTimeWindows.of(TEN_SECONDS))
        .process(NewSellers())
    )
