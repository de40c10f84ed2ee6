"""The pipelines, written with the public API as a user would write them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import polars as pl
from strom import (
    DataStream,
    DiscardSink,
    SlidingEventTimeWindows,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
)
from strom.connectors.datagen import DataGenSource, NexmarkSource

from .streams import KEY_VALUE, key_values, words

Workload = Callable[[StreamExecutionEnvironment, int], DataStream]
"""From an environment and a number of events to the stream whose records are the result."""

BLOCK = 16_384

NEXMARK_TIME = WatermarkStrategy.for_bounded_out_of_orderness(
    timedelta(seconds=4)
).with_timestamp_assigner("dateTime")


def wordcount(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Row path: running count of 10,000 words, every update emitted, Python function per record."""
    return (
        env.from_source(DataGenSource(words, events, block=BLOCK), source_name="words")
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .sum(1)
    )


def kstate(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Keyed running sum over a million keys, every update emitted, columns."""
    source = DataGenSource(key_values, events, schema=KEY_VALUE, block=BLOCK)
    return env.from_source(source, source_name="pairs").key_by("k").sum("v")


def bids(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """The bids among `events` Nexmark events, every column really made, with watermarks."""
    return env.from_source(NexmarkSource(events), NEXMARK_TIME, "bids")


def q0(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Pass through."""
    return bids(env, events).select(pl.all())


def q1(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Prices in euro."""
    return bids(env, events).with_columns(price=pl.col("price") * 0.908)


def q2(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Bids on some auctions."""
    return bids(env, events).filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q5(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Hot items: every 2 s, the auctions with the most bids in the last 10 s."""
    return (
        bids(env, events)
        .select("auction")
        .key_by("auction")
        .window(SlidingEventTimeWindows.of(timedelta(seconds=10), timedelta(seconds=2)))
        .aggregate(num=count())
        .select("auction", "num", end="window_end")
        .key_by("end")
        .window(TumblingEventTimeWindows.of(timedelta(seconds=2)))
        .max_by("num", ties=True)
        .select("auction", "num", "end")
    )


def q7(env: StreamExecutionEnvironment, events: int) -> DataStream:
    """Every 10 s, the bids at the highest price: first per part of the bidders, then of all."""
    window = TumblingEventTimeWindows.of(timedelta(seconds=10))
    columns = ("auction", "price", "bidder", "dateTime", "extra")
    return (
        bids(env, events)
        .select(*columns, part=pl.col("bidder") % 16)
        .key_by("part")
        .window(window)
        .max_by("price", ties=True)
        .select(*columns)
        .window_all(window)
        .max_by("price", ties=True)
        .select(*columns)
    )


WORKLOADS: dict[str, Workload] = {f.__name__: f for f in (wordcount, kstate, q0, q1, q2, q5, q7)}


def discard(stream: DataStream) -> None:
    """Where a benchmark's records go."""
    stream.sink_to(DiscardSink()).name("Sink: Discard")
